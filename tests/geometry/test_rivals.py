"""Rival explanations: each against its formula on dense matrices, ties where they must tie, the true one first."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from geometry_cases import grouped_counts
from tokengeom.errors import ProblemError
from tokengeom.geometry import rival_fits
from tokengeom.geometry import rivals as module
from tokengeom.geometry.agreement import draw
from tokengeom.geometry.rival_numbers import FoldedNumbers, RivalNumbers, full_cosines
from tokengeom.geometry.rival_rules import AbstractRival, ShiftedPMI, SimplexFrame, all_rivals
from tokengeom.geometry.rivals import Rivals, rivals
from tokengeom.geometry.similarity import structural_similarity
from tokengeom.numerics import Float
from tokengeom.problems.instances import all_subsets
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction, predict_features
from tokengeom.theory.predict import predict

V, M, D = 12, 24, 9
NAMES = ("ETF", "PMI", "L_in", "P", "S~", "L_mm")
FEW: dict[str, Any] = {"held_out": 0, "resamples": 0, "permutations": 0}


@pytest.fixture(scope="module")
def counts() -> np.ndarray:
    found = grouped_counts(V, 8, 3, 3, seed=5)
    found[:, 4] = 0
    found[2, 4] = 6  # a context with one next token, of which L_in says nothing
    return found


@pytest.fixture(scope="module")
def stats(counts: np.ndarray) -> NextTokenStatistics:
    return NextTokenStatistics.from_counts(counts)


@pytest.fixture(scope="module")
def prediction(stats: NextTokenStatistics) -> FeaturePrediction:
    return predict_features(stats, spread_solves=0)


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
    """Token and context Grams of every rival, from formulas on dense matrices and a matrix square root."""
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
    found = K / np.outer(size, size)
    np.fill_diagonal(found, 1.0)
    return found


def gram_cka(A: Float, B: Float) -> float:
    centre = np.eye(len(A)) - 1.0 / len(A)
    a, b = centre @ A @ centre, centre @ B @ centre
    return float(np.sum(a * b) / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_those_of_dense_grams(
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


def test_pmi_adds_up_to_the_mutual_information(stats: NextTokenStatistics, counts: np.ndarray) -> None:
    k = 1e-6  # a shift so low that nothing is cut off
    pmi = ShiftedPMI(k).values(stats.P, stats.P @ stats.pi) + np.log(k)
    weight = np.repeat(stats.pi, stats.support_sizes) * stats.P.data
    assert weight @ pmi == pytest.approx(mutual_info_score(None, None, contingency=counts), rel=1e-10)


def test_a_larger_shift_leaves_fewer_pairs(stats: NextTokenStatistics) -> None:
    background = stats.P @ stats.pi
    plain, shifted = (ShiftedPMI(k).values(stats.P, background) for k in (1.0, 3.0))
    np.testing.assert_allclose(shifted, np.maximum(plain - np.log(3.0), 0.0), atol=1e-12)


def test_the_frame_is_equiangular_and_holds_contexts_at_their_commonest_token() -> None:
    stats = NextTokenStatistics.from_counts(np.array([[5, 0, 2], [1, 4, 2], [0, 0, 1], [0, 1, 0]]))
    fit = SimplexFrame().fit(stats)
    tokens, contexts = fit.tokens(np.arange(4)), fit.contexts(np.arange(3))
    off = full_cosines(tokens)[~np.eye(4, dtype=bool)]
    np.testing.assert_allclose(off, -1.0 / 3.0)
    np.testing.assert_allclose(contexts[:, 0], tokens[:, 0])
    np.testing.assert_allclose(contexts[:, 1], tokens[:, 1])
    np.testing.assert_allclose(contexts[:, 2], (tokens[:, 0] + tokens[:, 1]) / 2)


def test_rivals_tie_where_every_support_occurs_once_and_is_uniform() -> None:
    known = all_subsets(6, 2)
    stats = NextTokenStatistics.from_probabilities(known.S / 2.0)
    U, s, Vt = np.linalg.svd(known.L_mm)
    run = U[:, :5] * np.sqrt(s[:5]), np.sqrt(s[:5])[:, None] * Vt[:5]
    table = rivals(stats, run, held_out=0)
    for items in ("contexts", "tokens"):
        for row in table.of(items):
            if row.rival == "L_in":  # uniform probabilities: it says nothing
                assert row.without_direction == {"contexts": 15, "tokens": 6}[items]
            else:
                assert row.similarity.value == pytest.approx(1.0, abs=1e-5)
                assert not row.behind.is_clear
        assert "a tie within the interval" in table.summary()


@pytest.mark.parametrize("name", NAMES)
def test_the_explanation_that_made_the_run_is_found(
    stats: NextTokenStatistics, prediction: FeaturePrediction, name: str
) -> None:
    (rival,) = [one for one in all_rivals(1.0, prediction) if one.name == name]
    fit = rival.fit(stats)
    W, H = fit.tokens(np.arange(V)).T, fit.contexts(np.arange(M))
    table = rivals(stats, (W, H), prediction, held_out=0, permutations=0)
    for items in ("contexts", "tokens"):
        best, second = table.of(items)[:2]
        assert best.rival == name
        assert best.similarity.value == pytest.approx(1.0, abs=1e-9)
        assert second.behind.is_clear, "all rivals differ on these statistics"
        assert second.behind.value == pytest.approx(1.0 - second.similarity.value, abs=1e-9)


@pytest.mark.parametrize("rival", all_rivals(), ids=lambda rival: rival.name)
def test_the_place_of_a_known_context_is_its_own(stats: NextTokenStatistics, rival: AbstractRival) -> None:
    fit = rival.fit(stats)
    own, placed = fit.contexts(np.arange(M)), fit.place(stats.P)
    # L_mm is known to a gap of 1e-6 and places with slack at a finite price.
    atol = 2e-3 if rival.name == "L_mm" else 1e-9
    np.testing.assert_allclose(placed, own, atol=atol * np.abs(own).max())


@pytest.mark.parametrize("rival", all_rivals()[:-1], ids=lambda rival: rival.name)
def test_tokens_and_contexts_multiply_to_the_logits(stats: NextTokenStatistics, rival: AbstractRival) -> None:
    fit = rival.fit(stats)
    L = fit.tokens(np.arange(V)).T @ fit.contexts(np.arange(M))
    assert np.abs(L.sum(axis=0)).max() < 1e-12, "logits must be centred"
    if rival.name == "P":
        np.testing.assert_allclose(L, stats.P.toarray() - 1.0 / V, atol=1e-12)
    if rival.name == "S~":
        np.testing.assert_allclose(L, stats.S.toarray() - stats.support_sizes / V, atol=1e-12)


def test_names_places_rotations_shifts_and_copies_of_the_text_change_nothing(
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


def test_noise_is_explained_by_none_and_the_prediction_beats_chance(
    stats: NextTokenStatistics, prediction: FeaturePrediction, noise: Any
) -> None:
    table = rivals(stats, noise, prediction, held_out=0.25)
    beaten = [row for row in table.rows if row.similarity.beats_chance]
    assert len(beaten) <= 2, "1 in 20 of 18 rows is expected"
    true = rivals(stats, (prediction.W, prediction.H), prediction, held_out=0.25)
    held_out = {row.rival: row for row in true.of("held-out contexts")}
    assert held_out["L_mm"].similarity.beats_chance
    assert held_out["S~"].similarity.beats_chance
    assert true.held_out == M


def test_a_context_that_every_token_may_follow_has_no_direction_in_supports(counts: np.ndarray, noise: Any) -> None:
    full = counts.copy()
    full[:, 7] = np.arange(1, V + 1)
    table = rivals(NextTokenStatistics.from_counts(full), noise, **FEW)
    silent = {row.rival: row.without_direction for row in table.of("contexts")}
    assert silent == {"ETF": 0, "PMI": 0, "L_in": 1, "P": 0, "S~": 1, "L_mm": 1}


def test_differences_are_paired() -> None:
    rng = np.random.default_rng(0)
    run = rng.normal(size=(6, 40))
    near = run + 0.7 * rng.normal(size=run.shape)
    targets = {"a": near, "b": near + 0.02 * rng.normal(size=run.shape)}
    drawn = draw(RivalNumbers("contexts", run, targets), resamples=200, permutations=0, seed=0)
    difference, low, high = drawn.difference("a similarity", "b similarity")
    alone = drawn.agreements()["a similarity"]
    assert low <= difference <= high
    assert high - low < 0.2 * (alone.high - alone.low)
    assert drawn.difference("a similarity", "a similarity") == (0.0, 0.0, 0.0)


def test_folds_are_averaged_and_never_paired() -> None:
    rng = np.random.default_rng(4)
    parts = [RivalNumbers("held-out contexts", rng.normal(size=(3, n)), {"a": rng.normal(size=(3, n))}) for n in (8, 4)]
    both = FoldedNumbers("held-out contexts", [np.arange(8), np.arange(8, 12)], parts)
    first, second = (structural_similarity(full_cosines(part.run), full_cosines(part.targets["a"])) for part in parts)
    assert both.values()["a similarity"] == pytest.approx((2 * first + second) / 3)
    order = np.array([[9, 3, 0, 1, 2, 11, 4, 5, 8, 6, 7, 10]])
    within = [np.array([6, 3, 0, 1, 2, 7, 4, 5]), np.array([2, 0, 1, 3])]
    moved = [
        structural_similarity(full_cosines(part.run[:, place]), full_cosines(part.targets["a"]))
        for part, place in zip(parts, within, strict=True)
    ]
    assert both.permuted(order)["a similarity"][0] == pytest.approx((2 * moved[0] + moved[1]) / 3)


def test_an_item_of_two_folds_is_drawn_in_both() -> None:
    rng = np.random.default_rng(6)
    run, target = rng.normal(size=(2, 3, 6))
    columns = [np.array([0, 1, 2, 3]), np.array([2, 3, 4, 5])]
    parts = [RivalNumbers("held-out contexts", run[:, c], {"a": target[:, c]}) for c in columns]
    both = FoldedNumbers("held-out contexts", columns, parts)
    draws = np.array([[1.0, 0.0, 2.0, 1.0, 1.0, 1.0]])
    alone = [part.resampled(draws[:, c])["a similarity"] for part, c in zip(parts, columns, strict=True)]
    assert both.size == 6
    np.testing.assert_allclose(both.resampled(draws)["a similarity"], np.mean(alone, axis=0))


def test_a_fold_that_a_resample_misses_does_not_count() -> None:
    rng = np.random.default_rng(5)
    parts = [RivalNumbers("held-out contexts", rng.normal(size=(3, 4)), {"a": rng.normal(size=(3, 4))}) for _ in "ab"]
    draws = np.array([[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0], [0.0] * 8])
    columns = [np.arange(4), np.arange(4, 8)]
    found = FoldedNumbers("held-out contexts", columns, parts).resampled(draws)["a similarity"]
    assert found[0] == pytest.approx(parts[0].values()["a similarity"])
    assert np.isnan(found[1])


def test_large_statistics_keep_the_leading_vectors(
    stats: NextTokenStatistics, noise: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = values(rivals(stats, noise, **FEW))
    monkeypatch.setattr(rival_fits, "MOST_ENTRIES", 0)
    table = rivals(stats, noise, **FEW)  # V - 1 of V vectors: all that a centred matrix has
    assert values(table) == pytest.approx(exact, abs=1e-5)
    assert "Of PMI, L_in, P, S~ only the leading" in table.summary()
    monkeypatch.setattr(module, "MOST_ITEMS", 10)
    few = rivals(stats, noise, **FEW)
    assert {
        f"Of {M} contexts, 10 drawn at random are judged.",
        f"Of {V} tokens, 10 drawn at random are judged.",
    } <= set(few.caveats)


def test_the_table_is_plain_data_a_frame_and_a_sentence(stats: NextTokenStatistics, prediction: Any) -> None:
    table = rivals(stats, (prediction.W, prediction.H), prediction, held_out=0.25, resamples=20, permutations=20)
    plain = json.loads(json.dumps(table.to_dict()))
    assert plain["best"]["contexts"] == table.best["contexts"].rival == "L_mm"
    assert len(plain["rows"]) == 18
    assert set(plain["rows"][0]["similarity"]) >= {"value", "low", "high", "null"}
    frame = table.to_frame()
    assert frame.loc[("tokens", "L_mm"), "similarity"] == pytest.approx(1.0)
    lines = table.summary().splitlines()
    assert lines[0].startswith("Contexts: L_mm (prediction: maximum-margin direction of the logits) explains them best")
    assert "which resampling does not undo" in lines[0]
    assert any(line.startswith("  L_in") and line.endswith("; says nothing of 1") for line in lines)
    assert any(line.startswith(f"Held out: {M} contexts in 16 turns (deals: 4)") for line in lines)


def test_equal_angles_between_all_tokens_explain_nothing(stats: NextTokenStatistics, prediction: Any) -> None:
    """A simplex frame says the same of every pair of tokens: each shuffling has its number, however large it is."""
    frame = np.eye(V) - 1.0 / V
    H = np.random.default_rng(0).normal(size=(V, M))
    table = rivals(stats, (frame, H), prediction, held_out=0.0, resamples=20, permutations=40)
    first = table.best["tokens"]
    assert (first.rival, first.is_chance) == ("ETF", True)
    assert table.to_dict()["beats_chance"]["tokens"] is False
    (line,) = [line for line in table.summary().splitlines() if line.startswith("Tokens: ")]
    assert "chance reaches as much, so that it explains nothing" in line
    assert "explains them best" not in line


def test_intervals_of_held_out_contexts_come_from_three_different_contexts_or_more() -> None:
    rng = np.random.default_rng(0)
    columns = [np.arange(4), np.arange(4, 8)]
    folds = [RivalNumbers("x", rng.normal(size=(3, 4)), {"R": rng.normal(size=(3, 4))}) for _ in columns]
    numbers = FoldedNumbers("x", columns, folds)
    # Of two items any two matrices of cosines correlate perfectly; the second fold alone can be judged here.
    draws = np.array([[4.0, 1, 0, 0, 1, 1, 1, 1]])
    found = numbers.resampled(draws)
    alone = folds[1].resampled(np.ones((1, 4)))
    assert found["R similarity"] == pytest.approx(alone["R similarity"])
    assert found["R cka"] == pytest.approx(alone["R cka"])


def test_a_turn_in_which_a_rival_tells_nothing_apart_counts_for_none() -> None:
    """SIM with a matrix of equal cosines is 1 whatever the run does: a point for nothing."""
    rng = np.random.default_rng(0)
    run, other = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    flat = RivalNumbers("x", run, {"flat": np.ones((1, 4)), "other": other})
    assert flat.values()["flat similarity"] == pytest.approx(1.0)
    varied = RivalNumbers("x", run, {"flat": rng.normal(size=(3, 4)), "other": other})
    both = FoldedNumbers("x", [np.arange(4), np.arange(4, 8)], [flat, varied])
    assert both.values() == pytest.approx(varied.values())
    orders = np.array([[1, 0, 3, 2, 4, 5, 6, 7]])
    assert both.permuted(orders)["other similarity"] == pytest.approx(varied.values()["other similarity"])
    none = FoldedNumbers("x", [np.arange(4)], [flat])
    assert np.isnan(list(none.values().values())).all()


def test_one_context_is_too_few_for_a_verdict() -> None:
    few = NextTokenStatistics.from_counts(np.array([[3], [1], [0]]))
    rng = np.random.default_rng(0)
    table = rivals(few, (rng.normal(size=(3, 2)), rng.normal(size=(2, 1))), **FEW)
    assert table.summary().startswith("Contexts: they are too few or too alike")


def test_the_proxy_alone_leaves_the_prediction_out(stats: NextTokenStatistics, noise: Any) -> None:
    table = rivals(stats, noise, predict(stats, proxy=True, components=5), **FEW)  # type: ignore[call-overload]
    assert {row.rival for row in table.rows} == set(NAMES) - {"L_mm"}
    assert "L_mm was not solved for" in table.summary()


def test_one_support_leaves_nothing_to_hold_out() -> None:
    stats = NextTokenStatistics.from_counts(np.array([[1, 2, 3], [3, 1, 1], [0, 0, 0]]))
    table = rivals(stats, (np.eye(3), np.eye(3)), resamples=0, permutations=0)
    assert table.items == ("contexts", "tokens")
    assert "No contexts were held out" in table.summary()


def test_what_does_not_fit_is_refused(stats: NextTokenStatistics, prediction: Any, noise: Any) -> None:
    W, H = noise
    with pytest.raises(ProblemError, match="m=24 and H of the run has 23"):
        rivals(stats, (W, H[:, 1:]), prediction)
    with pytest.raises(ProblemError, match="got LinearPrediction"):
        rivals(stats, noise, predict(stats, embeddings=np.eye(M)))  # type: ignore[arg-type]
    other = predict_features(NextTokenStatistics.from_counts(grouped_counts(V, 8, 3, 3, seed=6)), spread_solves=0)
    with pytest.raises(ProblemError, match="must be for these statistics"):
        rivals(stats, noise, other)
    with pytest.raises(ProblemError, match="k=0"):
        rivals(stats, noise, prediction, k=0.0)
    with pytest.raises(ProblemError, match=r"held_out=0\.9"):
        rivals(stats, noise, prediction, held_out=0.9)
    with pytest.raises(ProblemError, match="resamples=5"):
        rivals(stats, noise, prediction, resamples=5)
