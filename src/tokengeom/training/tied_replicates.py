"""Replicates of the tied model ``L = W f(A Phi)`` trained in one batch, on any torch device.

where
    W      heads, R x V x d
    A      embeddings of features, transposed, R x (F + 1) x d; the last row is that of no feature, and stays 0
    gain   of the last norm f, R x d; none without one

One sparse product gives the contexts of all replicates: of ``Phi^T`` (m x F) with the replicates' embeddings side by
side (F x R d). Logits are made for some contexts at a time, so their memory does not grow with m. Gradients are written
out; they, the starts and the sampled windows are those that `train` has with the same seeds.
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
from tokengeom.training.train import build_network, generators

if TYPE_CHECKING:
    from tokengeom.statistics.next_token import NextTokenStatistics
    from tokengeom.training.settings import TrainingSettings

BLOCK = {"cpu": 2**21, "cuda": 2**25}
"""Logits of all replicates that are made at a time."""
PORTION = 64
"""Steps whose windows are drawn at a time."""
_COPIES, _STATES = 8, 7
"""Tensors of the size of all weights, and of all contexts' vectors, that a step holds."""


def replicate_bytes(V: int, m: int, F: int, dim: int, itemsize: int) -> int:
    """Bytes that each replicate takes, beside the logits of a block."""
    return itemsize * dim * (_COPIES * (V + F) + _STATES * m)


