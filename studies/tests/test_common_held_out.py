"""Held-out windows: split by documents, found among the contexts of training, and their exact loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss

from tokengeom import NextTokenStatistics, count
from tokengeom.extending import InputError, SilentProgress
from tokengeom_studies.common.held_out import HeldOut, find_windows, split_text

TOKENS = ("a", "b", "c", "d")


def statistics(counts: list[list[int]], contexts: list[list[int]], tokens: tuple[str, ...]) -> NextTokenStatistics:
    ids = np.array(contexts, np.int32)
    return NextTokenStatistics.from_counts(np.array(counts), contexts=ids, vocabulary=tokens)


@pytest.fixture
def training() -> NextTokenStatistics:
    return statistics([[3, 0], [1, 2], [0, 4], [0, 1]], [[1, 2], [3, 4]], TOKENS)


@pytest.fixture
def held_out(training: NextTokenStatistics) -> HeldOut:
    # The second context and the token "x" do not occur in training; tokens are in another order.
    rest = statistics([[2, 1, 0], [0, 5, 7], [6, 1, 1], [0, 2, 0]], [[3, 4], [9, 9], [1, 2]], ("x", "b", "a", "c"))
    return find_windows(training, rest)


def test_pairs_are_found_by_context_and_by_token(held_out: HeldOut) -> None:
    found = set(zip(held_out.column.tolist(), held_out.token.tolist(), held_out.windows.tolist(), strict=True))
    assert found == {(1, 0, 6), (0, 1, 7), (0, 0, 1)}
    assert (held_out.n, held_out.all_windows) == (14, 25)


def test_a_pair_is_new_where_training_never_saw_it(held_out: HeldOut) -> None:
    new = {(int(j), int(z)) for j, z, new in zip(held_out.column, held_out.token, held_out.new, strict=True) if new}
    assert new == {(1, 0)}
    assert held_out.n_new == 6


def test_the_loss_is_that_of_the_raw_windows(held_out: HeldOut) -> None:
    L = np.random.default_rng(0).normal(size=(4, 2))
    probabilities = np.exp(L) / np.exp(L).sum(axis=0)
    columns, tokens = (np.repeat(x, held_out.windows) for x in (held_out.column, held_out.token))
    expected = log_loss(tokens, probabilities[:, columns].T, labels=range(4))
    assert held_out.losses(L)["loss"] == pytest.approx(expected, rel=1e-12)


def test_the_loss_is_the_mean_of_its_parts(held_out: HeldOut) -> None:
    losses = held_out.losses(np.random.default_rng(1).normal(size=(4, 2)))
    share = held_out.n_new / held_out.n
    assert losses["loss"] == pytest.approx(share * losses["new"] + (1 - share) * losses["known"], rel=1e-12)


def test_a_constant_added_to_a_column_changes_nothing(held_out: HeldOut) -> None:
    L = np.random.default_rng(2).normal(size=(4, 2))
    assert held_out.losses(L + np.array([7.0, -900.0])) == pytest.approx(held_out.losses(L), rel=1e-10)


def test_the_loss_of_new_pairs_grows_by_the_margin_and_that_of_known_pairs_has_its_limit(
    training: NextTokenStatistics, held_out: HeldOut
) -> None:
    P = training.P.toarray()
    L = np.log(np.where(P > 0, P, 1.0))
    # Off support R below: logits of exp(1000) would overflow where the loss is not computed in log space.
    near, far = (held_out.losses(np.where(P > 0, L, -R)) for R in (500.0, 1000.0))
    assert far["new"] - near["new"] == pytest.approx(500.0)
    assert far["known"] == pytest.approx(held_out.known_limit(training), rel=1e-12)
    # By hand: 7 windows of b after context 0 (share 1/4) and 1 of a (3/4).
    assert held_out.known_limit(training) == pytest.approx((7 * np.log(4) + np.log(4 / 3)) / 8)


def test_without_new_pairs_there_is_no_such_loss(training: NextTokenStatistics) -> None:
    again = find_windows(training, training)
    assert again.n_new == 0
    losses = again.losses(np.zeros((4, 2)))
    assert set(losses) == {"loss", "known"}
    assert losses["loss"] == pytest.approx(np.log(4))


def recipe(**changes: Any) -> dict[str, Any]:
    shared = {"text": "", "separator": "auto", "seed": 0, "stories": 20, "held_out": 0.5}
    return {**shared, "context": 2, "contexts": 10_000, "vocabulary": 10_000, **changes}


def test_both_parts_together_are_the_whole_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    documents = [" ".join(f"w{i}" for i in rng.integers(0, 3, 40)) for _ in range(10)]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents))
    stats, held_out = split_text(recipe(text=str(path), held_out=0.3), SilentProgress())
    # 38 windows per document, none across two; three tokens make nine contexts, which both parts have.
    assert (stats.n, held_out.all_windows, held_out.n) == (7 * 38, 3 * 38, 3 * 38)
    whole = count(documents, context=2)
    assert stats.n + held_out.n == whole.n
    # Sums over contexts, which do not depend on the order of ids.
    both = stats.counts.toarray()
    np.add.at(both, (held_out.token, held_out.column), held_out.windows)
    totals = dict(zip(stats.vocabulary, both.sum(axis=1).tolist(), strict=True))
    assert totals == dict(zip(whole.vocabulary, whole.counts.toarray().sum(axis=1).tolist(), strict=True))


def test_the_seed_determines_the_split() -> None:
    first, again, other = (split_text(recipe(seed=seed), SilentProgress())[1] for seed in (0, 0, 1))
    assert np.array_equal(first.windows, again.windows)
    assert not np.array_equal(first.windows, other.windows)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_part_without_documents_is_refused(share: float) -> None:
    with pytest.raises(InputError, match=f"held_out={share}"):
        split_text(recipe(held_out=share), SilentProgress())


def test_parts_that_share_no_context_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a b c d e\n\nf g h i j")
    with pytest.raises(InputError, match="No held-out window has one of the 3 contexts"):
        split_text(recipe(text=str(path)), SilentProgress())


def test_token_ids_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    np.arange(10, dtype=np.uint16).tofile(path)
    with pytest.raises(InputError, match=r"tokens\.bin holds token ids"):
        split_text(recipe(text=str(path)), SilentProgress())
