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

from geometry_cases import explained_contexts, explained_counts, grouped_counts, structural_similarity
from tokengeom.comparison import similarity_numbers
from tokengeom.comparison.explained import RESOLUTION
from tokengeom.comparison.explanations.base import (
    AbstractRival,
    FitInputs,
    explanation_classes,
)
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.rivals import rivals
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, cosines
from tokengeom.core.progress import AbstractProgress, AbstractStage
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import predict_linear
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import predict_proxy
from tokengeom.training.objective import SoftLabels
from tokengeom.training.run import Run
from tokengeom.training.train import train
from tokengeom.verification.verify import check_result
from tokengeom_studies.common.known_patterns import all_subsets

V, M, D = 12, 24, 9
NAMES = tuple(kind.name for kind in explanation_classes())
QUICK = tuple(kind.name for kind in explanation_classes() if kind.quick)
SOLVED = tuple(name for name in NAMES if name not in QUICK)
FEW: dict[str, Any] = {"permutations": 0}
FAST: dict[str, Any] = {**FEW, "at_loss": False}


@pytest.fixture(scope="module")
def stats() -> NextTokenStatistics:
    return NextTokenStatistics.from_counts(explained_counts(), explained_contexts())


@pytest.fixture(scope="module")
def prediction(stats: NextTokenStatistics) -> FeaturePrediction:
    return predict(stats, spread_solves=0)


@pytest.fixture(scope="module")
def noise() -> tuple[Float, Float]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(V, D)), rng.normal(size=(D, M))


@pytest.fixture(scope="module")
def runs(stats: NextTokenStatistics) -> list[Run]:
    rate: dict[str, Any] = {"optimizer": "adamw", "learning_rate": 1e-2, "rate_schedule": "constant"}
    return [train(stats, "ufm", dim=D, steps=60, seed=seed, **rate) for seed in (0, 1)]


@pytest.fixture(scope="module")
def table(stats: NextTokenStatistics, runs: list[Run], prediction: FeaturePrediction) -> Rivals:
    return rivals(stats, runs, prediction, permutations=40)


def value(table: Rivals, items: str, rival: str, kind: str = "agreement") -> float:
    (row,) = [row for row in table.of(items) if row.rival == rival]
    return float(getattr(row, kind).value)


def values(table: Rivals) -> dict[tuple[str, str, str], float]:
    kinds = ("agreement", "similarity")
    return {(row.items, row.rival, kind): getattr(row, kind).value for row in table.rows for kind in kinds}


