"""Held-out windows of a split text, and the loss of networks on them, compared with counting and summing by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax

from tokengeom import NextTokenStatistics, TrainingSettings, count
from tokengeom.extending import InputError, SilentProgress, WordTokenizer, build_network, import_torch
from tokengeom_studies.common.split_texts import HeldOutLoss, SplitText, count_parts, split_text_of

RECIPE = {"seed": 0, "stories": 60, "held_out": 0.3, "context": 2, "contexts": 25, "vocabulary": 30}


@pytest.fixture(scope="module")
def split() -> SplitText:
    return split_text_of(RECIPE, "stories")


def test_pairs_are_those_of_the_held_out_text() -> None:
    tokenizer = WordTokenizer()
    tokenizer.encode(["a b c d x"])
    frozen = tokenizer.freeze()
    kept = count(["a b c a b d", "b c d"], context=2, tokenizer=frozen).limited(vocabulary=4)
    found = SplitText.of(kept, count(["a b c d a b x a b c b"], context=2, tokenizer=frozen))
    names = frozen.vocabulary()
    pairs = {
        (*(names[id_] for id_ in found.contexts[place]), kept.vocabulary[token]): int(windows)
        for place, token, windows in zip(found.place, found.token, found.windows, strict=True)
    }
    # Contexts with d or x, which no context of training has, are left out, and so is the next token x.
    assert pairs == {("a", "b", "c"): 2, ("b", "c", "d"): 1, ("b", "c", "b"): 1}
    assert found.known.all()


def test_contexts_that_training_has_not_counted_are_new() -> None:
    kept = count(["a b c a b d", "b c d"], context=2).limited(top_contexts=2)
    found = SplitText.of(kept, count(["a b c a b d", "b c d"], context=2))
    names = kept.tokenizer.vocabulary() if kept.tokenizer else []
    shown = {
        "".join(names[id_] for id_ in row): bool(known) for row, known in zip(found.contexts, found.known, strict=True)
    }
    assert shown == {"ab": True, "bc": True, "ca": False}


def test_merged_tokens_are_one_token() -> None:
    kept = count(["a b c a b d a b c", "b c d"], context=2)
    merged = kept.limited(vocabulary=2, rest="merge")
    found = SplitText.of(merged, count(["a b d c"], context=2, tokenizer=kept.tokenizer))
    shown = {merged.vocabulary[token] for token in found.token}
    assert shown <= set(merged.vocabulary)
    assert found.windows.sum() == 2


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_the_loss_is_the_mean_over_windows(split: SplitText, network: str) -> None:
    """On known contexts the states are those of the network's readout."""
    stats, torch = split.stats, import_torch()
    model = build_network(stats, TrainingSettings(model=network, dim=8, layers=1))
    losses = HeldOutLoss(split, torch, "cpu").of(model)
    logits = log_softmax(model.readout().logits, axis=0)
    column = {tuple(row): j for j, row in enumerate(np.asarray(stats.contexts).tolist())}
    total, windows = 0.0, 0
    for place, token, number in zip(split.place, split.token, split.windows, strict=True):
        if split.known[place]:
            total -= number * logits[token, column[tuple(split.contexts[place])]]
            windows += number
    assert losses["known"] == pytest.approx(total / windows, rel=1e-5)
    share = windows / split.windows.sum()
    assert losses["all"] == pytest.approx(share * losses["known"] + (1 - share) * losses["new"], rel=1e-9)
    assert 0 < share < 1


def test_a_saved_split_text_is_read_back(split: SplitText, tmp_path: Path) -> None:
    split.save(tmp_path / "text.npz")
    again = split_text_of({}, str(tmp_path / "text.npz"))
    for name in ("contexts", "known", "place", "token", "windows"):
        np.testing.assert_array_equal(getattr(again, name), getattr(split, name))
    np.testing.assert_array_equal(again.stats.P.toarray(), split.stats.P.toarray())
    np.testing.assert_array_equal(np.asarray(again.stats.contexts), np.asarray(split.stats.contexts))
    assert again.frequency_loss() == pytest.approx(split.frequency_loss(), rel=1e-12)


def test_the_loss_of_frequencies_is_a_cross_entropy() -> None:
    stats = NextTokenStatistics.from_counts(np.array([[3, 0], [1, 4]]), contexts=np.array([[0], [1]]))
    held = SplitText(stats, np.array([[0]]), np.array([True]), np.array([0, 0]), np.array([0, 1]), np.array([1, 3]))
    assert held.frequency_loss() == pytest.approx(-(np.log(3 / 8) + 3 * np.log(5 / 8)) / 4)


def test_texts_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'stories' or an \.npz file"):
        split_text_of({}, "book.txt")
    np.savez(tmp_path / "plain.npz", data=np.ones(3))
    with pytest.raises(InputError, match="no held-out windows"):
        split_text_of({}, str(tmp_path / "plain.npz"))
    kept, rest = count(["a b c"], context=2), count(["x y z"], context=2)
    with pytest.raises(InputError, match="No held-out window"):
        SplitText.of(kept, NextTokenStatistics.from_counts(rest.counts, contexts=np.array([[7, 8]])))


def recipe(**changes: Any) -> dict[str, Any]:
    shared = {"text": "", "separator": "auto", "seed": 0, "stories": 20, "held_out": 0.5}
    return {**shared, "context": 2, **changes}


def test_both_parts_together_are_the_whole_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    documents = [" ".join(f"w{i}" for i in rng.integers(0, 3, 40)) for _ in range(10)]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents))
    kept, rest = count_parts(recipe(text=str(path), held_out=0.3), SilentProgress())
    # 38 windows per document, none across two.
    assert (kept.n, rest.n) == (7 * 38, 3 * 38)
    whole = count(documents, context=2)
    totals = dict.fromkeys(whole.vocabulary, 0)
    for part in (kept, rest):
        for token, number in zip(part.vocabulary, part.counts.toarray().sum(axis=1).tolist(), strict=True):
            totals[token] += number
    assert totals == dict(zip(whole.vocabulary, whole.counts.toarray().sum(axis=1).tolist(), strict=True))


def test_the_seed_determines_the_split() -> None:
    first, again, other = (count_parts(recipe(seed=seed), SilentProgress())[1].hash for seed in (0, 0, 1))
    assert first == again
    assert first != other


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_part_without_documents_is_refused(share: float) -> None:
    with pytest.raises(InputError, match=f"held_out={share}"):
        count_parts(recipe(held_out=share), SilentProgress())


def test_token_ids_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    np.arange(10, dtype=np.uint16).tofile(path)
    with pytest.raises(InputError, match=r"tokens\.bin holds token ids"):
        count_parts(recipe(text=str(path)), SilentProgress())
