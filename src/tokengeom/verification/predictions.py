"""Checks of saved predictions: what logits, duals, proofs and statistics show without solving again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.core.numerics import Float, dense, rounded_percent, x_log_x
from tokengeom.problems.backend import Backend
from tokengeom.problems.base import Certificate, Solution
from tokengeom.problems.gamma2 import Gamma2Logits, WeightedDual
from tokengeom.problems.linear_data import context_names
from tokengeom.problems.linear_limit import CompatibilitySystem, EffectiveSupportProblem, ReducedLoss
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.problems.regularised_logits import Merging
from tokengeom.problems.supports import margins, reduce_support
from tokengeom.results.contract import SAME, NearbyResults
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.supports import degenerate_support_warnings
from tokengeom.theory.at_loss import LossPrediction, ProvenNorm
from tokengeom.theory.conditions import describe_compatibility, describe_separability
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.predicted_path import PredictedPath
from tokengeom.theory.proxy import ProxyPrediction, captured_share, centred_operator, norm_of_rest, proxy_exactness
from tokengeom.theory.tied import TiedPrediction
from tokengeom.theory.uniqueness import solution_bounds
from tokengeom.verification.verify import Checks, same, under, with_statistics

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    Prediction = (
        FeaturePrediction | LossPrediction | PredictedPath | ProxyPrediction | LinearPrediction | TiedPrediction
    )

SAME_PROBABILITY = 1e-12
FEASIBLE = 1e-9
"""Largest residual of logits and dual of a prediction in the limit."""
FEASIBLE_MARGIN = 1e-6
"""By how much a margin of a prediction in the limit with ties may be below 1."""
PROOF = 1e-7
"""Residual up to which a witness or a refutation of the linear model is accepted."""
ORTHONORMAL = 1e-8
"""Largest entry of ``U^T U - I`` for singular vectors from ARPACK, whose own tolerance is rounding."""
ACCEPTED = 0.05
"""Relative gap up to which a saved answer is accepted: 0.1.0 compared with such answers, and new comparisons ask for
`LARGEST_GAP`."""
WITHIN = f"within {ACCEPTED:.0%} of the smallest"
OBJECTIVE = "regularised objective", "objective", " of the objective"
SAME_PROBABILITIES = "probabilities and shares are those of the statistics"


def check_features(prediction: FeaturePrediction, nearby: NearbyResults) -> Checks:
    """Certificate, claims and probabilities of a prediction in the limit."""
    proof = NuclearSVM(prediction.reduction).certify(prediction.L_merged, prediction.dual_merged)
    unmeasured: Checks = {"how far solutions from random starts are apart: those solutions are not kept": None}
    return {
        "the merged pattern is that of the probabilities": prediction.reduction.equals(reduce_support(prediction.P)),
        "the logits are feasible": proof.primal_residual <= FEASIBLE,
        "the dual is feasible": proof.dual_residual <= FEASIBLE,
        **_certificate_checks(prediction.certificate, proof, "nuclear norm", "nuclear norm"),
        **_feature_claims(prediction),
        **against_statistics(prediction, nearby, lambda stats: _feature_statistics(prediction, stats)),
        **({} if prediction.spread is None else unmeasured),
        "the solver's status, tolerance and time: only solving again would show them": None,
    }


def _feature_claims(prediction: FeaturePrediction) -> Checks:
    """Whether numbers and sentences are those that logits, dual and probabilities give."""
    problem, certificate, spread = NuclearSVM(prediction.reduction), prediction.certificate, prediction.spread
    exactness = proxy_exactness(problem)
    exact, sentence = exactness.verdict(certificate, prediction.tolerance)
    answer = Solution(prediction.L_merged, prediction.dual_merged, certificate, "", 0, 0.0)
    bounds, claimed = solution_bounds(problem, answer), prediction.solution_bounds
    sizes, groups = np.diff(prediction.P.indptr), np.unique(prediction.context_groups).size
    rank = None if prediction.claimed is None else prediction.claimed.get("rank")
    return {
        "the rank is the one claimed": rank is None or rank == prediction.rank,
        **_entropy_check(prediction),
        "the proxy's nuclear norm is the one claimed": close(exactness.nuclear_norm, prediction.proxy_nuclear_norm),
        "whether the proxy is exact is as claimed": exact == prediction.proxy_is_exact
        and same(prediction.proxy_sentence, sentence),
        "the bounds on every solution are the ones claimed": bounds.rank_bound == claimed.rank_bound
        and np.allclose(bounds.slack_bound, claimed.slack_bound, rtol=1e-6, atol=0.0, equal_nan=True),
        "the warnings are those of the supports": list(prediction.warnings)
        == degenerate_support_warnings(sizes, prediction.reduction.V, groups),
        "the gap of the solutions compared is not below that of L_mm": spread is None
        or spread.gap >= certificate.relative_gap * (1 - 1e-6) - SAME,
    }


def _feature_statistics(prediction: FeaturePrediction, stats: NextTokenStatistics) -> Checks:
    windows = stats.n if stats.has_counts else None
    same_windows = prediction.windows == windows and prediction.coverage == stats.coverage
    return {
        SAME_PROBABILITIES: same_probabilities(prediction.P, stats.P) and same_entries(prediction.pi, stats.pi),
        "windows and coverage are those of the statistics": same_windows,
    }


def check_tied(prediction: TiedPrediction, nearby: NearbyResults) -> Checks:
    """Loss, certificate, features and probabilities of a prediction with tied contexts."""
    checks = _entropy_check(prediction)
    if prediction.in_limit:
        distances = margins(prediction.L, dense(prediction.P) > 0)
        checks |= {
            "every support is separated by a margin of 1": float(distances.min()) >= 1.0 - FEASIBLE_MARGIN,
            "the norm's lower bound: its dual is not kept": None,
        }
    else:
        checks |= _loss_checks(prediction, *prediction.proven_again())
    return {
        **checks,
        **against_statistics(prediction, nearby, lambda stats: _tied_statistics(prediction, stats)),
        "the solver's status and time: only solving again would show them": None,
    }


def _entropy_check(prediction: FeaturePrediction | TiedPrediction) -> Checks:
    entropy = -float(np.repeat(prediction.pi, np.diff(prediction.P.indptr)) @ x_log_x(prediction.P.data))
    return {"the entropy floor is the one claimed": close(prediction.entropy, entropy)}


def _loss_checks(prediction: ProvenNorm, loss_gap: float, proof: Certificate) -> Checks:
    """Whether loss gap and certificate of a prediction at a loss are those computed again."""
    same_gap: Checks = {"the loss gap is the one claimed": close(prediction.loss_gap, loss_gap)}
    return same_gap | _certificate_checks(prediction.certificate, proof, *OBJECTIVE)


def _tied_statistics(prediction: TiedPrediction, stats: NextTokenStatistics) -> Checks:
    features = prediction.features
    checks: Checks = {SAME_PROBABILITIES: same_probabilities(prediction.P, stats.P)}
    if features.weights and stats.contexts is not None:
        again = features.of(stats.contexts)
        checks["the features are those of the contexts"] = abs(again - features.matrix).sum() == 0.0
    return checks


def check_at_loss(prediction: LossPrediction, nearby: NearbyResults) -> Checks:
    """Loss, certificate and probabilities of a prediction at a loss."""
    problem, gap = prediction.problem(), prediction.relative_gap
    sizes = prediction.merging.row_of.size, prediction.merging.column_of.size
    if prediction.factors is None or prediction.weights is None:
        proof = problem.certify(prediction.L_merged, prediction.change_merged)
    else:
        dual = WeightedDual(prediction.change_merged, *map(np.sqrt, prediction.weights))
        proof = Gamma2Logits(problem).certify(prediction.factors, dual)
    entropy = -float((prediction.merging.a @ x_log_x(prediction.P_merged)) @ prediction.pi_merged)
    proven: Checks = {f"the norm is proven to be {WITHIN}": True}
    if gap > ACCEPTED:
        # Close to zero logits an exact solution can prove little about its norm; then nothing is compared with it.
        proven = {f"the norm: it is proven only to be within {rounded_percent(gap)}, and is not compared with": None}
    return {
        **_loss_checks(prediction, problem.loss_gap(prediction.L_merged), proof),
        **proven,
        "the entropy floor is the one claimed": close(prediction.entropy, entropy),
        **against_statistics(prediction, nearby, lambda stats: _loss_statistics(prediction, stats), sizes),
        "the solver's status and time: only solving again would show them": None,
    }


def _loss_statistics(prediction: LossPrediction, stats: NextTokenStatistics) -> Checks:
    rows, columns, P = prediction.merging.row_of, prediction.merging.column_of, stats.P
    # Only where statistics have an entry: all V x m of them may not fit in memory.
    saved = prediction.P_merged[rows[P.indices], np.repeat(columns, np.diff(P.indptr))]
    sizes = (prediction.merging.a @ (prediction.P_merged > 0))[columns]
    same_P = same_entries(saved, P.data) and np.array_equal(sizes, stats.support_sizes)
    return {SAME_PROBABILITIES: same_P and same_entries(prediction.pi, stats.pi)}


def check_path(path: PredictedPath, nearby: NearbyResults) -> Checks:
    """Loss and certificate of every point, computed again with the statistics."""
    merging = path.points[0].merging
    sizes = merging.row_of.size, merging.column_of.size
    return {
        "the loss gaps fall": all(a.loss_gap >= b.loss_gap for a, b in zip(path, path.points[1:], strict=False)),
        **against_statistics(path, nearby, lambda stats: _path_statistics(path, stats), sizes),
        "the time that solving took: only solving again would show it": None,
    }


def _path_statistics(path: PredictedPath, stats: NextTokenStatistics) -> Checks:
    saved, sentence = path.points[0].merging, "equal tokens and contexts are those of the statistics"
    merging = Merging.of(stats.P, stats.pi)
    if not all(map(np.array_equal, (merging.row_of, merging.column_of), (saved.row_of, saved.column_of))):
        return {sentence: False}
    problem = merging.problem(stats.P, stats.pi, 1.0, Backend.on(None))
    checks: Checks = {sentence: True}
    for place, point in enumerate(path, start=1):
        checks |= under(f"point {place}", _loss_checks(point, *point.recomputed(problem)))
    return checks


def check_proxy(prediction: ProxyPrediction, nearby: NearbyResults) -> Checks:
    """Singular triplets of the proxy, alone and against the statistics."""
    U, s, Vt = prediction.U, prediction.singular_values, prediction.Vt
    identity, sizes = np.eye(s.size), (U.shape[0], Vt.shape[1])
    return {
        "the singular vectors of tokens are orthonormal": _near(U.T @ U, identity),
        "the singular vectors of contexts are orthonormal": _near(Vt @ Vt.T, identity),
        "the columns of the logits are centred": _near((U * s).sum(axis=0), 0.0, float(s.max(initial=0.0))),
        "the singular values are at least 0 and falling": bool((s >= 0).all() and (np.diff(s) <= 0).all()),
        "the captured share is in (0, 1]": 0.0 < prediction.captured <= 1.0,
        **against_statistics(prediction, nearby, lambda stats: _proxy_statistics(prediction, stats), sizes),
    }


def _proxy_statistics(prediction: ProxyPrediction, stats: NextTokenStatistics) -> Checks:
    """Whether these are the leading singular triplets of the proxy of statistics."""
    U, s, Vt = prediction.U, prediction.singular_values, prediction.Vt
    operator, size = centred_operator(stats.S), float(s.max(initial=0.0))
    left, right = operator.matmat(Vt.T) - U * s, operator.rmatmat(U) - Vt.T * s
    rest = norm_of_rest(operator, U, s, Vt)
    return {
        "they are singular vectors of the proxy of the statistics": _near(left, 0.0, size) and _near(right, 0.0, size),
        "no singular value that was left out is larger": rest <= float(s.min(initial=size)) + ORTHONORMAL * size,
        "the captured share is the one claimed": close(prediction.captured, captured_share(stats, s)),
    }


def _near(computed: Float, wanted: Float | float, scale: float = 1.0) -> bool:
    return bool(np.max(np.abs(computed - wanted), initial=0.0) <= ORTHONORMAL * scale)


def check_linear(prediction: LinearPrediction, nearby: NearbyResults) -> Checks:
    """Conditions, limit and certificates of the linear model."""
    sizes = prediction.data.V, prediction.data.m
    return {
        **_linear_conditions(prediction),
        **_linear_limit(prediction),
        **against_statistics(prediction, nearby, lambda stats: _linear_statistics(prediction, stats), sizes),
        "that the embeddings are the ones given: they are kept nowhere else": None,
    }


def _linear_conditions(prediction: LinearPrediction) -> Checks:
    """Whether each condition is proven, and described as its proof shows it."""
    data, compatible, separable = prediction.data, prediction.compatible, prediction.separable
    system, problem = CompatibilitySystem(data.S, data.P, data.H), MarginProblem(data.S, data.H)
    checks: Checks = {}
    if compatible:
        solved = system.certify(compatible.proof, None)
        checks["a decoder solves the equations of compatibility"] = solved.primal_residual <= PROOF
        # The bound is that of a dual that is not kept. It equals the value, as W_star lies in the data subspace.
        solved = replace(solved, dual_residual=compatible.certificate.dual_residual, bound=solved.value)
    else:
        solved = system.refute(compatible.proof)
        checks["the refutation of compatibility is valid"] = solved.primal_residual <= PROOF * abs(solved.value)
    if separable:
        separated = problem.certify(separable.proof, prediction.multipliers)
        checks["a decoder separates the supports"] = separated.primal_residual <= PROOF
    else:
        separated = problem.refute(separable.proof)
        checks["the refutation of separability is valid"] = separated.value <= PROOF
    margin = prediction.effective_margin if separable else 0.0
    checks["the margin is the one claimed"] = close(prediction.margin, margin)
    for name, claimed, again, describe in (
        ("compatibility", compatible, solved, describe_compatibility),
        ("separability", separable, separated, describe_separability),
    ):
        described = describe(data, claimed.holds, claimed.certificate, claimed.proof)
        checks[f"the certificate of {name} is the one claimed"] = close(claimed.certificate, again)
        checks[f"{name} is described as its proof shows it"] = same(claimed.to_dict(), described.to_dict())
    return checks


def _linear_limit(prediction: LinearPrediction) -> Checks:
    """Whether finite part and direction are what they must be, and certificates those of the saved answers."""
    data, S, W_star, W_mm = prediction.data, prediction.effective_support, prediction.W_star, prediction.W_mm
    direction = MarginProblem(S, data.H).certify(W_mm, prediction.multipliers)
    support = EffectiveSupportProblem(data.S, data.H).certify(W_mm, prediction.blocking)
    loss = ReducedLoss(S, data.P, data.pi, data.H)
    finite = loss.certify(W_star, loss.distribution(W_star))
    limit, gap = _largest_gap(prediction.certificate), direction.relative_gap if W_mm.any() else 0.0
    outside, size = (float(np.linalg.norm(W)) for W in (W_star - prediction.finite_part(W_star), W_star))
    reduced = prediction.compatible.certificate if prediction.reaches_entropy else finite
    return {
        "the effective supports contain the supports": bool((S >= data.S).all()),
        "the direction separates every effective support from the other tokens": bool(S.all())
        or float(margins(W_mm @ data.H, S)[~S].min()) >= 1 - PROOF,
        "the pairs that the direction does not separate are proven inseparable": support.holds(PROOF),
        f"the direction is proven within {limit:.1e} of the smallest norm": gap <= min(limit, ACCEPTED),
        "the finite part is stationary for the reduced loss": finite.dual_residual <= PROOF,
        "the finite part lies in the data subspace": outside <= PROOF * max(1.0, size),
        "the floor of the loss is the one claimed": abs(finite.value - prediction.loss_floor) <= PROOF,
        "the entropy is the one claimed": close(prediction.entropy, data.entropy),
        "the certificate of the direction is the one claimed": close(prediction.certificate, direction),
        "the certificate of the effective supports is the one claimed": close(prediction.support_certificate, support),
        "the certificate of the finite part is the one claimed": close(prediction.finite_certificate, reduced),
    }


def _linear_statistics(prediction: LinearPrediction, stats: NextTokenStatistics) -> Checks:
    data = prediction.data
    saved = [None if names is None else list(names) for names in (data.token_names, data.context_names)]
    return {
        SAME_PROBABILITIES: same_entries(data.P, dense(stats.P)) and same_entries(data.pi, stats.pi),
        "the names are those of the statistics": saved == [list(stats.vocabulary), context_names(stats)],
    }


def _certificate_checks(claimed: Certificate, proof: Certificate, value: str, norm: str, of: str = "") -> Checks:
    """Whether a certificate is the one claimed, and proves enough; the texts are names in the sentences."""
    limit, residuals = _largest_gap(claimed), replace(proof, value=claimed.value, bound=claimed.bound)
    return {
        f"the proven gap{of} is within {limit:.1e}": proof.relative_gap <= limit,
        f"the {norm} is proven to be {WITHIN}": proof.relative_gap <= ACCEPTED,
        f"the {value} is the one claimed": close(claimed.value, proof.value),
        f"the lower bound{of} is the one claimed": close(claimed.bound, proof.bound),
        "the residuals are the ones claimed": close(claimed, residuals),
    }


def _largest_gap(claimed: Certificate) -> float:
    """The gap that is claimed, up to rounding."""
    return claimed.relative_gap * (1 + 1e-6) + SAME


def against_statistics(
    prediction: Prediction,
    nearby: NearbyResults,
    compare: Callable[[NextTokenStatistics], Checks],
    sizes: tuple[int, int] | None = None,
) -> Checks:
    """The checks of a prediction against its statistics, where these are at hand or lie beside it."""
    if prediction.statistics_hash is None:
        return {"that the probabilities are those of statistics: the prediction was made from arrays": None}
    what = "that the prediction is for its statistics"
    return with_statistics(prediction.statistics_hash, nearby, what, compare, sizes, prediction.stats)


def same_entries(claimed: Float, expected: Float) -> bool:
    """Whether shares, or probabilities in the same places, are equal up to rounding."""
    return claimed.shape == expected.shape and bool(np.abs(claimed - expected).max(initial=0.0) <= SAME_PROBABILITY)


def same_probabilities(claimed: csc_array, expected: csc_array) -> bool:
    """Whether sparse probabilities are equal, up to rounding."""
    same_places = np.array_equal(claimed.indptr, expected.indptr) and np.array_equal(claimed.indices, expected.indices)
    return claimed.shape == expected.shape and same_places and same_entries(claimed.data, expected.data)


def close(claimed: float | Certificate, again: float | Certificate) -> bool:
    """Whether numbers, or residuals, value and bound, agree as far as two machines do."""
    a, b = (vars(value) if isinstance(value, Certificate) else value for value in (claimed, again))
    return same(a, b, SAME)
