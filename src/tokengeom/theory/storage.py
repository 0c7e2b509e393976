"""How predictions are saved: the entries of their manifests, and arrays that are checked when they are read.

Entries of a kind are a small dataclass, which `results.convert` writes and reads. Here are those of predictions of
learned features in the limit and at a loss, with their arrays, and what other kinds of predictions share with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from scipy.sparse import csc_array

from tokengeom.core.errors import StatisticsError
from tokengeom.core.numerics import Float
from tokengeom.problems.base import Certificate
from tokengeom.problems.gamma2 import MaxNormFactors
from tokengeom.problems.regularised_logits import Merging
from tokengeom.problems.supports import SupportReduction
from tokengeom.results.contract import SAME
from tokengeom.results.convert import Digest, Within, from_manifest, to_plain
from tokengeom.statistics.arrays_file import LARGEST_ENTRY, SUM_TOLERANCE, SavedArrays
from tokengeom.statistics.context_features import OWN, ContextFeatures, Span, beginnings, parse_ties
from tokengeom.statistics.supports import check_table
from tokengeom.theory.uniqueness import SolutionBounds, Spread

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from tokengeom.theory.at_loss import LossPrediction
    from tokengeom.theory.features import FeaturePrediction
    from tokengeom.theory.tied import TiedPrediction

FEATURES, AT_LOSS, TIED = "features.safetensors", "at-loss.safetensors", "tied.safetensors"
"""Files with the arrays of a prediction in the limit, at a loss, and with tied contexts."""
MOST_WINDOWS = 2**53
"""More windows than any text has; up to it, counts are exact in floating-point numbers."""
SMALLEST_LAM = 1e-50
"""Smallest lambda of a saved prediction; the path cannot be followed as far."""

T = TypeVar("T", bound="DataclassInstance")
NotNegative = Annotated[float, Within(0.0)]
Size = Annotated[float, Within(0.0, LARGEST_ENTRY)]
Strength = Annotated[float, Within(SMALLEST_LAM, LARGEST_ENTRY)]


@dataclass(frozen=True)
class FeatureEntries:
    """Entries of the manifest of a `FeaturePrediction`."""

    certificate: Certificate
    entropy: NotNegative
    rank: Annotated[int, Within(0)]
    rank_bound: Annotated[int, Within(0)]
    proxy_nuclear_norm: Size
    proxy_is_exact: bool
    proxy_sentence: str
    spread: Spread | None
    warnings: tuple[str, ...]
    status: str
    seconds: NotNegative
    tolerance: NotNegative
    statistics_hash: Digest | None
    windows: Annotated[int, Within(1, MOST_WINDOWS)] | None
    coverage: Annotated[float, Within(0.0, 1.0)] | None


@dataclass(frozen=True)
class LossEntries:
    """Entries of the manifest of a `LossPrediction`."""

    lam: Strength
    loss_gap: Size
    entropy: NotNegative
    status: str
    seconds: NotNegative
    norm: Literal["nuclear", "gamma2"]
    statistics_hash: Digest | None
    certificate: Certificate


@dataclass(frozen=True)
class TiedEntries(LossEntries):
    """Entries of the manifest of a `TiedPrediction`, of which `_OF_FEATURES` are those of its features."""

    lam: Annotated[float, Within(0.0, LARGEST_ENTRY)]
    ties: str
    length: Annotated[int, Within(0, 64)]
    base: Annotated[int, Within(0, 2**31)]
    given_names: tuple[str, ...] | None = None


_OF_FEATURES = ("ties", "length", "base", "given_names")


def entries_of(kind: type[T], result: object, **others: object) -> dict[str, Any]:
    """Plain data of entries that are the attributes of a result with the same names, or given."""
    known = {field.name: getattr(result, field.name) for field in fields(kind) if field.name not in others}
    plain: dict[str, Any] = to_plain(kind(**known, **others))
    return plain


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays of any order and type to a safetensors file."""
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def write_features(prediction: FeaturePrediction, folder: Path) -> dict[str, Any]:
    """Write the arrays of a prediction in the limit; returns the entries of its manifest."""
    P, reduction = csc_array(prediction.P), prediction.reduction
    arrays = {
        "S_red": reduction.S_red.astype(np.uint8),
        "row_of": reduction.row_of.astype(np.int64),
        "column_of": reduction.column_of.astype(np.int64),
        "L_merged": prediction.L_merged,
        "dual_merged": prediction.dual_merged,
        "slack_bound": prediction.solution_bounds.slack_bound,
        "pi": prediction.pi,
        "P_data": P.data.astype(np.float64),
        "P_indices": P.indices.astype(np.int64),
        "P_indptr": P.indptr.astype(np.int64),
    }
    write_arrays(folder / FEATURES, arrays)
    return entries_of(FeatureEntries, prediction, rank_bound=prediction.solution_bounds.rank_bound)


