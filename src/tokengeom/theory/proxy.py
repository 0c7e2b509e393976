"""The proxy's leading singular vectors for corpora beyond the solver's size, without a dense matrix.

``S~ = (I - 11^T/V) S ~ U Sigma V^T``, k leading triplets

where ``S`` is the sparse support, V x m, and centring is applied inside the products (``leading_triplets``):
``S~ x = S x - 1 (k^T x)/V`` and ``S~^T y = S^T y - k (1^T y)/V`` with ``k`` the support sizes, m.

This is the proxy, not L_mm: feasible, every margin exactly 1, but its nuclear norm is only an upper bound. It
stands for L_mm as far as the two agree [zhao2025].
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.folders import write_manifest, written_beside
from tokengeom.html_table import html_table

if TYPE_CHECKING:
    from tokengeom.numerics import Float


FORMAT = "tokengeom-proxy"


@dataclass(frozen=True)
class ProxyPrediction:
    """Leading geometry of the proxy ``S~``; ``is_proxy`` is always True, so that no one takes it for L_mm.

    ``singular_values``
        The k largest of S~, falling.
    ``captured``
        Their share of ``||S~||_F^2``, in (0, 1]: 1 means that nothing was cut off.
    """

    U: Float
    singular_values: Float
    Vt: Float
    captured: float
    is_proxy: bool = True

    @property
    def W(self) -> Float:
        """Token embeddings ``U Sigma^{1/2}``, V x k."""
        return np.asarray(self.U * np.sqrt(self.singular_values))

    @property
    def H(self) -> Float:
        """Context embeddings ``Sigma^{1/2} V^T``, k x m."""
        return np.asarray(np.sqrt(self.singular_values)[:, None] * self.Vt)

    def to_dict(self) -> dict[str, Any]:
        """The numbers of the prediction as plain data."""
        return {
            "is_proxy": True,
            "singular_values": self.singular_values.tolist(),
            "captured": self.captured,
            "vocabulary": int(self.U.shape[0]),
            "contexts": int(self.Vt.shape[1]),
        }

    def _repr_html_(self) -> str:
        rows = [
            ("leading singular values", ", ".join(f"{value:.4g}" for value in self.singular_values[:5])),
            ("share of the energy", f"{self.captured:.1%}"),
            ("proof", "none: the proxy claims nothing of L_mm"),
        ]
        return html_table("Proxy prediction", rows, [self.summary()])

    def save(self, folder: str | Path) -> None:
        """Write the singular vectors; there is no certificate to keep, since the proxy claims nothing of L_mm."""
        from safetensors.numpy import save_file

        arrays = {"U": self.U, "singular_values": self.singular_values, "Vt": self.Vt}
        with written_beside(Path(folder), FORMAT) as work:
            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, work / "proxy.safetensors")
            write_manifest(work, FORMAT, 1, {"captured": self.captured})

    def summary(self) -> str:
        """Put the prediction in plain words."""
        return (
            f"Proxy geometry, not the certified L_mm: {self.singular_values.size} leading concepts of S~ "
            f"({self.U.shape[0]} tokens x {self.Vt.shape[1]} contexts), {self.captured:.1%} of its energy."
        )


def predict_proxy(S: Any, *, components: int = 32, seed: int = 0) -> ProxyPrediction:
    """Take the leading singular vectors of the implicitly centred sparse support.

    ``S`` is the V x m pattern, or statistics that hold it as ``.S``.
    """
    from scipy.sparse import csc_array

    pattern = csc_array(S.S if hasattr(S, "S") else S).astype(np.float64)
    pattern.eliminate_zeros()
    pattern.data[:] = 1.0
    V, m = pattern.shape
    if not 1 <= components < min(V, m):
        raise ProblemError(
            f"A truncated SVD needs 1 <= components < min(V, m) = {min(V, m)}; got components={components}. "
            "Ask for fewer, or use predict_features, which is exact at this size."
        )
    k = np.asarray(pattern.sum(axis=0)).ravel()
    if (k == 0).any():
        raise ProblemError(
            f"Every context must have at least one next token; column {int(np.argmin(k))} of S is empty. "
            "Likely a support policy that removed all of its tokens. Drop these contexts."
        )
    U, s, Vt = leading_triplets(pattern, components, seed=seed)
    energy = float((k * (1.0 - k / V)).sum())
    captured = float((s**2).sum() / energy) if energy > 0 else 1.0
    return ProxyPrediction(U, s, Vt, min(captured, 1.0))


def leading_triplets(M: Any, components: int, *, seed: int = 0) -> tuple[Float, Float, Float]:
    """Leading singular triplets (V x k, k, k x m), falling, of ``(I - 11^T/V) M`` for a sparse V x m matrix M."""
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import LinearOperator, svds

    table = csc_array(M)
    V, m = table.shape
    turned, total = table.T.tocsc(), np.asarray(table.sum(axis=0)).ravel()

    def centred(x: Float) -> Float:
        return np.asarray(table @ x - (total @ x) / V)

    def back(y: Float) -> Float:
        return np.asarray(turned @ y - total * (y.sum(axis=0) / V))

    operator: Any = LinearOperator(
        (V, m),
        matvec=lambda x: centred(x.ravel()),
        rmatvec=lambda y: back(y.ravel()),
        dtype=np.float64,
    )
    start = np.random.default_rng(seed).standard_normal(min(V, m))
    U, s, Vt = svds(operator, k=components, v0=start)
    order = np.argsort(s)[::-1]
    U, s, Vt = (np.asarray(part, dtype=np.float64) for part in (U[:, order], s[order], Vt[order]))
    return U, s, Vt
