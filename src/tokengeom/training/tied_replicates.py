"""Replicates of the tied model ``L = W f(A Phi)`` trained in one batch, on any torch device.

where
    W      heads, R x V x d
    A      embeddings of features, transposed, R x (F + 1) x d; the last row is that of no feature, and stays 0
    gain   of the last norm f, R x d; none without one

One sparse product gives the contexts of all replicates: of ``Phi^T`` (m x F) with the replicates' embeddings side by
side (F x R d); features that were given as a matrix are multiplied as a full one. Logits are made for some contexts
at a time, so their memory does not grow with m. Gradients are written out; they, the starts and the sampled windows
are those that `train` has with the same seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.core.numerics import Arrays, Float, Int
from tokengeom.models.network import Network
from tokengeom.models.networks.base import checked_device, import_torch, threads_for
from tokengeom.models.networks.tied import EPSILON
from tokengeom.training.objective import SoftLabels, WindowSampler
from tokengeom.training.torch_engine import FlatParameters, PlacedLabels
from tokengeom.training.train import build_network, generators

if TYPE_CHECKING:
    from tokengeom.statistics.context_features import ContextFeatures
    from tokengeom.statistics.next_token import NextTokenStatistics
    from tokengeom.training.settings import TrainingSettings

BLOCK = {"cpu": 2**21, "cuda": 2**25}
"""Logits of all replicates that are made at a time."""
PORTION = 64
"""Steps whose windows are drawn at a time."""
_COPIES, _STATES = 8, 7
"""Tensors of the size of all weights, and of all contexts' vectors, that a step holds."""


def replicate_bytes(V: int, m: int, F: int, dim: int, itemsize: int, *, full: bool = False) -> int:
    """Bytes that each replicate takes, beside the logits of a block; with a ``full`` matrix, its bytes too."""
    return itemsize * dim * (_COPIES * (V + F) + _STATES * m) + full * itemsize * m * (F + 1)