def read_features(kind: type[FeaturePrediction], folder: Path, manifest: dict[str, Any]) -> FeaturePrediction:
    """The prediction in the limit that `write_features` wrote."""
    saved, arrays = from_manifest(FeatureEntries, manifest, folder), SavedArrays(folder / FEATURES)
    reduction = _read_reduction(arrays)
    P, pi = _read_probabilities(arrays, reduction.V, reduction.m)
    shape = reduction.S_red.shape
    if saved.windows is not None and not are_counts(P, pi, saved.windows):
        raise arrays.damaged(f"P and pi are not those of {saved.windows} windows")
    if max(saved.rank, saved.rank_bound) > min(shape):
        raise arrays.damaged(f"rank and rank_bound must be at most {min(shape)}; got {saved.rank}, {saved.rank_bound}")
    require_finite(arrays, saved.certificate)
    _require_entropy(arrays, saved.entropy, reduction.V)
    stated = {name: entry for name, entry in vars(saved).items() if name not in ("rank", "rank_bound")}
    return kind(
        reduction=reduction,
        L_merged=arrays.floats("L_merged", shape),
        dual_merged=arrays.floats("dual_merged", shape),
        P=P,
        pi=pi,
        solution_bounds=SolutionBounds(_read_slack(arrays, reduction), saved.rank_bound),
        claimed=manifest,
        **stated,
    )


def _read_reduction(arrays: SavedArrays) -> SupportReduction:
    """The merged pattern of supports."""
    S_red = arrays.wholes("S_red", (None, None), 0, 1, np.uint8)
    rows, columns = S_red.shape
    reduction = SupportReduction(
        S_red != 0, arrays.wholes("row_of", (None,), 0, rows - 1), arrays.wholes("column_of", (None,), -1, columns - 1)
    )
    if not reduction.V or not reduction.m or 0 in reduction.a or 0 in reduction.n:
        raise arrays.damaged("row_of and column_of must name every row and column of the merged pattern")
    inside = reduction.S_red.sum(axis=0)
    if (inside == 0).any() or (inside == rows).any():
        raise arrays.damaged("a column of the merged pattern S_red is empty or full")
    return reduction


def _read_probabilities(arrays: SavedArrays, V: int, m: int) -> tuple[csc_array, Float]:
    P, pi = arrays.table("P_", np.float64, (V, m)), arrays.shares("pi", m)
    try:
        check_table(P, pi)
    except StatisticsError as error:
        raise arrays.damaged(str(error).rstrip(".")) from error
    return P, pi


def _read_slack(arrays: SavedArrays, reduction: SupportReduction) -> Float:
    """Upper bounds on the slack: NaN on support, at least 0 elsewhere."""
    slack = arrays.array("slack_bound", np.float64, reduction.S_red.shape)
    if not (np.isnan(slack) == reduction.S_red).all() or (slack < 0).any():
        raise arrays.damaged("slack_bound must be NaN on support and at least 0 elsewhere")
    return slack


def require_finite(arrays: SavedArrays, certificate: Certificate) -> None:
    """Refuse a certificate that proves nothing."""
    if not all(map(math.isfinite, vars(certificate).values())):
        raise arrays.damaged(f"certificate must have finite residuals, value and bound; got {certificate}")


def _require_entropy(arrays: SavedArrays, entropy: float, V: int) -> None:
    if entropy > math.log(V) + SAME:
        raise arrays.damaged(f"entropy must be at most log({V}); got {entropy}")


def are_counts(P: csc_array, pi: Float, windows: int) -> bool:
    """Whether probabilities times shares times windows are whole numbers, as those of counted windows are."""
    counts = P.data * np.repeat(pi * windows, np.diff(P.indptr))
    return bool((np.abs(counts - np.rint(counts)) <= 1e-6 + 1e-9 * counts).all() and (counts > 0.5).all())


def write_at_loss(prediction: LossPrediction, folder: Path) -> dict[str, Any]:
    """Write the arrays of a prediction at a loss; returns the entries of its manifest."""
    merging, factors, weights = prediction.merging, prediction.factors, prediction.weights
    arrays = {name: getattr(prediction, name) for name in ("P_merged", "pi", "change_merged")}
    arrays |= {"row_of": merging.row_of, "column_of": merging.column_of}
    if factors is None or weights is None:
        arrays["L_merged"] = prediction.L_merged
    else:
        arrays |= {"W_merged": factors.W, "H_merged": factors.H, "p": weights[0], "q": weights[1]}
    write_arrays(folder / AT_LOSS, arrays)
    return entries_of(LossEntries, prediction)


