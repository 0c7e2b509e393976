"""The verb rivals: numbers of dense formulas, ties where explanations coincide, and the true explanation first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from geometry_cases import explained_counts, grouped_counts
from tokengeom.errors import InputError, ProblemError
from tokengeom.geometry import rivals as module
from tokengeom.geometry.explanations import base
from tokengeom.geometry.rival_table import Rivals
from tokengeom.geometry.rivals import RivalSettings, explanations_of, rivals
from tokengeom.geometry.similarity import structural_similarity
from tokengeom.numerics import Float
from tokengeom.problems.instances import all_subsets
from tokengeom.progress import AbstractProgress, AbstractStage
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import predict_linear
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import predict_proxy
from tokengeom.training.train import train

V, M, D = 12, 24, 9
NAMES = ("ETF", "PMI", "L_in", "P", "S~", "L_mm")
FEW: dict[str, Any] = {"held_out": 0, "resamples": 0, "permutations": 0}


@pytest.fixture(scope="module")
def counts() -> np.ndarray:
    return explained_counts()


@pytest.fixture(scope="module")
def stats(counts: np.ndarray) -> NextTokenStatistics:
    return NextTokenStatistics.from_counts(counts)


@pytest.fixture(scope="module")
def prediction(stats: NextTokenStatistics) -> FeaturePrediction:
    return predict(stats, spread_solves=0)


@pytest.fixture(scope="module")
def noise() -> tuple[Float, Float]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(V, D)), rng.normal(size=(D, M))


def value(table: Rivals, items: str, rival: str, kind: str = "similarity") -> float:
    (row,) = [row for row in table.of(items) if row.rival == rival]
    return float(getattr(row, kind).value)


def values(table: Rivals) -> dict[tuple[str, str, str], float]:
    return {
        (row.items, row.rival, kind): getattr(row, kind).value for row in table.rows for kind in ("similarity", "cka")
    }


def dense_grams(counts: np.ndarray, prediction: FeaturePrediction) -> dict[str, tuple[Float, Float]]:
    """Token and context Gram matrices of every rival, from formulas on dense matrices and a matrix square root."""
    P = counts / counts.sum(axis=0)
    S = P > 0
    C = np.eye(V) - 1.0 / V
    joint = counts / counts.sum()
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    with np.errstate(divide="ignore"):
        pmi, logs = np.log(joint / independent), np.log(P)
    L_in = np.zeros_like(P)
    for j in range(M):
        L_in[S[:, j], j] = logs[S[:, j], j] - logs[S[:, j], j].mean()
    logits = {"PMI": C @ np.maximum(pmi, 0.0), "L_in": L_in, "P": C @ P, "S~": C @ S, "L_mm": prediction.L_mm}
    found = {name: (root(L @ L.T), root(L.T @ L)) for name, L in logits.items()}
    top = P.max(axis=0) == P
    vertices = C @ (top / top.sum(axis=0))
    return {**found, "ETF": (C, vertices.T @ vertices)}


def root(K: Float) -> Float:
    """Square root of a positive semi-definite matrix, from its eigenvalues."""
    values, Q = np.linalg.eigh(K)
    return np.asarray((Q * np.sqrt(np.maximum(values, 0.0))) @ Q.T)


def gram_cosines(K: Float) -> Float:
    size = np.sqrt(np.maximum(np.diag(K), 0.0))
    size = np.where(size > 1e-6, size, np.inf)
    found: Float = K / np.outer(size, size)
    np.fill_diagonal(found, 1.0)
    return found


def gram_cka(A: Float, B: Float) -> float:
    centre = np.eye(len(A)) - 1.0 / len(A)
    a, b = centre @ A @ centre, centre @ B @ centre
    return float(np.sum(a * b) / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_those_of_dense_gram_matrices(
    stats: NextTokenStatistics, counts: np.ndarray, prediction: FeaturePrediction, noise: Any, name: str
) -> None:
    W, H = noise
    tokens, contexts = dense_grams(counts, prediction)[name]
    table = rivals(stats, noise, prediction, **FEW)
    centred = W - W.mean(axis=0)
    for items, theirs, mine in (("tokens", tokens, centred @ centred.T), ("contexts", contexts, H.T @ H)):
        expected = structural_similarity(gram_cosines(mine), gram_cosines(theirs))
        assert value(table, items, name) == pytest.approx(expected, abs=1e-6)
        assert value(table, items, name, "cka") == pytest.approx(gram_cka(mine, theirs), abs=1e-6)


def test_rivals_tie_where_every_support_occurs_once_and_is_uniform() -> None:
    known = all_subsets(6, 2)
    stats = NextTokenStatistics.from_probabilities(known.S / 2.0)
    U, s, Vt = np.linalg.svd(known.L_mm)
    run = U[:, :5] * np.sqrt(s[:5]), np.sqrt(s[:5])[:, None] * Vt[:5]
    table = rivals(stats, run, held_out=0)
    for items in ("contexts", "tokens"):
        for row in table.of(items):
            if row.rival == "L_in":  # uniform probabilities: it is 0
                assert row.without_direction == {"contexts": 15, "tokens": 6}[items]
            else:
                assert row.similarity.value == pytest.approx(1.0, abs=1e-5)
                assert not row.behind.is_clear
        assert "a tie within the 95% interval" in table.summary()


@pytest.mark.parametrize("name", NAMES)
def test_the_explanation_that_made_the_run_is_found(
    stats: NextTokenStatistics, prediction: FeaturePrediction, name: str
) -> None:
    (rival,) = [one for one in explanations_of(RivalSettings(), prediction)[0] if one.name == name]
    fit = rival.fit(stats)
    W, H = fit.tokens(np.arange(V)).T, fit.contexts(np.arange(M))
    table = rivals(stats, (W, H), prediction, held_out=0, permutations=0)
    for items in ("contexts", "tokens"):
        best, second = table.of(items)[:2]
        assert best.rival == name
        assert best.similarity.value == pytest.approx(1.0, abs=1e-9)
        assert second.behind.is_clear, "all rivals differ on these statistics"
        assert second.behind.value == pytest.approx(1.0 - second.similarity.value, abs=1e-9)


def test_order_rotation_shift_scale_and_copies_of_the_text_change_nothing(
    stats: NextTokenStatistics, counts: np.ndarray, noise: Any
) -> None:
    W, H = noise
    rng = np.random.default_rng(2)
    tokens, contexts = rng.permutation(V), rng.permutation(M)
    R = np.linalg.qr(rng.normal(size=(D, D)))[0]
    expected = values(rivals(stats, noise, **FEW))
    same = [
        (counts[tokens], (W[tokens], H)),
        (counts[:, contexts], (W, H[:, contexts])),
        (counts, (3.0 * W @ R + rng.normal(size=D), R.T @ H / 5.0)),
        (2 * counts, noise),
    ]
    for other, run in same:
        found = values(rivals(NextTokenStatistics.from_counts(other), run, **FEW))
        assert found == pytest.approx(expected, abs=1e-5)  # L_mm is solved to a gap of 1e-6


def test_a_text_read_twice_gives_the_same_table(stats: NextTokenStatistics, counts: np.ndarray, noise: Any) -> None:
    twice = rivals(NextTokenStatistics.from_counts(2 * counts), noise, held_out=0.25, resamples=20, permutations=20)
    once = rivals(stats, noise, held_out=0.25, resamples=20, permutations=20)
    for mine, theirs in zip(once.rows, twice.rows, strict=True):
        assert (mine.items, mine.rival) == (theirs.items, theirs.rival)
        for a, b in ((mine.similarity, theirs.similarity), (mine.cka, theirs.cka)):
            assert (a.low, a.high, a.null) == pytest.approx((b.low, b.high, b.null), abs=1e-7, nan_ok=True)


def test_no_explanation_fits_noise_and_the_prediction_beats_chance(
    stats: NextTokenStatistics, prediction: FeaturePrediction, noise: Any
) -> None:
    table = rivals(stats, noise, prediction, held_out=0.25)
    beaten = [row for row in table.rows if row.similarity.beats_chance]
    assert len(beaten) <= 2, "5% of 18 rows are expected"
    true = rivals(stats, (prediction.W, prediction.H), prediction, held_out=0.25)
    held_out = {row.rival: row for row in true.of("held-out contexts")}
    assert held_out["L_mm"].similarity.beats_chance
    assert held_out["S~"].similarity.beats_chance
    assert true.held_out == M


def test_a_context_with_full_support_has_no_direction_in_supports(counts: np.ndarray, noise: Any) -> None:
    full = counts.copy()
    full[:, 7] = np.arange(1, V + 1)
    table = rivals(NextTokenStatistics.from_counts(full), noise, **FEW)
    missing = {row.rival: row.without_direction for row in table.of("contexts")}
    assert missing == {"ETF": 0, "PMI": 0, "L_in": 1, "P": 0, "S~": 1, "L_mm": 1}


def test_large_statistics_keep_the_leading_vectors(
    stats: NextTokenStatistics, noise: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = values(rivals(stats, noise, **FEW))
    monkeypatch.setattr(base, "MOST_ENTRIES", 0)
    table = rivals(stats, noise, **FEW)  # V - 1 of V vectors: all that a centred matrix has
    assert values(table) == pytest.approx(exact, abs=1e-5)
    assert "Only the leading singular vectors of PMI, L_in, P, S~ are used" in table.summary()
    monkeypatch.setattr(module, "MOST_ITEMS", 10)
    few = rivals(stats, noise, **FEW)
    assert {
        f"10 of {M} contexts, drawn at random, are evaluated.",
        f"10 of {V} tokens, drawn at random, are evaluated.",
    } <= set(few.limitations)


def test_the_table_as_plain_data_data_frame_and_sentences(stats: NextTokenStatistics, prediction: Any) -> None:
    table = rivals(stats, (prediction.W, prediction.H), prediction, held_out=0.25, resamples=20, permutations=20)
    plain = json.loads(json.dumps(table.to_dict()))
    assert plain["best"]["contexts"] == table.best["contexts"].rival == "L_mm"
    assert len(plain["rows"]) == 18
    assert set(plain["rows"][0]["similarity"]) >= {"value", "low", "high", "null"}
    frame = table.to_frame()
    assert frame.loc[("tokens", "L_mm"), "similarity"] == pytest.approx(1.0)
    lines = table.summary().splitlines()
    assert lines[0].startswith("Contexts: L_mm (prediction: maximum-margin direction of the logits) explains them best")
    assert "behind, the 95% interval excludes 0." in lines[0]
    assert any(line.startswith("  L_in") and line.endswith("; no direction for 1") for line in lines)
    assert any(line.startswith(f"Held out: {M} contexts in 16 folds (4 random splits)") for line in lines)


def test_equal_angles_between_all_tokens_explain_nothing(stats: NextTokenStatistics, prediction: Any) -> None:
    """A simplex frame has the same cosine for every pair of tokens: every permutation gives the same SIM."""
    frame = np.eye(V) - 1.0 / V
    H = np.random.default_rng(0).normal(size=(V, M))
    table = rivals(stats, (frame, H), prediction, held_out=0.0, resamples=20, permutations=40)
    first = table.best["tokens"]
    assert (first.rival, first.is_chance) == ("ETF", True)
    assert table.to_dict()["beats_chance"]["tokens"] is False
    (line,) = [line for line in table.summary().splitlines() if line.startswith("Tokens: ")]
    assert "which is no more than chance; no other explanation does better than chance." in line
    assert "explains them best" not in line


def test_one_context_is_too_few_for_a_ranking() -> None:
    few = NextTokenStatistics.from_counts(np.array([[3], [1], [0]]))
    rng = np.random.default_rng(0)
    table = rivals(few, (rng.normal(size=(3, 2)), rng.normal(size=(2, 1))), **FEW)
    assert table.summary().startswith("Contexts: too few or too similar")


def test_a_prediction_of_the_proxy_leaves_L_mm_out(stats: NextTokenStatistics, noise: Any) -> None:
    table = rivals(stats, noise, predict_proxy(stats, components=5), **FEW)
    assert {row.rival for row in table.rows} == set(NAMES) - {"L_mm"}
    assert "L_mm was left out, because the given prediction is of the proxy alone." in table.limitations


def test_with_one_support_no_context_is_held_out() -> None:
    stats = NextTokenStatistics.from_counts(np.array([[1, 2, 3], [3, 1, 1], [0, 0, 0]]))
    table = rivals(stats, (np.eye(3), np.eye(3)), resamples=0, permutations=0)
    assert table.items == ("contexts", "tokens")
    assert "No contexts were held out" in table.summary()


def test_bad_input_is_refused(stats: NextTokenStatistics, prediction: Any, noise: Any) -> None:
    W, H = noise
    with pytest.raises(ProblemError, match="m=24 and H of the run has 23"):
        rivals(stats, (W, H[:, 1:]), prediction)
    with pytest.raises(ProblemError, match="got LinearPrediction"):
        rivals(stats, noise, predict_linear(stats, np.eye(M)))  # type: ignore[arg-type]
    other = predict(NextTokenStatistics.from_counts(grouped_counts(V, 8, 3, 3, seed=6)), spread_solves=0)
    with pytest.raises(ProblemError, match=f"statistics and the prediction .*hashes {stats.hash[:8]} and "):
        rivals(stats, noise, other)
    with pytest.raises(ProblemError, match="must be for these statistics"):
        rivals(stats, noise, replace(other, statistics_hash=None))
    with pytest.raises(
        ProblemError, match=r"statistics and the run .* and 0123abcd\). Make both from the same statistics\.$"
    ):
        rivals(stats, SimpleNamespace(W=W, H=H, statistics_hash="0123abcd" * 8), prediction)
    with pytest.raises(InputError, match="rivals has no setting 'hold_out'"):
        rivals(stats, noise, prediction, hold_out=0.2)
    with pytest.raises(ProblemError, match="k=0"):
        rivals(stats, noise, prediction, k=0.0)
    with pytest.raises(ProblemError, match=r"held_out=0\.9"):
        rivals(stats, noise, prediction, held_out=0.9)
    with pytest.raises(ProblemError, match="resamples=5"):
        rivals(stats, noise, prediction, resamples=5)


def test_saved_statistics_runs_and_predictions_are_used_by_their_paths(
    stats: NextTokenStatistics, prediction: FeaturePrediction, tmp_path: Path
) -> None:
    run = train(stats, "ufm", dim=4, steps=10)
    stats.save(tmp_path / "stats")
    run.save(tmp_path / "run")
    prediction.save(tmp_path / "prediction")
    found = rivals(tmp_path / "stats", tmp_path / "run", tmp_path / "prediction", **FEW)
    assert values(found) == values(rivals(stats, run, prediction, **FEW))
    with pytest.raises(ProblemError, match="got Run"):
        rivals(stats, run, tmp_path / "run")


def test_progress_counts_every_fit(stats: NextTokenStatistics, noise: Any) -> None:
    shown = CountingProgress()
    rivals(stats, noise, progress=shown, explanations=("pmi", "proxy"), resamples=0, permutations=0)
    assert shown.done == shown.total == 2 * (1 + 4 * 5)


class CountingProgress(AbstractProgress):
    """Adds up what stages advance."""

    def __init__(self) -> None:
        self.total, self.done = 0.0, 0.0

    @contextmanager
    def stage(self, title: str, total: float | None) -> Iterator[AbstractStage]:
        self.total += total or 0.0
        yield CountingStage(self)


class CountingStage(AbstractStage):
    def __init__(self, progress: CountingProgress) -> None:
        self.progress = progress

    def advance(self, amount: float, note: str = "") -> None:
        self.progress.done += amount