class TiedReplicates:
    """Trainings of the tied model that differ in their seeds alone, at their starts.

    ``step``
        Steps made so far.
    ``optimization``
        Optimizer, rates and steps, which are the same for all.
    ``places``
        Place of each replicate that is still trained, among the settings given.
    """

    def __init__(self, stats: NextTokenStatistics, settings: Sequence[TrainingSettings]) -> None:
        self._torch = torch = import_torch("torch", "Training on a GPU, or many replicates in one batch,")
        first = settings[0]
        self._device = checked_device(torch, first.device)
        self._dtype = torch.float64 if first.precision == "float64" else torch.float32
        self.optimization, self._labels = first.optimization(), SoftLabels.from_statistics(stats)
        self._scale = float(self._labels.windows) if first.reduction == "sum" else 1.0
        self.step, self.places = 0, list(range(len(settings)))
        self._batch = first.batch
        self._samplers = [WindowSampler(self._labels, generators(each.seed)[1]) for each in settings if each.batch]
        for r, each in enumerate(settings):
            network = build_network(stats, each)
            if r == 0:
                self._place_features(network)
                self._allocate(len(settings), network)
            self._place_start(r, network)
        self._place_labels()

    @property
    def work(self) -> float:
        """Multiplications per step."""
        R, V, d = self._W.shape
        return 3.0 * int(R * d * (V + self._numbers.shape[1])) * (self._batch or self._labels.m)

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
        self._put([buffer[which] for buffer in (self._theta, self._gradient, self._first, self._second)])
        self._place_labels()

    # ---- placing -----------------------------------------------------------------------------------------------------
    def _tensor(self, array: Any) -> Any:
        return self._torch.as_tensor(np.asarray(array), dtype=self._dtype, device=self._device)

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

    def _allocate(self, R: int, network: Network) -> None:
        weights = network.kept()
        self._shapes = {"W": network.W.shape, "A": (weights["A"].shape[1] + 1, network.dim)}
        self._shapes |= {"gain": (network.dim, 1)} if "gain" in weights else {}
        size, slots = sum(rows * d for rows, d in self._shapes.values()), self.optimization.optimizer.slots
        held = (size, size, size if slots > 0 else 0, size if slots > 1 else 0)
        self._put([self._torch.zeros((R, n), dtype=self._dtype, device=self._device) for n in held])

    def _put(self, buffers: list[Any]) -> None:
        self._theta, self._gradient, self._first, self._second = buffers
        self._W, self._A, gain = self._matrices(self._theta)
        self._gW, self._gA, self._ggain = self._matrices(self._gradient)
        self._gain = None if gain is None else gain[:, :, 0]

    def _matrices(self, flat: Any) -> list[Any]:
        """W, A and gain in a flat buffer, each R x rows x columns; None for a gain that there is not."""
        found, at = list[Any](), 0
        for rows, columns in self._shapes.values():
            found.append(flat[:, at : at + rows * columns].unflatten(1, (rows, columns)))
            at += rows * columns
        return found if len(found) == len(("W", "A", "gain")) else [*found, None]

    def _place_start(self, r: int, network: Network) -> None:
        weights = network.kept()
        self._W[r], self._A[r, :-1] = self._tensor(network.W), self._tensor(weights["A"].T)
        if self._gain is not None:
            self._gain[r] = self._tensor(weights["gain"])

    def _place_labels(self) -> None:
        """Some contexts at a time: their weights, and places and shares of their pairs."""
        torch, labels = self._torch, self._labels
        weight, V = labels.weight * self._scale, labels.V
        target = labels.share * weight[labels.context]
        size = max(BLOCK["cpu" if self._device.type == "cpu" else "cuda"] // (V * len(self.places)), 1)
        self._blocks = []
        for begin in range(0, labels.m, size):
            which = slice(begin, min(begin + size, labels.m))
            pairs = slice(int(labels.start[which.start]), int(labels.start[which.stop]))
            flat = (labels.context[pairs] - begin) * V + labels.token[pairs]
            place = torch.as_tensor(flat, device=self._device)
            self._blocks.append((which, self._tensor(weight[which]), place, self._tensor(target[pairs])))
        self._context = torch.as_tensor(labels.context, device=self._device)
        self._token = torch.as_tensor(labels.token, device=self._device)

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
        self._ggain.copy_((gH * Y).sum(1).unsqueeze(2))
        gY = gH * self._gain[:, None]
        return (gY - Y * (gY * Y).mean(2, keepdim=True)).mul_(inverse)

    def _make_step(self, c: Any, drawn: Any) -> None:
        if drawn is None:
            self._exact_gradient()
        else:
            self._sampled_gradient(drawn)
        self._gA[:, -1] = 0.0
        optimizer = self.optimization.optimizer
        if not optimizer.decoupled:
            self._gradient.add_(c[0] * self._theta)
        if optimizer.matrixwise:
            flat = (self._theta, self._gradient, self._first)
            for x, g, first in zip(*map(self._matrices, flat), strict=True):
                if x is not None:
                    optimizer.torch_update(x, g, first, None, c, None)
            return
        norm = self._gradient.norm(dim=1, keepdim=True) if optimizer.needs_norm else None
        optimizer.torch_update(self._theta, self._gradient, self._first, self._second, c, norm)

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
        torch, (R, F, d) = self._torch, self._A.shape
        offsets = F * torch.arange(R, device=self._device)
        numbers = (self._numbers[self._context[drawn]] + offsets[:, None, None]).flatten(0, 1)
        weights = None if self._equal else self._spans.expand(numbers.shape)
        X = torch.nn.functional.embedding_bag(
            numbers, self._A.reshape(R * F, d), mode="sum", per_sample_weights=weights
        )
        H, Y, inverse = self._states(X.unflatten(0, (R, -1)))
        G = torch.softmax(H @ self._W.mT, 2)
        G.scatter_add_(2, self._token[drawn].unsqueeze(2), G.new_full((*drawn.shape, 1), -1.0))
        G.mul_(self._scale / drawn.shape[1])
        self._gW.copy_(G.mT @ H)
        gX = self._back(G @ self._W, Y, inverse).flatten(0, 1).unsqueeze(1)
        each = (gX if self._equal else gX * self._spans[:, None]).expand(-1, numbers.shape[1], -1)
        self._gA.zero_()
        for r, (rows, added) in enumerate(zip(numbers.unflatten(0, (R, -1)), each.unflatten(0, (R, -1)), strict=True)):
            self._gA[r].index_add_(0, rows.flatten() - r * F, added.flatten(0, 1))
