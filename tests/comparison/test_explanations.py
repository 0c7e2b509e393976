"""Explanations: each follows its formula, and places a context that it knows where it is."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from geometry_cases import explained_contexts, explained_counts, kneser_ney
from tokengeom.comparison import explanations
from tokengeom.comparison.explanations import base
from tokengeom.comparison.explanations.at_loss_gamma2 import AtLossGamma2
from tokengeom.comparison.explanations.at_loss_nuclear import AtLossNuclear
from tokengeom.comparison.explanations.base import (
    AbstractFit,
    AbstractRival,
    ContextStatistics,
    FactorFit,
    FitInputs,
    explanation_classes,
    left_singular_vectors,
    most_frequent,
)
from tokengeom.comparison.explanations.degree_only import DegreeOnly
from tokengeom.comparison.explanations.finite_part import FinitePart
from tokengeom.comparison.explanations.kneser_ney import KneserNey
from tokengeom.comparison.explanations.log_counts import LogCounts
from tokengeom.comparison.explanations.maximum_margin import MaximumMargin
from tokengeom.comparison.explanations.one_hot_labels import OneHotLabels
from tokengeom.comparison.explanations.pmi import ShiftedPMI
from tokengeom.comparison.explanations.probabilities import CentredProbabilities
from tokengeom.comparison.explanations.probability_cosines import ProbabilityCosines
from tokengeom.comparison.explanations.proxy import Proxy
from tokengeom.comparison.explanations.simplex_frame import SimplexFrame
from tokengeom.comparison.explanations.support_cosines import SupportCosines
from tokengeom.comparison.explanations.tied import TiedFeatures
from tokengeom.comparison.explanations.ufm import SEEDS, TrainedFeatures
from tokengeom.comparison.explanations.word2vec import Word2Vec
from tokengeom.comparison.rivals import rivals
from tokengeom.comparison.similarity_numbers import Geometry, full_cosines
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, centre_columns, cosines
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict
from tokengeom.training.objective import SoftLabels
from tokengeom.training.train import train

V, M = 12, 24
GAP = 0.05
KNOWN = FitInputs(loss_gap=GAP, tolerance=1e-4, dim=V)
QUICK: tuple[AbstractRival, ...] = (
    DegreeOnly(), SimplexFrame(), OneHotLabels(), SupportCosines(), Proxy(), ProbabilityCosines(),
    CentredProbabilities(), FinitePart(), LogCounts(0.1), LogCounts(1.0, 1.0), ShiftedPMI(), ShiftedPMI(0.3, 1.0),
    Word2Vec(), KneserNey(0.3), KneserNey(0.7, 1.0),
)  # fmt: skip
ALL = (
    *QUICK, TrainedFeatures(KNOWN), TiedFeatures(KNOWN), MaximumMargin(), AtLossNuclear(KNOWN), AtLossGamma2(KNOWN)
)  # fmt: skip
EVERY_TOKEN, EVERY_CONTEXT = np.arange(V), np.arange(M)


def label(rival: AbstractRival) -> str:
    return f"{rival.name} {rival.chosen}"


@pytest.fixture(scope="module")
def counts() -> np.ndarray:
    return explained_counts()


@pytest.fixture(scope="module")
def stats(counts: np.ndarray) -> NextTokenStatistics:
    return NextTokenStatistics.from_counts(counts, explained_contexts())


@pytest.fixture(scope="module")
def fits(stats: NextTokenStatistics) -> dict[str, AbstractFit]:
    return {label(rival): rival.fit(stats) for rival in ALL}


def dense_logits(rival: AbstractRival, counts: np.ndarray, kept: np.ndarray = EVERY_CONTEXT) -> Float:
    """The matrix of a rule by its formula, pair by pair, centred; suffixes are those of the kept contexts."""
    P, n = counts / counts.sum(axis=0), counts.sum()
    if isinstance(rival, KneserNey):
        return centre_columns(np.log(kneser_ney(counts, explained_contexts(), rival.discount, kept)))
    M_ = np.zeros(counts.shape)
    for z in range(V):
        for j in range(M):
            joint, alone = counts[z, j] / n, counts[z].sum() * counts[:, j].sum() / n**2
            if isinstance(rival, LogCounts):
                M_[z, j] = np.log((counts[z, j] + rival.alpha) / (counts[:, j].sum() + V * rival.alpha))
            elif isinstance(rival, ShiftedPMI):
                M_[z, j] = max(np.log(joint / alone) - np.log(rival.k), 0.0) if joint else 0.0
            elif isinstance(rival, Word2Vec):
                M_[z, j] = (joint - alone) / (0.5 * (joint + alone))
            elif isinstance(rival, OneHotLabels):
                M_[z, j] = (P[z, j] == P[:, j].max()) / np.sum(P[:, j] == P[:, j].max())
            elif isinstance(rival, Proxy | SupportCosines):
                M_[z, j] = counts[z, j] > 0
            elif isinstance(rival, FinitePart):
                support = P[:, j] > 0
                M_[z, j] = np.log(P[z, j]) - np.log(P[support, j]).mean() if P[z, j] else 0.0
            else:
                assert isinstance(rival, CentredProbabilities | ProbabilityCosines)
                M_[z, j] = P[z, j]
    return np.asarray(M_ - M_.mean(axis=0))


def test_a_token_with_the_same_logit_in_every_context_has_no_direction() -> None:
    """The last two tokens are the only ones after their contexts; rounding would give them a direction."""
    counts = np.zeros((12, 14), dtype=np.int64)
    counts[:10, :10] = np.random.default_rng(0).integers(0, 4, (10, 10)) + np.eye(10, dtype=np.int64)
    counts[[10, 10, 11, 11], [10, 11, 12, 13]] = 3
    tokens = FinitePart().fit(NextTokenStatistics.from_counts(counts)).tokens(np.arange(12))
    assert tokens.any(axis=0).tolist() == [True] * 10 + [False] * 2


def test_every_file_is_found_simplest_explanation_first() -> None:
    assert {type(one) for one in ALL} == set(explanation_classes())
    assert [one.name for one in explanation_classes()] == [
        "degree only", "ETF", "SELI", "cos S~", "S~", "cos P", "P", "L_in", "log-counts", "Kneser-Ney", "PMI",
        "word2vec", "UFM", "tied", "L_mm", "at loss, nuclear", "at loss, gamma_2",
    ]  # fmt: skip
    for kind in explanation_classes():
        assert kind.uses, "what it is made from"
        assert kind.ours == (kind.name in ("L_mm", "at loss, nuclear", "at loss, gamma_2"))
        assert kind.quick == (kind.name not in ("UFM", "tied", "L_mm", "at loss, nuclear", "at loss, gamma_2"))


def test_explanations_are_chosen_by_file_name() -> None:
    assert explanation_classes(("proxy", "pmi", "proxy")) == [Proxy, ShiftedPMI]
    with pytest.raises(InputError, match="Did you mean 'proxy'"):
        explanation_classes(("proxi",))


def test_free_parameters_are_tried_and_explanations_that_cannot_be_made_are_left_out() -> None:
    assert {one.chosen for one in ShiftedPMI.candidates(FitInputs())} == {
        f"k={k:g}, power {power:g}" for k in ShiftedPMI.grid for power in (0.5, 1.0)
    }
    assert len(LogCounts.candidates(FitInputs())) == 2 * len(LogCounts.grid)
    assert LogCounts.candidates(FitInputs(has_counts=False)) == []
    for kind in (AtLossNuclear, AtLossGamma2, TrainedFeatures):
        assert kind.candidates(FitInputs()) == [], "the loss is not known"
        assert kind.candidates(FitInputs(loss_gap=GAP, proxy_only=True)) == []
        assert len(kind.candidates(KNOWN)) == 1
    assert MaximumMargin.candidates(FitInputs(proxy_only=True)) == []


NEW_FILE = """
import numpy as np
from tokengeom.comparison.explanations.base import AbstractLogitRival


