"""The proxy S~: the centred supports, when they solve NTP-SVM*, and their leading singular vectors for large corpora.

``S~ = (I - 11^T/V) S``

where ``S`` is the support, V x m. S~ is feasible for NTP-SVM*, with every margin exactly 1, so its nuclear norm is an
upper bound on that of L_mm.

It is optimal if ``U V^T <= 0`` off support, with ``S~ = U Sigma V^T`` (scaled by multiplicities). The condition is
also necessary when no other dual exists: when the rank is V' - 1 (all directions that a dual may use on the left) or
g (all on the right), with V' x g the merged pattern.

`predict_proxy` never makes a dense V x m matrix: centring is applied inside the products, ``S~ x = S x - 1 (k^T
x)/V`` and ``S~^T y = S^T y - k (1^T y)/V`` with ``k`` the support sizes, m. It gives the geometry of S~, not that of
L_mm; the two are close as far as the proxy is close to optimal [zhao2025].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Unpack

import numpy as np
from scipy.sparse import csc_array

from tokengeom.ask.explain import AnswersQuestions
from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, Int, Matrix, SparseProduct, blas_threads_for, centre_columns, rounded_percent
from tokengeom.core.progress import AbstractProgress
from tokengeom.core.settings import check_seed, make, option, takes
from tokengeom.problems.backend import SVD_SIDE
from tokengeom.problems.columns import Computed, mapped
from tokengeom.problems.supports import SupportReduction, as_support
from tokengeom.results.contract import AbstractResult
from tokengeom.results.convert import Digest, Within, from_manifest
from tokengeom.statistics.arrays_file import SavedArrays
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of
from tokengeom.theory.storage import entries_of, write_arrays

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

    from tokengeom.keywords import ProxyKeywords
    from tokengeom.problems.backend import Array
    from tokengeom.problems.base import Certificate
    from tokengeom.problems.nuclear_svm import NuclearSVM

SIGN_TOLERANCE = 1e-9
"""Entries of ``U V^T`` are at most 1; the rounding of an SVD stays below this."""
RANK_TOLERANCE = 1e-9
"""Singular values of a 0/1 pattern below this share of the largest are rounding."""
ARRAYS = "proxy.safetensors"
POWER_STEPS = 30
"""Steps of the power method, after which a singular value that was left out shows if it is clearly larger."""
UNIT_ENTRY = 1.001
"""No entry of a unit vector is larger, up to rounding."""
LIMIT_ENTRIES = 2_000_000
"""Merged tokens times merged contexts up to which L_mm is solved by default: 989 x 2000 took 100 s on a busy core."""
PROXY_COMPONENTS = 128
"""Leading singular vectors of the proxy, where it stands in for L_mm."""


def proxy(S: Matrix) -> Float:
    """``S~``, V x m: the support with each column's mean removed."""
    return centre_columns(as_support(S).astype(np.float64))


def proxy_factors(reduction: SupportReduction) -> Factors:
    """Tokens ``U Sigma^{1/2}`` (V x r) and contexts ``Sigma^{1/2} V^T`` (r x m) of ``S~ = U Sigma V^T``.

    Tokens with equal rows of S have equal vectors, and so have contexts with equal supports.
    """
    merged = reduction.S_red - (reduction.a @ reduction.S_red) / reduction.V
    U, s, Vt = reduction.svd(merged, RANK_TOLERANCE)
    return Factors(reduction.token_factor(U, s), reduction.context_factor(s, Vt))


