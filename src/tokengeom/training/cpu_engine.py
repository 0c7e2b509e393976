"""CPU engine of factored models: explicit gradients, BLAS products and the update rule fused in one compiled loop."""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  the BLAS that compiled code calls, loaded before its threads are limited
from threadpoolctl import ThreadpoolController

from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Arrays, Float, Int
from tokengeom.models.factored import BLOCK_WORK, MOST_BLOCKS, AbstractFactoredModel
from tokengeom.training import kernels
from tokengeom.training.kernels import Kernel, Labels, ParameterBuffers, Plan, Work, fuse
from tokengeom.training.loop import AbstractEngine
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.base import AbstractOptimizer


class CpuEngine(AbstractEngine):
    """One replicate of a factored model on the CPU.

    where
        scale   factor of the loss: 1 for the mean over windows, n for the sum
        batch   number of raw windows per step, or None for the exact loss on all contexts
    """

    replicates = 1

    def __init__(
        self,
        model: AbstractFactoredModel,
        labels: SoftLabels,
        optimizer: AbstractOptimizer,
        *,
        scale: float = 1.0,
        batch: int | None = None,
        dtype: Any = np.float64,
    ) -> None:
        self._labels, self._optimizer, self._batch, self._dtype = labels, optimizer, batch, np.dtype(dtype)
        self._threads = ThreadpoolController()
        train_W, train_K = "W" in model.trainable, "H" in model.trainable
        eager = train_K and optimizer.elementwise and batch is None
        self._plan = Plan(train_W, train_K, eager, optimizer.needs_norm)
        W, K = self._array(model.W), self._array(model.H.T)
        self._factors = ParameterBuffers(W, K, self._slots(W, train_W), self._slots(K, train_K))
        self._rows = self._row_labels(scale)
        self._work = self._buffers(W, K)
        self._sampled = (self._zeros(batch or 0, K.shape[1]), self._zeros(batch or 0, K.shape[1]))

    def advance(self, table: Float, windows: list[Int] | None) -> None:
        """Run the compiled loop; BLAS uses one thread, since the blocks are what is distributed."""
        rows = self._array(table)
        parallel = self._work.edges.size > 2 and numba.get_num_threads() > 1
        kernel = _advance(type(self._optimizer), self._dtype.name, windows is not None, parallel)
        common = (self._factors, self._rows, self._work, self._plan, rows)
        with self._threads.limit(limits=1, user_api="blas"):
            if windows is None:
                kernel(*common)
            else:
                kernel(*common, windows[0], self._labels.context, self._labels.token, *self._sampled)

    def readout(self, replicate: int) -> Factors:
        W, K = (np.array(x, np.float64, order="C") for x in self._factors[:2])
        return Factors(W, np.ascontiguousarray(K.T))

    @property
    def _named(self) -> Arrays:
        W, K, (Wu, Wv), (Ku, Kv) = self._factors
        return {"W": W, "K": K, "W_first": Wu, "W_second": Wv, "K_first": Ku, "K_second": Kv}

    def state(self) -> Arrays:
        return {name: array.copy() for name, array in self._named.items()}

    def load(self, state: Arrays) -> None:
        for name, array in self._named.items():
            array[...] = state[name]

    def _array(self, x: Float) -> Any:
        return np.array(x, self._dtype, order="C")

    def _zeros(self, *shape: int) -> Any:
        return np.zeros(shape, self._dtype)

    def _slots(self, x: Any, trained: bool) -> tuple[Any, Any]:
        count = self._optimizer.slots if trained else 0
        shapes = [x.shape if count > k else (0, x.shape[1]) for k in range(2)]
        return self._zeros(*shapes[0]), self._zeros(*shapes[1])

    def _row_labels(self, scale: float) -> Labels:
        if self._batch is None:
            y = self._labels
            return Labels(self._array(y.weight * scale), y.start, y.token, self._array(y.share))
        each = np.arange(self._batch + 1, dtype=np.int64)
        ones = np.ones(self._batch)
        return Labels(self._array(ones * scale / self._batch), each, each[:-1].copy(), self._array(ones))

    def _buffers(self, W: Any, K: Any) -> Work:
        V, d = W.shape
        rows = self._rows.weight.size
        count = int(np.clip(round(6.0 * V * d * rows / BLOCK_WORK), 1, min(MOST_BLOCKS, rows)))
        edges = np.linspace(0, rows, count + 1).astype(np.int64)
        bits = np.zeros(rows * V, np.int64 if self._dtype == np.float64 else np.int32)
        gK = self._zeros(*(K.shape if self._plan.train_K else (0, d)))
        return Work(edges, self._zeros(rows, V), bits, self._zeros(count, V, d), self._zeros(V, d), gK)


@cache
def _advance(kind: type[AbstractOptimizer], dtype: str, sampled: bool, parallel: bool) -> Kernel:
    """The fused loop of one optimizer; compiled at its first call, then cached on disk."""
    update = kind().kernel()
    exp = kernels.exp64 if dtype == "float64" else kernels.exp32
    one_block = fuse(kernels.block, exp=exp)
    eager = update if kind.elementwise else kernels.unmoved  # not called otherwise, so not compiled twice
    all_blocks = fuse(kernels.blocks, parallel=parallel, block_kernel=one_block, update=eager)
    finish = fuse(kernels.finish, update=update)
    template = kernels.advance_sampled if sampled else kernels.advance
    return fuse(template, gradients=all_blocks, finish_kernel=finish)
