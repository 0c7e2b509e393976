"""Probes at points whose distance from the limit is known, and during training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import pearsonr

from geometry_cases import grouped_counts, structural_similarity
from tokengeom.comparison.monitor import feature_probes, linear_probes
from tokengeom.comparison.similarity import directional_agreement
from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import cosines
from tokengeom.problems.ntp_svm import NORMS, MarginProblem
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction, project_on_F
from tokengeom.theory.linear import LinearPrediction, predict_linear
from tokengeom.theory.loss_path import LossPath
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import proxy
from tokengeom.training.loop import State
from tokengeom.training.objective import SoftLabels
from tokengeom.training.train import train
from training_problems import paper_setting, random_statistics

LINEAR = ["cosine", "cosine_without_finite", "finite_error"] + [f"margin_{name}" for name in NORMS]
AT_LOSS = ["context_agreement", "token_agreement"]
FEATURES = [
    "finite_distance",
    "logit_distance",
    "context_similarity",
    "token_similarity",
    "proxy_context_similarity",
    "proxy_token_similarity",
    "collapse",
]
LIMIT = ["limit_context_agreement", "limit_token_agreement"]


def state(W: np.ndarray, H: np.ndarray, bias: np.ndarray | None = None) -> State:
    labels = SoftLabels.from_dense(np.full((W.shape[0], H.shape[1]), 1.0 / W.shape[0]))
    return State(0, Factors(W, H, bias), labels)


def measured(prediction: LinearPrediction | FeaturePrediction, here: State) -> dict[str, float]:
    probes = linear_probes(prediction) if isinstance(prediction, LinearPrediction) else feature_probes(prediction)
    found = {name: probe(here) for name, probe in probes.items()}
    return {name: value for name, value in found.items() if isinstance(value, float)}


def centred(L: np.ndarray) -> np.ndarray:
    """Logits with each column's mean removed, of norm 1."""
    found = L - L.mean(axis=0)
    return np.asarray(found / np.linalg.norm(found))


def over_pairs(X: np.ndarray, Y: np.ndarray, groups: np.ndarray) -> float:
    """Correlation of cosines over pairs of different groups."""
    apart = groups[:, None] != groups[None, :]
    return float(pearsonr(cosines(X)[apart], cosines(Y)[apart])[0])


@pytest.fixture(scope="module")
def linear() -> LinearPrediction:
    return predict_linear(*paper_setting(0))


@pytest.fixture(scope="module")
def features() -> tuple[NextTokenStatistics, FeaturePrediction]:
    stats = NextTokenStatistics.from_counts(grouped_counts(12, 8, 3, 3, seed=0)[:, 4:-1])  # groups of unequal size
    return stats, predict(stats, tolerance=1e-8)


def test_linear_probes_reach_their_limits_in_the_limit(linear: LinearPrediction) -> None:
    here = measured(linear, state(linear.W_star + 1e6 * linear.W_mm, linear.data.H))
    assert list(here) == LINEAR
    assert here["cosine"] == pytest.approx(1.0, abs=1e-6)
    assert here["cosine_without_finite"] == pytest.approx(1.0, abs=1e-12)
    assert here["finite_error"] < 1e-6  # rounding of 1e6 W_mm
    assert here["margin_frobenius"] == pytest.approx(linear.margin, rel=1e-5)


def test_linear_probes_agree_with_the_theory_at_a_random_point(linear: LinearPrediction) -> None:
    rng = np.random.default_rng(0)
    W = rng.standard_normal(linear.W_mm.shape)
    here = measured(linear, state(W, linear.data.H))
    error = np.linalg.norm(linear.finite_part(W) - linear.W_star) / np.linalg.norm(linear.W_star)
    assert here["finite_error"] == pytest.approx(error, rel=1e-9)
    for name, norm in NORMS.items():
        expected = MarginProblem(linear.data.S, linear.data.H, norm).margin(W)
        assert here[f"margin_{name}"] == pytest.approx(expected, rel=1e-12)