@dataclass(frozen=True)
class ProxyExactness:
    """Whether ``S~`` solves NTP-SVM*; ``exact`` is None where the sign test fails without deciding it.

    ``largest_entry``
        Largest entry of ``U V^T`` (scaled) off support; <= 0 proves optimality.
    ``decisive``
        Whether a positive entry proves that the proxy is not optimal.
    """

    exact: bool | None
    largest_entry: float
    decisive: bool
    rank: int
    nuclear_norm: float

    def __bool__(self) -> bool:
        return self.exact is True

    @property
    def sentence(self) -> str:
        """The result of the test as a sentence."""
        if self.exact:
            return "The proxy is exact: its polar factor is a dual certificate."
        if self.exact is False:
            return f"The proxy is not exact: its only possible dual is {self.largest_entry:.1e} > 0 off support."
        return "The sign test cannot decide: other duals exist. The solver's gap decides."

    def verdict(self, proof: Certificate, tolerance: float) -> tuple[bool, str]:
        """Whether the proxy is exact, and why: by the sign test or, where that cannot decide, by the proven value.

        ``tolerance`` is the relative gap that was asked for.
        """
        if self.exact is not None:
            return self.exact, self.sentence
        excess = self.nuclear_norm / max(proof.bound, 1e-300) - 1.0
        if excess <= 2.0 * tolerance:
            return True, f"The proxy is optimal within {max(excess, 0.0):.1e} (the sign test cannot decide)."
        if self.nuclear_norm > proof.value:
            above = self.nuclear_norm / proof.value - 1
            return False, (
                f"The proxy is not exact: its nuclear norm is a relative {above:.1e} above that of feasible logits."
            )
        return False, "This gap does not decide whether the proxy is exact."


def proxy_exactness(problem: NuclearSVM) -> ProxyExactness:
    """The sign test ``U V^T <= 0`` off support, on the merged and scaled pattern."""
    rows, columns = problem.shape
    if columns == 0:
        return ProxyExactness(True, 0.0, True, 0, 0.0)
    polar, s = _polar_factor(problem)
    rank = int(s.size)
    off = problem.each(lambda part, block: part.backend.xp.where(part.S, -np.inf, block), problem.layout.split(polar))
    largest = max(problem.backend.largest(off[k]) for k in range(len(off)))
    decisive = rank in (rows - 1, columns)
    exact = True if largest <= SIGN_TOLERANCE else (False if decisive else None)
    return ProxyExactness(exact, largest, decisive, rank, float(s.sum()))


def _polar_factor(problem: NuclearSVM) -> tuple[Array, Float]:
    """``U V^T`` of the scaled proxy and its nonzero singular values; from the Gram matrix where an SVD is slow."""
    backend = problem.backend
    if problem.layout.several:
        M = Computed(problem.layout, lambda k: problem.part(k).proxy())
        root, s = backend.polar_root(M)
        return mapped(lambda block: root @ block, M), backend.to_numpy(s)
    M = problem.proxy()
    if backend.device is None and min(M.shape) <= SVD_SIDE:
        U, s, Vt = np.linalg.svd(M, full_matrices=False)
        rank = int((s > RANK_TOLERANCE * s[0]).sum())
        return U[:, :rank] @ Vt[:rank], s[:rank]
    polar, s = backend.polar_factor(M)
    return polar, backend.to_numpy(s)


@dataclass(frozen=True)
class ProxySettings:
    """Settings of `predict_proxy`."""

    components: int = option(32, "Number of leading singular vectors of the proxy.")
    seed: int = option(0, "Seed of the start vector of the sparse SVD.")

    def __post_init__(self) -> None:
        check_seed(self.seed)


