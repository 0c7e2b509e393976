"""`PredictedStart`: the start of a model from predicted embeddings instead of random ones.

::

    W = a W_p R^T        H = b R H_p  (unconstrained features only)

where
    W_p    predicted tokens with their mean removed, V x r
    H_p    predicted contexts, r x m
    R      d x r with orthonormal columns, drawn from the seed; for d < r, W_p and H_p are first projected on the d
           leading right singular vectors of W_p
    a, b   scales that give W and H the Frobenius norms of their random start

So the cosines between tokens are the predicted ones, ``W H`` is proportional to the predicted logits, and two seeds
differ by a rotation. A network computes H from its own random weights.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors, HasFactors
from tokengeom.core.numerics import Float, centre_columns
from tokengeom.models.factored import AbstractFactoredModel
from tokengeom.models.network import Network
from tokengeom.results.contract import AbstractResult
from tokengeom.results.registry import load
from tokengeom.training.objective import SoftLabels
from tokengeom.training.settings import TrainingSettings

ROTATION_STREAM = (7, 2)
"""Spawn key of the generator that draws R; the weights of networks and their dropout have (7, 0) and (7, 1)."""


@dataclass(frozen=True, eq=False)
class PredictedStart:
    """Predicted tokens and contexts, checked to belong to the labels of a training.

    where
        W      predicted tokens with their mean removed, V x r
        H      predicted contexts, r x m
        kind   kind of the prediction, such as "tokengeom-at-loss"
        hash   SHA-256 of its arrays
    """

    W: Float
    H: Float
    kind: str
    hash: str

    @staticmethod
    def of(given: HasFactors | str | Path, labels: SoftLabels) -> PredictedStart:
        """From a prediction or the folder of a saved one; refused where it is for other statistics."""
        prediction = load(given) if isinstance(given, str | Path) else given
        kind = prediction.kind if isinstance(prediction, AbstractResult) else type(prediction).__name__
        if not isinstance(prediction, HasFactors):
            raise ProblemError(
                f"start must be a prediction with W and H, such as that of tg.predict(stats) or of its at(loss_gap); "
                f"got {kind}."
            )
        mine, other = labels.statistics_hash, getattr(prediction, "statistics_hash", None)
        if mine is not None and other is not None and mine != other:
            raise ProblemError(
                f"start and training must have the same statistics; their hashes are {other[:8]} and {mine[:8]}. "
                "Predict from the statistics that the model is trained on: start=tg.predict(stats)."
            )
        factors = Factors.of(prediction)
        sizes, wanted = (factors.W.shape[0], factors.H.shape[1]), (labels.V, labels.m)
        if sizes != wanted:
            raise ProblemError(
                f"start must have one row of W per token and one column of H per context, {wanted[0]} and {wanted[1]}; "
                f"it has {sizes[0]} and {sizes[1]}. Predict from the statistics that the model is trained on."
            )
        W = centre_columns(factors.W)
        if not (W.any() and factors.H.any()):
            raise ProblemError(
                "start has no directions: its tokens, or its contexts, are all equal. Predict at a smaller loss gap."
            )
        return PredictedStart(W, factors.H, kind, _hash_of(prediction))

    @property
    def directions(self) -> int:
        """Number of directions r that predicted embeddings have."""
        return int(self.W.shape[1])

    def record(self, dim: int) -> dict[str, Any]:
        """What the settings of a run say about its start."""
        used = min(dim, self.directions)
        return {"kind": self.kind, "hash": self.hash, "directions": self.directions, "used": used}

    def embeddings(self, dim: int, seed: int) -> tuple[Float, Float]:
        """W (V x d) and H (d x m) in a random orientation, at the prediction's own scale."""
        W, H = self.W, self.H
        if dim < self.directions:
            leading = np.linalg.svd(W, full_matrices=False)[2][:dim]
            W, H = W @ leading.T, leading @ H
        R = _rotation(dim, seed)[:, : W.shape[1]]
        return W @ R.T, R @ H

    def put_into_network(self, network: Network, seed: int) -> None:
        """Replace the random W of a network."""
        network.set_W(_scaled(self.embeddings(network.dim, seed)[0], network.W))

    def put_into_factors(self, model: AbstractFactoredModel, seed: int) -> None:
        """Replace the random W and H of unconstrained features."""
        W, H = self.embeddings(model.dim, seed)
        model.W, model.H = _scaled(W, model.W), _scaled(H, model.H)


def require_startable(settings: TrainingSettings) -> None:
    """Refuse models whose W and H are not free to start anywhere."""
    if settings.model == "linear":
        raise ProblemError(
            "model 'linear' has given embeddings, in which predicted tokens have no place. Use start with model='ufm' "
            "or a network, or leave it out."
        )
    if settings.tied:
        raise ProblemError(
            "start puts predicted tokens into W, and with tied=True W is part of the input embeddings. Use tied=False, "
            "or leave start out."
        )


def _hash_of(prediction: Any) -> str:
    """SHA-256 of the arrays that an object consists of, which saving keeps to the last bit."""
    fields = dataclasses.fields(prediction) if dataclasses.is_dataclass(prediction) else ()
    arrays = [getattr(prediction, field.name) for field in fields]
    arrays = [array for array in arrays if isinstance(array, np.ndarray)] or [prediction.W, prediction.H]
    parts = [f"{array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes() for array in arrays]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _rotation(dim: int, seed: int) -> Float:
    """A uniformly distributed orthogonal matrix, d x d."""
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=ROTATION_STREAM))
    Q, R = np.linalg.qr(generator.standard_normal((dim, dim)))
    # Without the signs, the distribution of Q would depend on how QR is computed.
    return np.asarray(Q * np.sign(np.diag(R)))


def _scaled(matrix: Float, usual: Float) -> Float:
    return np.asarray(matrix * (np.linalg.norm(usual) / np.linalg.norm(matrix)))