class TiedReplicates:
    """Trainings of the tied model that differ in their seeds alone, at their starts.

    ``step``          Steps made so far.
    ``optimization``  Optimizer, rates and steps, which are the same for all.
    ``places``        Place of each replicate that is still trained, among the settings given.
    """

    def __init__(
        self, stats: NextTokenStatistics, settings: Sequence[TrainingSettings], own: ContextFeatures | None = None
    ) -> None:
        self._torch = torch = import_torch("torch", "Training on a GPU, or many replicates in one batch,")
        first = settings[0]
        self._device = checked_device(torch, first.device)
        self._kind = {"dtype": torch.float64 if first.precision == "float64" else torch.float32, "device": self._device}
        self.optimization, self._labels = first.optimization(), SoftLabels.from_statistics(stats)
        self._scale = float(self._labels.windows) if first.reduction == "sum" else 1.0
        self.step, self.places = 0, list(range(len(settings)))
        self._batch = first.batch
        self._samplers = [WindowSampler(self._labels, generators(each.seed)[1]) for each in settings if each.batch]
        for r, each in enumerate(settings):
            network = build_network(stats, each, features=own)
            if r == 0:
                if own is None:
                    self._place_features(network)
                else:
                    self._place_matrix(own)
                self._allocate(len(settings), network)
            self._place_start(r, network)
        self._place_labels()

    @property
    def work(self) -> float:
        """Multiplications per step."""
        R, V, d = self._W.shape
        each = self._turned.shape[1] if self._numbers is None else self._numbers.shape[1]
        return 3.0 * int(R * d * (V + each)) * (self._batch or self._labels.m)

    def advance(self, to: int) -> Iterator[int]:
        """Make the steps up to a number of them; yields how many were made, some at a time."""
        while self.step < to:
            count = min(PORTION, to - self.step)
            table = self._tensor(self.optimization.coefficients(self.step, self.step + count))
            drawn = [sampler.draw(count, self._batch or 0) for sampler in self._samplers]
            windows = self._torch.as_tensor(np.stack(drawn, 1), device=self._device) if drawn else None
            with self._torch.no_grad(), threads_for(self._torch, self.work):
                for t in range(count):
                    self._make_step(table[t], None if windows is None else windows[t])
            self.step += count
            yield count

    def loss_gaps(self) -> Float:
        """``CE - H`` of each replicate in nats, in double precision."""
        torch = self._torch
        with torch.no_grad(), threads_for(torch, self.work):
            W, H = self._W.double(), self._states(self._sums())[0].double()
            loss = torch.zeros(len(self.places), dtype=torch.float64, device=self._device)
            for which, weight, flat, share in self._blocks:
                L = H[:, which] @ W.mT
                loss += torch.logsumexp(L, 2) @ weight.double() - L.flatten(1)[:, flat] @ share.double()
        return np.asarray(loss.cpu().numpy() / self._scale - self._labels.entropy)

    def weights(self, r: int) -> Arrays:
        """Weights of the replicate that is the r-th of those still trained: W, A, and the gain of its norm."""
        found = {"W": self._W[r], "A": self._A[r, :-1].T}
        found |= {} if self._gain is None else {"gain": self._gain[r]}
        return {name: tensor.cpu().numpy().copy() for name, tensor in found.items()}

    def keep(self, kept: Sequence[int] | Int) -> None:
        """Go on with some of the replicates that are still trained."""
        self.places = [self.places[r] for r in kept]
        self._samplers = [self._samplers[r] for r in kept] if self._samplers else []
        which = self._torch.as_tensor(np.asarray(kept), device=self._device)
        self._parameters.keep(which)
        self._name_matrices()
        self._place_labels()

    # ---- placing -----------------------------------------------------------------------------------------------------
    def _tensor(self, array: Any) -> Any:
        return self._torch.as_tensor(np.asarray(array), **self._kind)

    def _place_features(self, network: Network) -> None:
        """The features of each context, as numbers and as ``Phi^T``, and its transpose."""
        torch, numbers = self._torch, network.inputs.rows
        m, none = len(numbers), network.inputs.tokens - 1
        self._numbers = torch.as_tensor(numbers, device=self._device)
        spans = np.asarray(network.inputs.spans)
        self._equal, self._spans = bool(np.all(spans == 1.0)), self._tensor(spans)
        row, span = np.nonzero(numbers != none)
        places = torch.as_tensor(np.stack([row, numbers[row, span]]), device=self._device)
        turned = torch.sparse_coo_tensor(places, self._tensor(spans[span]), (m, none + 1), check_invariants=False)
        self._turned, self._Phi = turned.coalesce(), turned.t().coalesce()

    def _place_matrix(self, own: ContextFeatures) -> None:
        """``Phi^T`` of features that were given as a matrix, with a column of zeros for no feature."""
        self._numbers = None
        self._turned = self._torch.nn.functional.pad(self._tensor(own.matrix.T.toarray()), (0, 1))
        self._Phi = self._turned.T

    def _allocate(self, R: int, network: Network) -> None:
        weights = network.kept()
        shapes = {"W": network.W.shape, "A": (weights["A"].shape[1] + 1, network.dim)}
        shapes |= {"gain": (network.dim, 1)} if "gain" in weights else {}
        self._parameters = FlatParameters(self.optimization.optimizer, R, shapes, **self._kind)
        self._placed = PlacedLabels(self._labels, self._scale, **self._kind)
        self._name_matrices()

    def _name_matrices(self) -> None:
        theta, gradient = map(self._parameters.matrices, (self._parameters.theta, self._parameters.gradient))
        self._W, self._A, self._gW, self._gA = theta["W"], theta["A"], gradient["W"], gradient["A"]
        gains: list[Any] = [x["gain"][:, :, 0] if "gain" in x else None for x in (theta, gradient)]
        self._gain, self._ggain = gains

    def _place_start(self, r: int, network: Network) -> None:
        weights = network.kept()
        self._W[r], self._A[r, :-1] = self._tensor(network.W), self._tensor(weights["A"].T)
        if self._gain is not None:
            self._gain[r] = self._tensor(weights["gain"])

    def _place_labels(self) -> None:
        """Some contexts at a time: their weights, and places and shares of their pairs."""
        logits = self._labels.V * len(self.places)
        size = max(BLOCK["cpu" if self._device.type == "cpu" else "cuda"] // logits, 1)
        parts = [slice(begin, min(begin + size, self._labels.m)) for begin in range(0, self._labels.m, size)]
        self._blocks = [(which, *self._placed.block(which)) for which in parts]

    # ---- a step ------------------------------------------------------------------------------------------------------
    def _sums(self) -> Any:
        """``A Phi`` of all contexts, R x m x d."""
        R, F, d = self._A.shape
        beside = self._A.transpose(0, 1).reshape(F, R * d)
        return (self._turned @ beside).unflatten(1, (R, d)).transpose(0, 1)

    def _states(self, X: Any) -> tuple[Any, Any, Any]:
        """``f(X)``; and X divided by its root mean square, and one over that."""
        if self._gain is None:
            return X, X, None
        inverse = self._torch.rsqrt(X.square().mean(2, keepdim=True) + EPSILON)
        Y = X * inverse
        return Y * self._gain[:, None], Y, inverse

    def _back(self, gH: Any, Y: Any, inverse: Any) -> Any:
        """The gradient by X, from that by ``f(X)``; writes that by the gain."""
        if self._gain is None:
            return gH
        self._ggain.copy_((gH * Y).sum(1))
        gY = gH * self._gain[:, None]
        return (gY - Y * (gY * Y).mean(2, keepdim=True)).mul_(inverse)

    def _make_step(self, c: Any, drawn: Any) -> None:
        if drawn is None:
            self._exact_gradient()
        else:
            self._sampled_gradient(drawn)
        self._gA[:, -1] = 0.0
        self._parameters.update(c)

    def _exact_gradient(self) -> None:
        """The gradient of the loss on all contexts."""
        torch = self._torch
        H, Y, inverse = self._states(self._sums())
        gH = torch.empty_like(H)
        self._gW.zero_()
        for which, weight, flat, share in self._blocks:
            G = torch.softmax(H[:, which] @ self._W.mT, 2).mul_(weight[:, None])
            G.flatten(1).index_add_(1, flat, -share.expand(len(G), -1))
            self._gW.add_(G.mT @ H[:, which])
            gH[:, which] = G @ self._W
        gX = self._back(gH, Y, inverse).transpose(0, 1).flatten(1)
        self._gA.copy_((self._Phi @ gX).unflatten(1, (len(H), -1)).transpose(0, 1))

    def _sampled_gradient(self, drawn: Any) -> None:
        """The mean gradient over drawn windows, R x batch."""
        torch, contexts = self._torch, self._placed.context[drawn]
        H, Y, inverse = self._states(self._drawn_sums(contexts))
        G = torch.softmax(H @ self._W.mT, 2)
        G.scatter_add_(2, self._placed.token[drawn].unsqueeze(2), G.new_full((*drawn.shape, 1), -1.0))
        G.mul_(self._scale / drawn.shape[1])
        self._gW.copy_(G.mT @ H)
        self._add_to_features(contexts, self._back(G @ self._W, Y, inverse))

    def _drawn_sums(self, contexts: Any) -> Any:
        """``A Phi`` of drawn contexts, R x batch x d."""
        if self._numbers is None:
            return self._turned[contexts] @ self._A
        R, F, d = self._A.shape
        offsets = F * self._torch.arange(R, device=self._device)
        numbers = (self._numbers[contexts] + offsets[:, None, None]).flatten(0, 1)
        weights = None if self._equal else self._spans.expand(numbers.shape)
        table = self._A.reshape(R * F, d)
        bag = self._torch.nn.functional.embedding_bag
        return bag(numbers, table, mode="sum", per_sample_weights=weights).unflatten(0, (R, -1))

    def _add_to_features(self, contexts: Any, gX: Any) -> None:
        """The gradient by A, from that by ``A Phi`` of drawn contexts."""
        if self._numbers is None:
            self._gA.copy_(self._turned[contexts].mT @ gX)
            return
        self._gA.zero_()
        for r, (rows, by_sum) in enumerate(zip(self._numbers[contexts], gX, strict=True)):
            each = by_sum[:, None] if self._equal else by_sum[:, None] * self._spans[:, None]
            self._gA[r].index_add_(0, rows.flatten(), each.expand(-1, rows.shape[1], -1).flatten(0, 1))