def read_at_loss(kind: type[LossPrediction], folder: Path, manifest: dict[str, Any]) -> LossPrediction:
    """The prediction at a loss that `write_at_loss` wrote."""
    saved, arrays = from_manifest(LossEntries, manifest, folder), SavedArrays(folder / AT_LOSS)
    P = arrays.floats("P_merged", (None, None), 0.0, 1.0)
    rows, columns = P.shape
    merging = read_merging(arrays, rows, columns)
    if np.abs(merging.a @ P - 1.0).max() > SUM_TOLERANCE:
        raise arrays.damaged("each column of P_merged must sum to 1 over all tokens")
    require_finite(arrays, saved.certificate)
    _require_entropy(arrays, saved.entropy, merging.row_of.size)
    factors = weights = None
    if saved.norm == "gamma2":
        W = arrays.floats("W_merged", (rows, None))
        factors = MaxNormFactors(W, arrays.floats("H_merged", (W.shape[1], columns)))
        weights = arrays.shares("p", rows), arrays.shares("q", columns)
    return kind(
        merging=merging,
        P_merged=P,
        pi=arrays.shares("pi", merging.column_of.size),
        L_merged=arrays.floats("L_merged", P.shape) if factors is None else factors.logits,
        change_merged=arrays.floats("change_merged", P.shape),
        factors=factors,
        weights=weights,
        **vars(saved),
    )


def read_merging(arrays: SavedArrays, rows: int, columns: int) -> Merging:
    """Groups of equal tokens and contexts, which must name every row and column of the merged arrays."""
    of_tokens = arrays.wholes("row_of", (None,), 0, rows - 1)
    merging = Merging(of_tokens, arrays.wholes("column_of", (None,), 0, columns - 1))
    if (merging.a.size, merging.n.size) != (rows, columns) or 0 in merging.a or 0 in merging.n:
        raise arrays.damaged("row_of and column_of must name every row and column of the merged arrays")
    return merging


def write_tied(prediction: TiedPrediction, folder: Path) -> dict[str, Any]:
    """Write the arrays of a prediction with tied contexts; returns the entries of its manifest."""
    features = prediction.features
    arrays = {name: getattr(prediction, name) for name in ("W", "A", "pi")}
    for name, table in (("P", prediction.P), ("Phi", features.matrix)):
        arrays[f"{name}_data"] = table.data.astype(np.float64)
        arrays |= {f"{name}_{part}": getattr(table, part).astype(np.int64) for part in ("indices", "indptr")}
    arrays |= {step_name(span): pairs for span, pairs in features.steps.items()}
    if prediction.weights is not None:
        arrays |= dict(zip(("p", "q"), prediction.weights, strict=True))
    if prediction.change is not None:
        arrays["change"] = prediction.change
    write_arrays(folder / TIED, arrays)
    described = {name: getattr(features, name) for name in _OF_FEATURES}
    return entries_of(TiedEntries, prediction, **described)


def read_tied(kind: type[TiedPrediction], folder: Path, manifest: dict[str, Any]) -> TiedPrediction:
    """The prediction with tied contexts that `write_tied` wrote."""
    saved, arrays = from_manifest(TiedEntries, manifest, folder), SavedArrays(folder / TIED)
    W = arrays.floats("W", (None, None))
    A = arrays.floats("A", (W.shape[1], None))
    m = arrays.floats("pi", (None,)).size
    P, pi = _read_probabilities(arrays, W.shape[0], m)
    require_finite(arrays, saved.certificate)
    _require_entropy(arrays, saved.entropy, W.shape[0])
    entries = {name: value for name, value in vars(saved).items() if name not in _OF_FEATURES}
    features, weights = _read_context_features(arrays, saved, A.shape[1], m), None
    if saved.norm == "gamma2":
        weights = arrays.floats("p", (None,), 0.0, 1.0), arrays.floats("q", (None,), 0.0, 1.0)
    change = arrays.floats("change", (None, m), -1.0, 1.0) if arrays.has("change") else None
    return kind(W=W, A=A, features=features, P=P, pi=pi, weights=weights, change=change, **entries)


def step_name(span: Span) -> str:
    """Name of the array that numbers a beginning of a span."""
    return "_".join(("step", *map(str, span)))


def _read_context_features(arrays: SavedArrays, saved: TiedEntries, F: int, m: int) -> ContextFeatures:
    Phi = arrays.table("Phi_", np.float64, (F, m), signed=saved.ties == OWN)
    if saved.ties == OWN:
        if saved.given_names is not None and len(saved.given_names) != F:
            raise arrays.damaged("it has not one name per feature")
        return ContextFeatures.from_matrix(Phi, saved.given_names)
    try:
        weights = parse_ties(saved.ties, saved.length)
    except StatisticsError as error:
        raise arrays.damaged(str(error).rstrip(".")) from error
    steps = {span: arrays.wholes(step_name(span), (None,), 0, 2**62) for span in beginnings(weights)}
    features = ContextFeatures(saved.ties, Phi, weights, steps, saved.length, saved.base)
    if any((np.diff(pairs) <= 0).any() for pairs in steps.values()) or features.rows != F:
        raise arrays.damaged("the numbered tokens of its features are not those of its rows")
    return features