@dataclass(frozen=True, eq=False, repr=False)
class ProxyPrediction(AnswersQuestions, AbstractResult):
    """Leading geometry of the proxy ``S~``, which stands for that of L_mm where L_mm is too large to solve for.

    ``U``, ``singular_values``, ``Vt``
        The k leading singular triplets of S~, V x k, k (falling) and k x m.
    ``captured``
        Share of ``||S~||_F^2`` in these, in (0, 1]; 1 means that nothing was cut off.
    ``statistics_hash``
        Hash of the statistics that the prediction is for.
    ``stats``
        The statistics themselves; None in a prediction that was loaded.
    """

    kind: ClassVar[str] = "tokengeom-proxy"
    title: ClassVar[str] = "Proxy prediction"

    U: Float
    singular_values: Float
    Vt: Float
    captured: float
    statistics_hash: str | None = None
    stats: NextTokenStatistics | None = None

    @property
    def W(self) -> Float:
        """Token embeddings ``U Sigma^{1/2}``, V x k."""
        return np.asarray(self.U * np.sqrt(self.singular_values))

    @property
    def H(self) -> Float:
        """Context embeddings ``Sigma^{1/2} V^T``, k x m."""
        return np.asarray(np.sqrt(self.singular_values)[:, None] * self.Vt)

    @cached_property
    def context_groups(self) -> Int:
        """Group of each context, m: contexts with equal supports have equal columns; -1 is a full support."""
        columns = np.round(self.Vt / max(float(np.abs(self.Vt).max(initial=0.0)), 1e-300), 9) + 0.0
        seen: dict[bytes, int] = {}
        groups = [seen.setdefault(column.tobytes(), len(seen)) for column in np.ascontiguousarray(columns.T)]
        return np.where(columns.any(axis=0), np.array(groups, dtype=np.int64), -1)

    def to_dict(self) -> dict[str, Any]:
        return {
            "is_proxy": True,
            "singular_values": self.singular_values.tolist(),
            "captured": self.captured,
            "vocabulary": int(self.U.shape[0]),
            "contexts": int(self.Vt.shape[1]),
            "statistics_hash": self.statistics_hash,
        }

    def summary(self) -> str:
        """What this is and how much of S~ it holds."""
        share = rounded_percent(self.captured, 1)
        return (
            f"Proxy geometry, not the certified L_mm: {self.singular_values.size} leading concepts of S~ "
            f"({self.U.shape[0]} tokens x {self.Vt.shape[1]} contexts), {share} of its squared norm."
        )

    @property
    def _source(self) -> str:
        return "predicted by the proxy"

    def _pulls(self) -> str:
        return "The proxy has no optimality conditions, which would say what pulls an item: predict L_mm for them."

    def _logits_after(self, j: int) -> dict[str, Float]:
        return {"direction": np.asarray(self.U @ (self.singular_values * self.Vt[:, j]))}

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("contexts", f"{self.Vt.shape[1]}"),
            ("tokens", f"{self.U.shape[0]}"),
            ("components", f"{self.singular_values.size}"),
            ("captured share", rounded_percent(self.captured, 1)),
            ("leading singular values", ", ".join(f"{value:.4g}" for value in self.singular_values[:5])),
            ("certificate", "none: the proxy proves nothing about L_mm"),
        ]

    def _write(self, folder: Path) -> dict[str, Any]:
        write_arrays(folder / ARRAYS, {"U": self.U, "singular_values": self.singular_values, "Vt": self.Vt})
        return entries_of(ProxyEntries, self)

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> ProxyPrediction:
        saved, arrays = from_manifest(ProxyEntries, manifest, folder), SavedArrays(folder / ARRAYS)
        arrays.only("U", "singular_values", "Vt")
        U = arrays.floats("U", (None, None), -UNIT_ENTRY, UNIT_ENTRY)
        s = arrays.floats("singular_values", (U.shape[1],), 0.0)
        Vt = arrays.floats("Vt", (U.shape[1], None), -UNIT_ENTRY, UNIT_ENTRY)
        if 0 in U.shape or 0 in Vt.shape:
            raise arrays.damaged(f"singular vectors of the shapes {U.shape} and {Vt.shape} are none")
        return cls(U, s, Vt, saved.captured, saved.statistics_hash)


@dataclass(frozen=True)
class ProxyEntries:
    """Entries of the manifest of a `ProxyPrediction`."""

    captured: Annotated[float, Within(0.0, 1.0)]
    statistics_hash: Digest | None