def test_the_projection_is_the_same_with_and_without_a_basis(
    linear: LinearPrediction, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = state(np.random.default_rng(1).standard_normal(linear.W_mm.shape), linear.data.H)
    factored = linear_probes(linear)["finite_error"](here)
    monkeypatch.setattr("tokengeom.solvers.finite_part.MOST_DENSE_ENTRIES", 0)
    assert linear_probes(replace(linear))["finite_error"](here) == pytest.approx(factored, rel=1e-8)


def test_without_a_direction_cosines_and_margins_are_nan() -> None:
    stats = NextTokenStatistics.from_probabilities(np.array([[0.3, 0.6], [0.7, 0.4]]))
    prediction = predict_linear(stats, np.eye(2))
    assert not prediction.W_mm.any()
    here = measured(prediction, state(prediction.W_star, np.eye(2)))
    assert np.isnan([here["cosine"], here["cosine_without_finite"], here["margin_frobenius"]]).all()
    assert here["finite_error"] < 1e-10


def test_data_that_are_not_separable_are_measured_on_effective_supports() -> None:
    # One embedding for three contexts with supports that contradict, and one separable context apart.
    P = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    H = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    prediction = predict_linear(NextTokenStatistics.from_probabilities(P), H)
    assert not prediction.separable
    assert prediction.W_mm.any()
    here = measured(prediction, state(prediction.W_star + 1e6 * prediction.W_mm, H))
    assert here["margin_frobenius"] == pytest.approx(prediction.effective_margin, rel=1e-4)
    assert here["finite_error"] < 1e-5


def test_one_hot_labels_have_no_finite_part() -> None:
    prediction = predict_linear(NextTokenStatistics.from_probabilities(np.eye(3)), np.eye(3))
    here = measured(prediction, state(np.eye(3), np.eye(3)))
    assert here["finite_error"] == 0.0
    assert here["cosine"] == pytest.approx(2.0 / np.sqrt(6.0))  # I against the centred I


def test_the_predicted_geometry_itself_agrees_fully(
    features: tuple[NextTokenStatistics, FeaturePrediction],
) -> None:
    _, p = features
    here = measured(p, state(p.W, p.H))
    assert list(here) == AT_LOSS + LIMIT + FEATURES
    assert [here[name] for name in LIMIT] == pytest.approx([1.0, 1.0], abs=1e-9)
    assert here["context_similarity"] == pytest.approx(1.0, abs=1e-9)
    assert here["token_similarity"] == pytest.approx(1.0, abs=1e-9)
    assert here["logit_distance"] < 1e-5
    assert here["collapse"] < 1e-20
    assert here["finite_distance"] == pytest.approx(np.linalg.norm(p.L_in), rel=1e-6)


def test_feature_probes_equal_the_numbers_on_dense_matrices(
    features: tuple[NextTokenStatistics, FeaturePrediction],
) -> None:
    stats, p = features
    rng = np.random.default_rng(2)
    W, H, bias = rng.standard_normal((stats.V, 5)), rng.standard_normal((5, stats.m)), rng.standard_normal(stats.V)
    L = W @ H + bias[:, None]
    here = measured(p, state(W, H, bias))
    S = stats.S.toarray()
    tokens = (W - W.mean(axis=0)).T
    U, s, Vt = np.linalg.svd(proxy(S), full_matrices=False)
    r = int((s > 1e-9).sum())
    proxy_tokens, proxy_contexts = (U[:, :r] * np.sqrt(s[:r])).T, np.sqrt(s[:r])[:, None] * Vt[:r]
    expected = {
        "finite_distance": np.linalg.norm(project_on_F(L, S) - p.L_in),
        "logit_distance": np.linalg.norm(centred(L) - centred(p.L_mm)),
        "limit_context_agreement": over_pairs(H, p.H, p.context_groups),
        "limit_token_agreement": over_pairs(tokens, p.W.T, np.arange(stats.V)),
        "context_similarity": structural_similarity(cosines(H), p.context_cosines),
        "token_similarity": structural_similarity(cosines(tokens), p.token_cosines),
        "proxy_context_similarity": structural_similarity(cosines(H), cosines(proxy_contexts)),
        "proxy_token_similarity": structural_similarity(cosines(tokens), cosines(proxy_tokens)),
    }
    assert {name: here[name] for name in expected} == pytest.approx(expected, rel=1e-5)


def test_the_finite_distance_needs_no_dense_logits(
    features: tuple[NextTokenStatistics, FeaturePrediction], monkeypatch: pytest.MonkeyPatch
) -> None:
    stats, p = features
    rng = np.random.default_rng(3)
    here = state(rng.standard_normal((stats.V, 5)), rng.standard_normal((5, stats.m)))
    dense = feature_probes(p)["finite_distance"](here)
    monkeypatch.setattr("tokengeom.comparison.logit_numbers.CHUNK", 10)
    assert feature_probes(p)["finite_distance"](here) == pytest.approx(dense, rel=1e-12)


def test_probes_improve_during_training() -> None:
    stats = random_statistics(0)
    p = predict(stats)
    run = train(stats, "ufm", dim=8, optimizer="adam", steps=2000, learning_rate=0.01, probes=feature_probes(p))
    first, last = ({name: run.trajectory[name][k] for name in FEATURES} for k in (0, -1))
    assert last["context_similarity"] > max(0.8, first["context_similarity"])
    assert {*AT_LOSS, *LIMIT} <= set(run.trajectory.names)
    assert last["finite_distance"] < 0.2 * first["finite_distance"]
    assert last["logit_distance"] < first["logit_distance"]


def test_full_supports_have_no_geometry_to_compare_with() -> None:
    stats = NextTokenStatistics.from_probabilities(np.array([[0.3, 0.6], [0.7, 0.4]]))
    here = measured(predict(stats), state(np.eye(2), np.eye(2)))
    assert np.isnan([here[name] for name in FEATURES[1:] + LIMIT]).all()
    assert np.isfinite(here["finite_distance"])


def test_a_diverged_state_gives_nan_and_another_shape_an_error(
    linear: LinearPrediction, features: tuple[NextTokenStatistics, FeaturePrediction]
) -> None:
    stats, p = features
    here = measured(p, state(np.full((stats.V, 3), np.nan), np.ones((3, stats.m))))
    assert np.isnan(list(here.values())).all()
    with pytest.raises(ProblemError, match=f"V={stats.V} tokens"):
        measured(p, state(np.ones((stats.V + 1, 3)), np.ones((3, stats.m))))
    with pytest.raises(ProblemError, match=r"V x d; the prediction's is \(10, 60\)"):
        measured(linear, state(np.ones((10, 61)), np.ones((61, 50))))


def test_a_record_is_compared_with_the_prediction_nearest_to_its_own_loss(
    features: tuple[NextTokenStatistics, FeaturePrediction],
) -> None:
    stats, p = features
    labels = SoftLabels.from_statistics(stats)
    probes = feature_probes(p)
    for gap in (0.6, 0.05, 1e-3):
        at = p.at(gap)
        here = State(0, Factors(at.W, at.H), labels)
        agreement = [float(probes[name](here)) for name in AT_LOSS]  # type: ignore[arg-type]
        assert min(agreement) > 0.99, "the grid is within a factor of 1.34"
        grid = p.largest_gap * 10 ** (-round(4 * np.log10(p.largest_gap / gap)) / 4)
        assert abs(np.log(grid / gap)) <= np.log(1.34)
        near = p.at(grid, tolerance=2e-3)
        groups = p.context_groups
        expected = directional_agreement(
            Factors(near.W, near.H).context_directions, here.factors.context_directions, groups
        )
        assert agreement[0] == pytest.approx(expected, abs=2e-3)
    assert min(float(probes[name](here)) for name in LIMIT) < 1.0  # type: ignore[arg-type]


def test_the_prediction_at_the_loss_is_solved_for_once_and_can_be_left_out(
    features: tuple[NextTokenStatistics, FeaturePrediction], monkeypatch: pytest.MonkeyPatch
) -> None:
    stats, p = features
    asked: list[float] = []
    original = LossPath.at

    def counting(self: LossPath, gap: float, *more: object) -> object:
        asked.append(gap)
        return original(self, gap, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(LossPath, "at", counting)
    labels, probes = SoftLabels.from_statistics(stats), feature_probes(p)
    at = p.at(0.01)
    asked.clear()
    for scale in (1.0, 1.0 + 1e-6):
        for name in AT_LOSS:
            probes[name](State(0, Factors(at.W * scale, at.H), labels))
    assert len(asked) == 1
    assert not {*AT_LOSS} & set(feature_probes(p, at_loss=False))
    monkeypatch.setattr("tokengeom.comparison.monitor.AT_LOSS_ENTRIES", 1)
    assert not {*AT_LOSS} & set(feature_probes(p))
    assert {*AT_LOSS} <= set(feature_probes(p, at_loss=True))


def test_above_the_loss_of_a_uniform_guess_there_is_no_prediction_at_the_loss(
    features: tuple[NextTokenStatistics, FeaturePrediction],
) -> None:
    stats, p = features
    rng = np.random.default_rng(0)
    here = State(
        0,
        Factors(9 * rng.standard_normal((stats.V, 4)), rng.standard_normal((4, stats.m))),
        SoftLabels.from_statistics(stats),
    )
    found = {name: probe(here) for name, probe in feature_probes(p).items()}
    assert np.isnan([found[name] for name in AT_LOSS]).all()  # type: ignore[arg-type]
    assert np.isfinite([found[name] for name in LIMIT]).all()  # type: ignore[arg-type]