def geometry_of(kind: type[AbstractRival], stats: NextTokenStatistics) -> tuple[Float, Float]:
    """W and H with the geometry of an explanation in the middle of its candidates."""
    candidates = kind.candidates(FitInputs(loss_gap=0.05, tolerance=1e-4, dim=D).on(stats))
    fit = candidates[len(candidates) // 2].fit(stats)
    W, H = fit.tokens(np.arange(stats.V)).T, fit.contexts(np.arange(stats.m))
    if (
        W.shape[1] != H.shape[0]
    ):  # the same Gram matrices in a shared dimension, H turned so that its logits fit the text
        d = max(W.shape[1], H.shape[0])
        W, H = np.pad(W, ((0, 0), (0, d - W.shape[1]))), np.pad(H, ((0, d - H.shape[0]), (0, 0)))
        U, _, Vt = np.linalg.svd(W.T @ (stats.P * stats.pi) @ H.T)
        H = U @ Vt @ H
    # Logits of a size at which the loss is below that of a uniform guess; the geometry is the same.
    return (W, H * 4.0 / np.abs(W @ H).max()) if kind.quick else (W, H)


@pytest.mark.parametrize(
    "kind", [kind for kind in explanation_classes() if kind.name not in ("UFM", "tied")], ids=lambda kind: kind.name
)
def test_the_explanation_that_made_the_run_is_found(
    stats: NextTokenStatistics, prediction: FeaturePrediction, kind: type[AbstractRival]
) -> None:
    W, H = geometry_of(kind, stats)
    rng = np.random.default_rng(0)
    W, H = (x + 1e-3 * np.abs(x).max() * rng.normal(size=x.shape) for x in (W, H))
    found = rivals(stats, (W, H), prediction, **FEW)
    assert {row.rival for row in found.rows} == set(NAMES)
    for items in ("contexts", "tokens"):
        if items == "tokens" and kind.name == "ETF":
            continue  # equal angles between all tokens: nothing varies
        (made,) = [row for row in found.of(items) if row.rival == kind.name]
        # L_in has no direction for a context with one next token, and noise has one.
        assert made.agreement.value > (0.9 if kind.name == "L_in" else 0.99)
        assert made.behind.value < RESOLUTION
        # Random ones may reach 1 by chance when their noise is divided out, and free parameters find what they imitate.
        near = {row.rival for row in found.of(items) if row.behind.value < RESOLUTION}
        assert near <= {kind.name, "UFM", "tied", "log-counts", "PMI"}


def test_numbers_are_correlations_over_pairs_of_different_supports(
    stats: NextTokenStatistics, noise: tuple[Float, Float]
) -> None:
    W, H = noise
    found = rivals(stats, noise, **FAST)
    S = stats.S.toarray() - stats.support_sizes / V
    apart = stats.groups.label[:, None] != stats.groups.label[None, :]
    mine, theirs = cosines(H), cosines(S)
    assert value(found, "contexts", "cos S~") == pytest.approx(np.corrcoef(mine[apart], theirs[apart])[0, 1])
    assert value(found, "contexts", "cos S~", "similarity") == pytest.approx(structural_similarity(mine, theirs))
    different = ~np.eye(V, dtype=bool)
    mine, theirs = cosines((W - W.mean(axis=0)).T), cosines(S.T)
    assert value(found, "tokens", "cos S~") == pytest.approx(np.corrcoef(mine[different], theirs[different])[0, 1])


def test_rivals_tie_where_every_support_occurs_once_and_is_uniform() -> None:
    known = all_subsets(6, 2)
    stats = NextTokenStatistics.from_probabilities(known.S / 2.0)
    U, s, Vt = np.linalg.svd(known.L_mm)
    run = U[:, :5] * np.sqrt(s[:5]), np.sqrt(s[:5])[:, None] * Vt[:5]
    found = rivals(stats, run, permutations=0)
    assert "log-counts" not in {row.rival for row in found.rows}, "there are no counts"
    for row in found.of("contexts"):
        if row.rival == "L_in":  # uniform probabilities: it is 0
            assert row.without_direction == 15
        elif row.rival == "degree only":
            assert np.isnan(row.agreement.value), "all degrees are equal"
        elif row.rival != "UFM":
            assert row.agreement.value == pytest.approx(1.0, abs=1e-3)
            assert not row.behind.is_clear
    for row in found.of("tokens"):
        assert np.isnan(row.agreement.value) or row.rival == "UFM", "an equiangular frame leaves nothing to correlate"


def test_every_kind_of_items_has_every_explanation_with_floors_and_what_is_reproducible(
    table: Rivals, runs: list[Run]
) -> None:
    for items in ("contexts", "supports", "tokens"):
        assert {row.rival for row in table.of(items)} == set(NAMES) - {"tied"}, "the run does not read tokens"
        known = [row for row in table.of(items) if np.isfinite(row.agreement.value)]
        assert np.isfinite([(row.agreement.reproducible, row.agreement.explained) for row in known]).all()
        assert {row.rival for row in known if row.agreement.reliability != 1.0} == {"UFM"}
        assert np.isfinite([row.agreement.untrained for row in known]).all(), "the run knows its start"
        assert np.isfinite([(row.agreement.null, row.agreement.gaussian) for row in known]).all()
    assert table.runs == 2
    assert table.loss_gap == pytest.approx(runs[0].loss_gap, rel=1e-6)
    assert False not in check_result(table).values()


def test_what_is_reproducible_is_the_agreement_of_two_trainings(
    table: Rivals, stats: NextTokenStatistics, runs: list[Run]
) -> None:
    apart = stats.groups.label[:, None] != stats.groups.label[None, :]
    between = np.corrcoef(cosines(runs[0].H)[apart], cosines(runs[1].H)[apart])[0, 1]
    assert table.of("contexts")[0].agreement.reproducible == pytest.approx(between)
    assert runs[0].start is not None
    P = stats.P.toarray() - 1.0 / V
    untrained = np.corrcoef(cosines(runs[0].start.H)[apart], cosines(P)[apart])[0, 1]
    row = next(row for row in table.of("contexts") if row.rival == "cos P")
    assert row.agreement.untrained == pytest.approx(untrained)


def test_the_prediction_is_at_the_loss_in_the_norm_of_the_optimizer(
    table: Rivals, stats: NextTokenStatistics, runs: list[Run], prediction: FeaturePrediction
) -> None:
    assert table.prediction == "at loss, gamma_2"
    (mine,) = [row.agreement.fair for row in table.of("contexts") if row.rival == "at loss, gamma_2"]
    for row in table.of("contexts"):
        assert row.ahead.value == pytest.approx(row.agreement.fair - mine, nan_ok=True)
    named = replace(runs[0], settings={**runs[0].settings, "optimizer": {"name": "gd"}})
    assert rivals(stats, named, prediction, **FEW).prediction == "at loss, nuclear"
    unknown = rivals(stats, (runs[0].W, runs[0].H), prediction, **FEW)
    assert unknown.prediction == "at loss, nuclear", "there are too few supports to choose a norm"
    assert rivals(stats, runs[0], prediction, **FAST).prediction == "L_mm"
    assert rivals(stats, runs[0], explanations="pmi", **FAST).prediction is None


@pytest.mark.parametrize("steps", [60, 150])
def test_unconstrained_features_are_explained_by_others_that_are_trained_alike(steps: int) -> None:
    stats = NextTokenStatistics.from_counts(grouped_counts(16, 30, 2, 3, seed=0))
    rate: dict[str, Any] = {"optimizer": "adamw", "learning_rate": 1e-2, "rate_schedule": "constant"}
    trainings = [train(stats, "ufm", dim=32, steps=steps, seed=seed, **rate) for seed in range(3)]
    found = rivals(stats, trainings, explanations="ufm", **FEW)
    for items in ("supports", "tokens"):
        (row,) = found.of(items)
        low, high = row.agreement.explained_interval
        assert row.agreement.explained > 0.9
        assert low <= 1.0 <= high
        assert 0.5 < row.agreement.reliability < 1.0
        assert 0.0 < row.agreement.seed_error < 0.1
        assert row.agreement.mean < row.agreement.fair < 1.0
    assert row.parameters == "random start, mean of 5"


def test_predictions_that_were_made_before_are_used(
    stats: NextTokenStatistics, runs: list[Run], prediction: FeaturePrediction, table: Rivals
) -> None:
    at = [prediction.at(runs[0].loss_gap, norm=norm, tolerance=1e-3) for norm in ("nuclear", "gamma2")]
    chosen = {"explanations": ("at_loss_nuclear", "at_loss_gamma2", "maximum_margin"), **FEW}
    found = rivals(stats, runs[0], prediction, at=at, **chosen)
    for one, name in zip(at, ("at loss, nuclear", "at loss, gamma_2"), strict=True):
        apart = stats.groups.label[:, None] != stats.groups.label[None, :]
        expected = np.corrcoef(cosines(runs[0].H)[apart], cosines(one.H)[apart])[0, 1]
        assert value(found, "contexts", name) == pytest.approx(expected)
    alone = rivals(stats, runs[0], at[0], explanations="at_loss_nuclear", **FEW)
    assert values(rivals(stats, runs[0], at=at[0], explanations="at_loss_nuclear", **FAST)) == values(alone)
    assert values(alone).items() <= values(found).items()
    other = NextTokenStatistics.from_counts(explained_counts() + 1, explained_contexts())
    with pytest.raises(ProblemError, match="statistics and the prediction"):
        rivals(other, (runs[0].W, runs[0].H), at=at)


def test_order_rotation_shift_scale_and_copies_of_the_text_change_nothing(
    stats: NextTokenStatistics, noise: tuple[Float, Float]
) -> None:
    W, H = noise
    counts, ids = explained_counts(), explained_contexts()
    rng = np.random.default_rng(2)
    tokens, contexts = rng.permutation(V), rng.permutation(M)
    R = np.linalg.qr(rng.normal(size=(D, D)))[0]
    expected = values(rivals(stats, noise, **FAST))
    same = [
        (counts[tokens], ids, (W[tokens], H)),
        (counts[:, contexts], ids[contexts], (W, H[:, contexts])),
        (counts, ids + 5, (3.0 * W @ R + rng.normal(size=D), R.T @ H / 5.0)),
    ]
    for other, named, run in same:
        found = values(rivals(NextTokenStatistics.from_counts(other, named), run, **FAST))
        for name in expected:  # free parameters are chosen on random folds, which follow the order of tokens
            if name[0] != "tokens" or name[1] not in ("log-counts", "PMI", "Kneser-Ney"):
                assert found[name] == pytest.approx(expected[name], abs=1e-4, nan_ok=True)  # L_mm is solved to a gap


def test_nothing_explains_noise_and_a_trained_run_is_explained(
    stats: NextTokenStatistics, prediction: FeaturePrediction, noise: tuple[Float, Float], table: Rivals
) -> None:
    found = rivals(stats, noise, prediction, at_loss=False)
    above = [row for row in found.rows if row.agreement.above_floor]
    assert len(above) <= 2, "few of 33 rows are expected by chance"
    for items in ("contexts", "tokens"):
        assert table.of(items)[0].agreement.above_floor


def test_contexts_with_full_support_are_left_out_with_a_sentence(noise: tuple[Float, Float]) -> None:
    counts = explained_counts()
    counts[:, 7] = np.arange(1, V + 1)
    found = rivals(NextTokenStatistics.from_counts(counts), noise, **FAST)
    said = "1 of 24 contexts have full support: supports give them no direction, and they are left out."
    assert said in found.limitations
    missing = {row.rival: row.without_direction for row in found.of("contexts")}
    assert (missing["S~"], missing["L_mm"], missing["P"]) == (0, 0, 0)
    assert missing["L_in"] == 1, "the context with a single next token"


def test_statistics_in_which_there_is_nothing_to_compare_give_sentences() -> None:
    rng = np.random.default_rng(0)
    full = NextTokenStatistics.from_counts(rng.integers(1, 9, size=(4, 6)))
    found = rivals(full, (rng.normal(size=(4, 3)), rng.normal(size=(3, 6))), permutations=20)
    assert "Contexts: too few or too similar to rank explanations." in found.summary(), "one support, no pairs"
    assert "6 of 6 contexts have full support: supports give them no direction." in found.limitations
    one_hot = NextTokenStatistics.from_counts(np.repeat(np.eye(5, dtype=np.int64), 3, axis=1))
    found = rivals(one_hot, (rng.normal(size=(5, 3)), rng.normal(size=(3, 15))), permutations=20)
    assert set(found.items) >= {"contexts", "tokens"}
    single = NextTokenStatistics.from_counts(np.array([[3], [1], [0]]))
    found = rivals(single, (rng.normal(size=(3, 2)), rng.normal(size=(2, 1))), permutations=20)
    assert found.summary().startswith("Contexts: too few or too similar")
    assert False not in check_result(found).values()


def test_one_dimension_and_a_bias_are_enough(stats: NextTokenStatistics, prediction: FeaturePrediction) -> None:
    rng = np.random.default_rng(0)
    bias = rng.normal(size=V)
    narrow = SimpleNamespace(W=rng.normal(size=(V, 1)), H=rng.normal(size=(1, M)), bias=bias)
    gap = SoftLabels.from_statistics(stats).loss_gap(narrow.W @ narrow.H + bias[:, None])
    found = rivals(stats, narrow, prediction, permutations=20)
    largest = np.log(V) - stats.entropy
    if gap < largest:
        assert found.loss_gap == pytest.approx(gap)
    else:
        assert any("is not between 0 and that of a uniform guess" in line for line in found.limitations)


def test_a_run_worse_than_a_guess_has_no_explanation_at_its_loss(stats: NextTokenStatistics) -> None:
    rng = np.random.default_rng(0)
    found = rivals(stats, (30 * rng.normal(size=(V, D)), rng.normal(size=(D, M))), **FEW)
    assert {row.rival for row in found.rows} == {*QUICK, "L_mm"}
    assert any("is not between 0 and that of a uniform guess, 1.5" in line for line in found.limitations)
    given = rivals(stats, (30 * rng.normal(size=(V, D)), rng.normal(size=(D, M))), loss_gap=0.3, **FEW)
    assert {row.rival for row in given.rows} == set(NAMES), "the loss that is given counts"


def test_many_items_are_sampled_and_large_statistics_leave_solvers_out(
    stats: NextTokenStatistics, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(similarity_numbers, "MOST_ITEMS", 10)
    monkeypatch.setattr("tokengeom.comparison.similarity_numbers.MOST_ITEMS", 10)
    few = rivals(stats, runs[0], permutations=20)
    said = "\n".join(few.limitations)
    assert f"10 of {M} contexts, drawn at random, are compared." in said
    assert f"10 of {V} tokens, drawn at random, are compared." in said
    monkeypatch.setattr("tokengeom.comparison.target.AT_LOSS_ENTRIES", dict.fromkeys(("nuclear", "gamma2"), 0))
    large = rivals(stats, runs[0], **FEW)
    assert {row.rival for row in large.rows} == {*QUICK, "L_mm"}
    assert "contexts would take minutes. Ask for it with at_loss=True" in "\n".join(large.limitations)
    assert {row.rival for row in rivals(stats, runs[0], at_loss=True, **FEW).rows} == set(NAMES) - {"tied"}


def test_an_explanation_that_cannot_be_solved_is_left_out_with_a_sentence(
    stats: NextTokenStatistics, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokengeom.comparison.explanations import at_loss_nuclear

    def fails(*given: Any, **settings: Any) -> object:
        if "loss_gap" in settings:
            raise ProblemError("The search ended early.")
        return predict(*given, **settings)

    monkeypatch.setattr(at_loss_nuclear, "predict", fails)
    found = rivals(stats, runs[0], explanations=("at_loss_gamma2", "proxy", "maximum_margin"), **FEW)
    assert {row.rival for row in found.rows} == {"S~", "L_mm"}
    assert found.prediction == "L_mm"
    assert "at loss, gamma_2 was left out. The search ended early." in found.limitations
    with pytest.raises(ProblemError, match=r"leaves none here\. at loss, nuclear was left out"):
        rivals(stats, runs[0], explanations="at_loss_nuclear", **FEW)


def test_a_prediction_that_rivals_make_and_can_hardly_prove_is_left_out(
    stats: NextTokenStatistics, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokengeom.comparison.explanations import at_loss_nuclear

    def hardly(*given: Any, **settings: Any) -> LossPrediction:
        found: LossPrediction = predict(*given, **settings)
        return replace(found, certificate=replace(found.certificate, bound=0.9 * found.certificate.bound))

    monkeypatch.setattr(at_loss_nuclear, "predict", hardly)
    found = rivals(stats, runs[0], explanations=("at_loss_nuclear", "proxy"), permutations=0)
    assert {row.rival for row in found.rows} == {"S~"}
    assert any("at loss, nuclear was left out. Its norm is proven only" in said for said in found.limitations)


def test_a_prediction_of_the_proxy_leaves_out_what_needs_a_solver(
    stats: NextTokenStatistics, noise: tuple[Float, Float]
) -> None:
    found = rivals(stats, noise, predict_proxy(stats, components=5), **FEW)
    assert {row.rival for row in found.rows} == set(QUICK)
    assert found.prediction == "S~"
    for left_out in ("L_mm, at loss, nuclear, at loss, gamma_2", "UFM, tied"):
        assert f"Left out: {left_out}. The given prediction is of the proxy alone." in found.limitations


def test_a_loaded_prediction_and_factors_without_a_history_give_the_same_table(
    stats: NextTokenStatistics, prediction: FeaturePrediction, runs: list[Run], tmp_path: Path
) -> None:
    stats.save(tmp_path / "stats")
    prediction.save(tmp_path / "prediction")
    for place, run in enumerate(runs):
        run.save(tmp_path / f"run{place}")
    paths = [tmp_path / "run0", tmp_path / "run1"]
    chosen = {"explanations": ("proxy", "maximum_margin", "log_counts"), **FEW}
    expected = values(rivals(stats, runs, prediction, **chosen))
    assert values(rivals(tmp_path / "stats", paths, tmp_path / "prediction", **chosen)) == expected
    factors = [Factors(run.W, run.H) for run in runs]
    assert values(rivals(stats, factors, prediction, **chosen)) == expected
    with pytest.raises(ProblemError, match="got Run"):
        rivals(stats, runs[0], tmp_path / "run0")


def test_the_table_as_plain_data_and_sentences(table: Rivals) -> None:
    plain = json.loads(json.dumps(table.to_dict()))
    assert set(plain["best"]) == {"contexts", "supports", "tokens"}
    assert set(plain["rivals"]) == set(NAMES) - {"tied"}
    for one in plain["rivals"].values():
        assert {"value", "low", "high"} <= set(one["contexts"]) & set(one["tokens"])
    lines = table.summary().splitlines()
    assert lines[0].startswith(f"Contexts: {table.best['contexts'].rival} (")
    assert any(line.startswith("  L_in") and "; no direction for" in line for line in lines)
    assert any(line.startswith("PMI: ") and "uses probabilities; free parameters: k=" in line for line in lines)


def test_bad_input_is_refused(
    stats: NextTokenStatistics, prediction: FeaturePrediction, noise: tuple[Float, Float]
) -> None:
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
    with pytest.raises(InputError, match="rivals has no setting 'held_out'"):
        rivals(stats, noise, prediction, held_out=0.2)  # type: ignore[call-arg]
    with pytest.raises(ProblemError, match="permutations=5"):
        rivals(stats, noise, prediction, permutations=5)
    with pytest.raises(ProblemError, match="At least one explanation is needed"):
        rivals(stats, noise, prediction, explanations=())
    with pytest.raises(InputError, match="An explanation must be one of"):
        rivals(stats, noise, prediction, explanations="gravity")


def test_progress_counts_every_fit(stats: NextTokenStatistics, noise: tuple[Float, Float]) -> None:
    shown = CountingProgress()
    rivals(stats, noise, progress=shown, explanations=("pmi", "proxy"), permutations=0)
    assert shown.done == shown.total == 2


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