@takes(ProxySettings)
def predict_proxy(stats: NextTokenStatistics | str | Path, **settings: Unpack[ProxyKeywords]) -> ProxyPrediction:
    """Predict the leading geometry from the proxy ``S~``, for statistics that are too large to solve for L_mm.

    Parameters
    ----------
    stats
        Next-token statistics, or the folder of saved ones.
    """
    chosen = make(ProxySettings, settings, "predict_proxy")
    given = statistics_of(stats, "predict_proxy")
    if not 1 <= chosen.components < min(given.V, given.m):
        raise ProblemError(
            f"A truncated SVD needs 1 <= components < min(V, m) = {min(given.V, given.m)}; got "
            f"components={chosen.components}. Use fewer, or predict, which is exact at this size."
        )
    if (given.support_sizes == given.V).all():
        raise ProblemError(
            f"The proxy needs contexts that not every token follows; here each of the {given.m} contexts is followed "
            f"by all {given.V} tokens, and the proxy is 0. Take longer contexts, or predict at a loss gap."
        )
    U, s, Vt = leading_triplets(given.S, chosen.components, seed=chosen.seed)
    return ProxyPrediction(U, s, Vt, captured_share(given, s), given.hash, given)


def predict_leading_proxy(stats: NextTokenStatistics, progress: AbstractProgress) -> ProxyPrediction:
    """The proxy that stands in for L_mm where that would take minutes."""
    with progress.stage("Predicting the proxy", None):
        return predict_proxy(stats, components=min(PROXY_COMPONENTS, min(stats.V, stats.m) - 1))


def captured_share(stats: NextTokenStatistics, s: Float) -> float:
    """Share of the squared norm of the proxy in singular values."""
    k = stats.support_sizes.astype(np.float64)
    energy = float((k * (1.0 - k / stats.V)).sum())
    return min(float((s**2).sum() / energy), 1.0) if energy > 0 else 1.0


def leading_triplets(M: Matrix | SparseProduct, components: int, *, seed: int = 0) -> tuple[Float, Float, Float]:
    """Leading singular triplets (V x k, k, k x m), falling, of ``(I - 11^T/V) M`` for a sparse V x m matrix M."""
    from scipy.sparse.linalg import svds

    operator = centred_operator(M)
    start = np.random.default_rng(seed).standard_normal(min(operator.shape))
    # Products of such thin matrices take twice as long on two threads as on one.
    with blas_threads_for(min(operator.shape), components):
        U, s, Vt = svds(operator, k=components, v0=start)
    order = np.argsort(s)[::-1]
    U, s, Vt = (np.asarray(part, dtype=np.float64) for part in (U[:, order], s[order], Vt[order]))
    return U, s, Vt


def centred_operator(M: Matrix | SparseProduct) -> LinearOperator:
    """Products with ``(I - 11^T/V) M`` and its transpose, for a sparse V x m matrix M."""
    from scipy.sparse.linalg import LinearOperator

    table = M if isinstance(M, SparseProduct) else csc_array(M).astype(np.float64)
    V, m = table.shape
    turned = table.T if isinstance(table, SparseProduct) else table.T.tocsc()
    total = turned @ np.ones(V)

    def centred(x: Float) -> Float:
        return np.asarray(table @ x - (total @ x) / V)

    def back(y: Float) -> Float:
        return np.asarray(turned @ y - total * (y.sum() / V))

    made: Any = LinearOperator(
        (V, m), matvec=lambda x: centred(x.ravel()), rmatvec=lambda y: back(y.ravel()), dtype=np.float64
    )
    return made


def norm_of_rest(operator: LinearOperator, U: Float, s: Float, Vt: Float) -> float:
    """Spectral norm of a matrix without some of its singular triplets, by the power method: never more than it is."""
    x = np.random.default_rng(0).standard_normal(operator.shape[1])
    size = 0.0
    for _ in range(POWER_STEPS):
        x = x / max(float(np.linalg.norm(x)), 1e-300)
        y = operator.matvec(x) - U @ (s * (Vt @ x))
        size = float(np.linalg.norm(y))
        x = operator.rmatvec(y) - Vt.T @ (s * (U.T @ y))
    return size