class Popularity(AbstractLogitRival):
    name = "p(z)"
    meaning = "how frequent each token is"
    order = 2.5
    uses = "frequencies of tokens"

    def values(self, contexts, background):
        return np.asarray(background[contexts.P.indices])
"""


def test_a_new_file_is_a_new_explanation(
    stats: NextTokenStatistics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "popularity.py").write_text(NEW_FILE)
    monkeypatch.setattr(explanations, "__path__", [*explanations.__path__, str(tmp_path)])
    rng = np.random.default_rng(0)
    run = rng.normal(size=(V, 5)), rng.normal(size=(5, M))
    try:
        assert [one.name for one in explanation_classes()][3] == "p(z)"
        chosen = ("popularity", "proxy")
        table = rivals(stats, run, explanations=chosen, permutations=0)
        items = {row.items for row in table.rows if row.rival == "p(z)"}
        assert items == {"contexts", "supports", "tokens"}
        alone = rivals(stats, run, explanations="popularity", permutations=0)
        assert [row.rival for row in alone.rows] == ["p(z)"] * 3
        assert "how frequent each token is; uses frequencies of tokens" in alone.summary()
    finally:
        sys.modules.pop("tokengeom.comparison.explanations.popularity", None)


@pytest.mark.parametrize("rival", QUICK[2:], ids=label)
def test_tokens_and_contexts_have_the_gram_matrices_of_the_formula(
    rival: AbstractRival, fits: dict[str, AbstractFit], counts: np.ndarray
) -> None:
    L, fit = dense_logits(rival, counts), fits[label(rival)]
    tokens, contexts = fit.tokens(EVERY_TOKEN), fit.contexts(EVERY_CONTEXT)
    power = getattr(rival, "power", 0.5)
    U, s, Vt = np.linalg.svd(L, full_matrices=False)
    np.testing.assert_allclose(tokens.T @ tokens, (U * s ** (2 * power)) @ U.T, atol=1e-8)
    np.testing.assert_allclose(contexts.T @ contexts, (Vt.T * s ** (2 * power)) @ Vt, atol=1e-8)
    assert np.abs(tokens.sum(axis=1)).max() < 1e-8, "the mean token is removed"
    if power == 0.5:
        np.testing.assert_allclose(tokens.T @ contexts, L, atol=1e-8)


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (6, 6)])
def test_singular_vectors_from_the_smaller_gram_matrix(shape: tuple[int, int]) -> None:
    A = np.random.default_rng(0).normal(size=shape)
    A[:, -1] = A[:, 0]
    U, s = left_singular_vectors(A)
    expected = np.linalg.svd(A, compute_uv=False)
    np.testing.assert_allclose(s, expected, atol=1e-12)
    kept = s > 1e-9
    np.testing.assert_allclose(U[:, kept].T @ U[:, kept], np.eye(kept.sum()), atol=1e-10)
    np.testing.assert_allclose((U[:, kept] * s[kept] ** 2) @ U[:, kept].T, A @ A.T, atol=1e-10)


def test_pmi_sums_to_the_mutual_information(stats: NextTokenStatistics, counts: np.ndarray) -> None:
    k = 1e-6  # a shift so low that no pair is cut off
    pmi = ShiftedPMI(k).values(ContextStatistics.of(stats), stats.P @ stats.pi) + np.log(k)
    weight = np.repeat(stats.pi, stats.support_sizes) * stats.P.data
    assert weight @ pmi == pytest.approx(mutual_info_score(None, None, contingency=counts), rel=1e-10)


def test_a_larger_shift_leaves_fewer_pairs(stats: NextTokenStatistics) -> None:
    background = stats.P @ stats.pi
    plain, shifted = (ShiftedPMI(k).values(ContextStatistics.of(stats), background) for k in (1.0, 3.0))
    np.testing.assert_allclose(shifted, np.maximum(plain - np.log(3.0), 0.0), atol=1e-12)


def test_much_smoothing_makes_log_counts_counts_and_little_makes_them_supports(
    stats: NextTokenStatistics, counts: np.ndarray
) -> None:
    centred = [x - x.mean(axis=0) for x in (counts.astype(np.float64), (counts > 0).astype(np.float64))]
    much, little = (LogCounts(alpha, 1.0).fit(stats).contexts(EVERY_CONTEXT) for alpha in (1e7, 1e-200))
    np.testing.assert_allclose(cosines(much), cosines(centred[0]), atol=1e-5)
    np.testing.assert_allclose(cosines(little), cosines(centred[1]), atol=5e-3)


@pytest.mark.parametrize("make", [lambda: LogCounts(0.0), lambda: ShiftedPMI(0.0), lambda: LogCounts(float("nan"))])
def test_free_parameters_must_be_positive(make: object) -> None:
    with pytest.raises(ProblemError, match="needs a finite"):
        make()  # type: ignore[operator]


def test_the_frame_is_equiangular_and_contexts_are_at_their_most_frequent_token() -> None:
    stats = NextTokenStatistics.from_counts(np.array([[5, 0, 2], [1, 4, 2], [0, 0, 1], [0, 1, 0]]))
    np.testing.assert_allclose(most_frequent(stats.P), [1, 0, 1, 0, 0.5, 0.5, 0])
    fit = SimplexFrame().fit(stats)
    tokens, contexts = fit.tokens(np.arange(4)), fit.contexts(np.arange(3))
    off = full_cosines(tokens)[~np.eye(4, dtype=bool)]
    np.testing.assert_allclose(off, -1.0 / 3.0)
    np.testing.assert_allclose(contexts[:, 0], tokens[:, 0])
    np.testing.assert_allclose(contexts[:, 1], tokens[:, 1])
    np.testing.assert_allclose(contexts[:, 2], (tokens[:, 0] + tokens[:, 1]) / 2)


def test_degrees_alone_give_the_mean_gram_matrices_of_random_supports() -> None:
    counts = explained_counts()
    counts[:, :3] += np.arange(V)[:, None] % np.array([2, 3, 4])  # supports of several sizes
    counts[:11, 5] += 1
    counts[3] += 1  # a token that follows every context: some probabilities are cut off at 1
    a, k = (counts > 0).sum(axis=1), (counts > 0).sum(axis=0)
    Q = np.minimum(np.outer(a, k) / a.sum(), 1.0)
    assert (Q == 1.0).any()
    rng, draws = np.random.default_rng(0), 20_000
    S = (rng.random((draws, V, M)) < Q).astype(np.float64)
    S -= S.mean(axis=1, keepdims=True)
    fit = DegreeOnly().fit(NextTokenStatistics.from_counts(counts))
    tokens, contexts = fit.tokens(EVERY_TOKEN), fit.contexts(EVERY_CONTEXT)
    for vectors, grams in ((tokens, S @ S.transpose(0, 2, 1)), (contexts, S.transpose(0, 2, 1) @ S)):
        error = grams.std(axis=0) / np.sqrt(draws)
        assert np.abs((vectors.T @ vectors - grams.mean(axis=0)) / error).max() < 5.0
    assert np.abs(tokens.sum(axis=1)).max() < 1e-12, "the mean token is removed"
    some = np.array([7, 2, 5])
    np.testing.assert_allclose(fit.tokens(some).T @ fit.tokens(some), (tokens.T @ tokens)[some][:, some], atol=1e-12)


def test_degrees_alone_say_nothing_where_all_are_equal() -> None:
    fit = DegreeOnly().fit(
        NextTokenStatistics.from_counts(np.eye(5, dtype=np.int64) + np.eye(5, k=1) + np.eye(5, k=-4))
    )
    assert np.ptp(cosines(fit.tokens(np.arange(5)))[~np.eye(5, dtype=bool)]) < 1e-12
    np.testing.assert_allclose(cosines(fit.contexts(np.arange(5))), np.eye(5), atol=1e-12)


def test_with_one_hot_labels_and_equal_classes_seli_is_neural_collapse() -> None:
    counts = np.repeat(np.eye(6, dtype=np.int64), 4, axis=1)
    stats = NextTokenStatistics.from_counts(counts)
    seli, frame = OneHotLabels().fit(stats), SimplexFrame().fit(stats)
    np.testing.assert_allclose(cosines(seli.tokens(np.arange(6))), cosines(frame.tokens(np.arange(6))), atol=1e-10)
    np.testing.assert_allclose(
        cosines(seli.contexts(np.arange(24))), cosines(frame.contexts(np.arange(24))), atol=1e-10
    )


def test_predictions_at_the_loss_are_those_of_predict(fits: dict[str, AbstractFit], stats: NextTokenStatistics) -> None:
    for name, norm in (("at loss, nuclear ", "nuclear"), ("at loss, gamma_2 ", "gamma2")):
        direct = predict(stats, loss_gap=GAP, norm=norm, tolerance=1e-4)
        np.testing.assert_allclose(cosines(fits[name].contexts(EVERY_CONTEXT)), cosines(direct.H), atol=1e-6)
        given = FitInputs(loss_gap=GAP, at={norm: direct})
        kind = AtLossNuclear if norm == "nuclear" else AtLossGamma2
        np.testing.assert_array_equal(kind(given).fit(stats).contexts(EVERY_CONTEXT), direct.H)


def trainings(fit: AbstractFit) -> list[Factors]:
    """The several random fits of an explanation."""
    assert isinstance(fit, FactorFit)
    assert fit.seeds == SEEDS
    columns = np.split(fit.factors.W, SEEDS, axis=1), np.split(fit.factors.H, SEEDS)
    return [Factors(W, H) for W, H in zip(*columns, strict=True)]


@pytest.mark.parametrize(("optimizer", "gap"), [(None, 0.05), ("gd", 0.5), ("adam", 1e-3)])
def test_features_are_trained_to_the_loss(stats: NextTokenStatistics, optimizer: str | None, gap: float) -> None:
    fit = TrainedFeatures(FitInputs(loss_gap=gap, dim=V, optimizer=optimizer)).fit(stats)
    for factors in trainings(fit):
        assert 0.6 * gap < SoftLabels.from_statistics(stats).loss_gap(factors.logits) <= gap
    assert fit.limitation == ""


def test_features_that_do_not_reach_the_loss_say_how_far_they_came(stats: NextTokenStatistics) -> None:
    fit = TrainedFeatures(FitInputs(loss_gap=1e-12, dim=V)).fit(stats)
    reached = max(SoftLabels.from_statistics(stats).loss_gap(factors.logits) for factors in trainings(fit))
    assert fit.limitation == f"UFM was trained to a loss gap of {reached:.2g} nats only."


def test_tied_features_are_trained_as_the_run_was_or_as_the_ufm_is(stats: NextTokenStatistics) -> None:
    network, free = (
        train(stats, model, dim=6, steps=40, learning_rate=2e-2, rate_schedule="constant") for model in ("mlp", "ufm")
    )
    known = FitInputs(loss_gap=network.loss_gap, dim=6, optimizer="adamw", run=network).on(stats)
    (rival,) = TiedFeatures.candidates(known)
    assert isinstance(rival, TiedFeatures)
    fit, made = rival.fit(stats), rival.simulation(stats)
    assert (made.settings["learning_rate"], made.settings["last_norm"]) == (2e-2, True)
    alone = TiedFeatures(replace(known, run=None)).simulation(stats)
    assert (alone.settings["learning_rate"], alone.settings["last_norm"]) == (1e-2, True)
    mean = np.mean([cosines(one.tokens) for one in made.trainings()], axis=0)
    np.testing.assert_allclose(Geometry.of(fit.tokens(EVERY_TOKEN), fit.seeds).cosines, mean, atol=1e-9)
    changes: tuple[dict[str, Any], ...] = ({"has_tokens": False}, {"loss_gap": None}, {"run": free})
    assert [TiedFeatures.candidates(replace(known, **change)) for change in changes] == [[], [], []]


def test_trained_features_are_the_mean_of_their_seeds(fits: dict[str, AbstractFit]) -> None:
    fit = fits["UFM "]
    for items, vectors in ((EVERY_CONTEXT, fit.contexts), (EVERY_TOKEN, fit.tokens)):
        geometry = Geometry.of(vectors(items), fit.seeds)
        own = [cosines(one.H if vectors == fit.contexts else one.tokens) for one in trainings(fit)]
        for mine, theirs in zip(geometry.seeds, own, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-6)
        np.testing.assert_allclose(geometry.cosines, np.mean(own, axis=0), atol=1e-6)
    assert not np.allclose(own[0], own[1], atol=1e-2), "seeds differ"


@pytest.mark.parametrize("rival", [*QUICK, MaximumMargin(), AtLossNuclear(KNOWN)], ids=label)
def test_relabelling_tokens_and_contexts_relabels_the_geometry(
    rival: AbstractRival, fits: dict[str, AbstractFit], counts: np.ndarray
) -> None:
    rng = np.random.default_rng(1)
    z, j = rng.permutation(V), rng.permutation(M)
    other = rival.fit(NextTokenStatistics.from_counts(counts[z][:, j], explained_contexts()[j]))
    fit = fits[label(rival)]
    atol = 2e-2 if not rival.quick else 1e-7  # solved to a gap
    np.testing.assert_allclose(cosines(other.tokens(EVERY_TOKEN)), cosines(fit.tokens(EVERY_TOKEN))[z][:, z], atol=atol)
    np.testing.assert_allclose(
        cosines(other.contexts(EVERY_CONTEXT)), cosines(fit.contexts(EVERY_CONTEXT))[j][:, j], atol=atol
    )


@pytest.mark.parametrize("rival", QUICK[2:], ids=label)
def test_large_statistics_keep_the_leading_vectors(
    rival: AbstractRival, fits: dict[str, AbstractFit], stats: NextTokenStatistics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MOST_ENTRIES", 0)
    fit, exact = rival.fit(stats), fits[label(rival)]  # V - 1 of V vectors: all that a centred matrix has
    assert fit.is_truncated
    np.testing.assert_allclose(cosines(fit.tokens(EVERY_TOKEN)), cosines(exact.tokens(EVERY_TOKEN)), atol=1e-6)
    mine, theirs = (cosines(one.contexts(EVERY_CONTEXT)) for one in (fit, exact))
    np.testing.assert_allclose(mine, theirs, atol=1e-6)
