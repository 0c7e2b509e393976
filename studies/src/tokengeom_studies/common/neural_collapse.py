"""Neural collapse: how far a run on one-hot labels has the geometry of the simplex frame [papyan2020]."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from tokengeom.extending import Float, Int, ProblemError, group_means, unit_columns


@dataclass(frozen=True)
class NeuralCollapse:
    """The four measures of neural collapse for one-hot labels [papyan2020]; each is 0 at complete collapse.

    ``NC1``
        ``tr(Sigma_W Sigma_B^+) / C`` of the features: variation within classes relative to that between classes.
    ``NC2``
        ``||K/||K|| - E/||E|| ||_F`` of the Gram K of the centred class means and of the simplex frame's
        ``E = I - 11^T/C``; in [0, 2].
    ``NC2_norms``, ``NC2_angles``
        Its two parts: coefficient of variation of the means' norms; mean ``|cos(mu_c, mu_c') + 1/(C-1)|``.
    ``NC3``
        Self-duality: ``||W_c^T/||W_c|| - M/||M|| ||_F`` of the centred rows of W and the class means M; in [0, 2].
    ``NC4``
        Share of contexts whose largest logit is not that of the nearest class mean; in [0, 1].
    """

    NC1: float
    NC2: float
    NC2_norms: float
    NC2_angles: float
    NC3: float
    NC4: float

    def to_dict(self) -> dict[str, float]:
        """The numbers by name."""
        return asdict(self)


def neural_collapse(W: Float, H: Float, labels: Int) -> NeuralCollapse:
    """NC1 to NC4 of a decoder W (V x d) and features H (d x m) with one class per context, ``labels`` in 0..V-1.

    Classes without a context are left out together with their rows of W. Means are centred by the mean over classes,
    which equals the mean over contexts when classes have equal sizes, as in the paper. NaN with fewer than two classes.
    """
    W, H, labels = np.asarray(W, np.float64), np.asarray(H, np.float64), np.asarray(labels)
    _check_classes(W, H, labels)
    classes, group = np.unique(labels, return_inverse=True)
    if classes.size < 2:
        return NeuralCollapse(*[float("nan")] * 6)
    means = group_means(H, group.reshape(-1))
    centre = means.mean(axis=1, keepdims=True)
    M, decoder = means - centre, W[classes] - W[classes].mean(axis=0)
    angles, norms = _equiangularity(M)
    logits = W[classes] @ H
    distance = np.sum(means**2, axis=0)[:, None] - 2.0 * means.T @ H
    return NeuralCollapse(
        NC1=_within_by_between(H - means[:, group.reshape(-1)], M),
        NC2=_normalised_distance(M.T @ M, np.eye(classes.size) - 1.0 / classes.size),
        NC2_norms=norms,
        NC2_angles=angles,
        NC3=_normalised_distance(decoder.T, M),
        NC4=float(np.mean(np.argmax(logits, axis=0) != np.argmin(distance, axis=0))),
    )


def _within_by_between(residual: Float, M: Float) -> float:
    """``tr(Sigma_W Sigma_B^+) / C`` without a d x d matrix: ``Sigma_B^+ = C U diag(1/s^2) U^T`` of ``M = U s V^T``."""
    U, s, _ = np.linalg.svd(M, full_matrices=False)
    kept = s > 1e-10 * s[0] if s.size and s[0] > 0 else np.zeros(s.size, bool)
    if not kept.any():
        return float("nan")
    coordinates = (U[:, kept].T @ residual) / s[kept][:, None]
    return float(np.sum(coordinates**2) / residual.shape[1])  # the C of Sigma_B^+ and of 1/C cancel


def _equiangularity(M: Float) -> tuple[float, float]:
    C = M.shape[1]
    norms = np.linalg.norm(M, axis=0)
    X = unit_columns(M)
    off = (X.T @ X)[~np.eye(C, dtype=bool)]
    size = float(norms.mean())
    return float(np.mean(np.abs(off + 1.0 / (C - 1)))), float(norms.std()) / size if size > 0 else float("nan")


def _normalised_distance(A: Float, B: Float) -> float:
    size = float(np.linalg.norm(A)), float(np.linalg.norm(B))
    return float(np.linalg.norm(A / size[0] - B / size[1])) if min(size) > 0 else float("nan")


def _check_classes(W: Float, H: Float, labels: Int) -> None:
    if W.ndim != 2 or H.ndim != 2 or W.shape[1] != H.shape[0] or labels.shape != (H.shape[1],):
        raise ProblemError(
            f"W must be V x d, H d x m and labels m; got W {W.shape}, H {H.shape} and labels {labels.shape}. "
            "Likely a transposed matrix."
        )
    if labels.dtype.kind not in "iu" or (labels.size and not 0 <= labels.min() <= labels.max() < W.shape[0]):
        raise ProblemError(
            f"labels must be token numbers between 0 and V-1 = {W.shape[0] - 1}, one per context; got {labels.dtype} "
            f"from {labels.min(initial=0)} to {labels.max(initial=0)}. Neural collapse is about one-hot data only."
        )
