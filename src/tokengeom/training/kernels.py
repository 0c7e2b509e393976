"""Compiled kernels of factored models: the gradient of the soft-label loss, and the fused training loop.

With rows ``i = 1..r`` (contexts, or sampled windows), ``k_i`` the embedding of row i and ``w_i`` its weight::

    loss = sum_i w_i KL(p_i || softmax(W k_i))
    G_i  = w_i (softmax(W k_i) - p_i)          dW = sum_i G_i k_i^T          dk_i = W^T G_i

where
    W   decoder, V x d
    K   transpose of H: one contiguous row per context, m x d
    G   derivative by the logits, r x V

The rows are cut into blocks whose size depends on the problem alone. Blocks are distributed over the cores and their
partial sums are added in order, so the result does not depend on the number of cores.

Compiled functions are cached on disk, so only the first use on a machine waits for the compiler. Numba does not cache
functions that take other functions as arguments, and does not notice that a callee in another file has changed. `fuse`
solves both: it copies a template (such as `advance`), binds the callees (such as an optimizer's rule) as globals, and
names the copy after a hash of all its sources.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg"
from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

try:
    import numba
except ModuleNotFoundError:  # GPU machines may have torch and numpy only: optimizers are imported, torch runs them
    numba = None

Kernel = Callable[..., Any]

# Contraction to fused multiply-add is allowed; nothing is reordered, so repeated runs are identical.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}, "parallel": False}


def jit(function: Kernel) -> Kernel:
    """Compile at the first call, and cache the result on disk where a folder can be written."""
    return _compile(function)


def reduction_jit(function: Kernel) -> Kernel:
    """As `jit`, for a sum or a maximum whose terms may be taken in any order."""
    return _compile(function, fastmath={"contract", "reassoc", "nsz", "nnan"})


def fuse(template: Kernel, *, parallel: bool = False, **callees: Kernel) -> Kernel:
    """A compiled copy of ``template`` in which each name of ``callees`` is bound to the given kernel."""
    name = f"{template.__name__}{'_parallel' if parallel else ''}_{'_'.join(map(_label, callees.values()))}"
    sources = {Path(inspect.getfile(_plain(item))) for item in (template, *callees.values())}
    # A callee that was itself fused has the hash of its own sources in its qualified name.
    parts = [path.read_bytes() for path in sorted(sources)]
    parts += [_plain(callee).__qualname__.encode() for callee in callees.values()]
    digest = hashlib.blake2s(b"".join(parts), digest_size=6)
    bound = {**template.__globals__, **callees}
    copy = types.FunctionType(template.__code__, bound, name, template.__defaults__)
    copy.__qualname__ = f"{name}_{digest.hexdigest()}"
    copy.__module__ = template.__module__
    return _compile(copy, parallel=parallel)


def _compile(function: Kernel, **options: Any) -> Kernel:
    if numba is None:
        return function
    options = {**_OPTIONS, **options}
    try:
        compiled: Kernel = numba.njit(function, cache=True, **options)
    except RuntimeError:  # no folder for the cache can be written: compile in each process
        compiled = numba.njit(function, **options)
    return compiled


def _plain(kernel: Kernel) -> Kernel:
    plain: Kernel = getattr(kernel, "py_func", kernel)
    return plain


def _label(kernel: Kernel) -> str:
    plain = _plain(kernel)
    return f"{plain.__module__.rsplit('.', 1)[-1]}_{plain.__name__}"


_LOG2E = 1.4426950408889634
# ln 2 in two parts: the high part ends in zeros, so k * high is exact.
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LN2_HIGH32, _LN2_LOW32 = np.float32(0.693359375), np.float32(-2.12194440e-4)


@jit
def exp64(x, bits):
    """``x <- exp(x)`` for ``x <= 0``, to one unit in the last place, in a plain loop that the compiler vectorises."""
    power = bits.view(np.float64)
    for i in range(x.size):
        t = max(x[i], -708.0)
        k = np.floor(t * _LOG2E + 0.5)
        bits[i] = (np.int64(k) + 1023) << 52
        r = (t - k * _LN2_HIGH) - k * _LN2_LOW
        q = 1.0 / 39916800.0 + r * (1.0 / 479001600.0 + r * (1.0 / 6227020800.0))
        q = 1.0 / 362880.0 + r * (1.0 / 3628800.0 + r * q)
        q = 1.0 / 5040.0 + r * (1.0 / 40320.0 + r * q)
        q = 1.0 / 120.0 + r * (1.0 / 720.0 + r * q)
        q = 1.0 / 6.0 + r * (1.0 / 24.0 + r * q)
        x[i] = 1.0 + (r + r * r * (0.5 + r * q))
    for i in range(x.size):
        x[i] *= power[i]


@jit
def exp32(x, bits):
    """`exp64` in single precision."""
    power = bits.view(np.float32)
    one, half = np.float32(1.0), np.float32(0.5)
    for i in range(x.size):
        t = max(x[i], np.float32(-87.0))
        k = np.floor(t * np.float32(_LOG2E) + half)
        bits[i] = (np.int32(k) + np.int32(127)) << np.int32(23)
        r = (t - k * _LN2_HIGH32) - k * _LN2_LOW32
        q = np.float32(1.0 / 720.0) + r * (np.float32(1.0 / 5040.0) + r * np.float32(1.0 / 40320.0))
        q = np.float32(1.0 / 24.0) + r * (np.float32(1.0 / 120.0) + r * q)
        q = half + r * (np.float32(1.0 / 6.0) + r * q)
        x[i] = one + (r + r * r * q)
    for i in range(x.size):
        x[i] *= power[i]


@reduction_jit
def largest(x):
    """The largest entry."""
    top = x[0]
    for z in range(1, x.size):
        top = x[z] if x[z] > top else top
    return top


@reduction_jit
def total(x):
    """The sum of the entries."""
    s = x[0]
    for z in range(1, x.size):
        s += x[z]
    return s


@reduction_jit
def squared_norm(x):
    """The sum of the squares, in double precision."""
    s = 0.0
    for z in range(x.size):
        s += np.float64(x[z]) * np.float64(x[z])
    return s


@jit
def add_decay(x, g, decay):
    """``g <- g + decay x``: the gradient of the ridge ``(decay / 2) ||x||^2``."""
    xf, gf = x.ravel(), g.ravel()
    for i in range(xf.size):
        gf[i] += decay * xf[i]


@jit
def unmoved(x, g, first, second, c, norm):
    """Do nothing: a placeholder where a rule is bound but never called."""


class ParameterBuffers(NamedTuple):
    """Parameters of a factored model and their optimizer slots; unused slots have no rows."""

    W: Any  # V x d
    K: Any  # m x d, the transpose of H
    W_slots: Any  # (first, second), each V x d
    K_slots: Any  # (first, second), each m x d


class Labels(NamedTuple):
    """Soft labels by row: row i has ``token[e], share[e]`` for e from ``start[i]`` to ``start[i + 1]``."""

    weight: Any  # r
    start: Any  # r + 1
    token: Any
    share: Any


class Work(NamedTuple):
    """Buffers: derivative by the logits, exponent bits, gradients, and the part of ``gW`` of each block."""

    edges: Any  # blocks + 1
    G: Any  # r x V
    bits: Any  # r V
    parts: Any  # blocks x V x d
    gW: Any  # V x d
    gK: Any  # m x d


class Plan(NamedTuple):
    """What is trained, and how: ``eager`` updates the embeddings of a block as soon as their gradient is known."""

    train_W: bool
    train_K: bool
    eager: bool
    with_norm: bool


# Names that templates call and `fuse` binds, defined here for readers and for the linter.
exp, block_kernel, update, gradients, finish_kernel = exp64, add_decay, add_decay, add_decay, add_decay


def block(W, K, weight, start, token, share, G, bits, gW, gK, train_W, train_K):
    """Write the gradient of one block of rows: ``G``, ``gK`` and the part of ``gW`` of this block."""
    np.dot(K, W.T, G)
    rows, V = G.shape
    for i in range(rows):
        top = largest(G[i])
        for z in range(V):
            G[i, z] -= top
    exp(G.ravel(), bits)
    for i in range(rows):
        scale = weight[i] / total(G[i])
        for z in range(V):
            G[i, z] *= scale
        for e in range(start[i], start[i + 1]):
            G[i, token[e]] -= weight[i] * share[e]
    if train_W:
        np.dot(G.T, K, gW)
    if train_K:
        np.dot(G, W, gK)


def blocks(factors, K, labels, work, gK, plan, c):
    """Gradient of all rows of ``K``, with the blocks distributed over the cores."""
    W, V = factors.W, factors.W.shape[0]
    first, second = factors.K_slots
    weight, start, token, share = labels.weight, labels.start, labels.token, labels.share
    edges, G, bits, parts = work.edges, work.G, work.bits, work.parts
    train_W, train_K, eager = plan.train_W, plan.train_K, plan.eager
    for b in numba.prange(edges.size - 1):
        i, j = edges[b], edges[b + 1]
        rows, marks, flat = weight[i:j], start[i : j + 1], bits[i * V : j * V]
        block_kernel(W, K[i:j], rows, marks, token, share, G[i:j], flat, parts[b], gK[i:j], train_W, train_K)
        if eager:
            if c[0] != 0:
                add_decay(K[i:j], gK[i:j], c[0])
            update(K[i:j], gK[i:j], first[i:j], second[i:j], c, 1.0)


def finish(factors, work, plan, c):
    """Add up the parts of ``gW`` and update every parameter that has not been updated yet."""
    gW, gK, rest = work.gW, work.gK, plan.train_K and not plan.eager
    square = 0.0
    if plan.train_W:
        gW[:] = work.parts[0]
        for b in range(1, work.parts.shape[0]):
            gW += work.parts[b]
        if c[0] != 0:
            add_decay(factors.W, gW, c[0])
        if plan.with_norm:
            square += squared_norm(gW.ravel())
    if rest:
        if c[0] != 0:
            add_decay(factors.K, gK, c[0])
        if plan.with_norm:
            square += squared_norm(gK.ravel())
    if plan.train_W:
        update(factors.W, gW, factors.W_slots[0], factors.W_slots[1], c, np.sqrt(square))
    if rest:
        update(factors.K, gK, factors.K_slots[0], factors.K_slots[1], c, np.sqrt(square))


def advance(factors, labels, work, plan, table):
    """One full-batch step per row of ``table`` (the optimizer's coefficients)."""
    for t in range(table.shape[0]):
        gradients(factors, factors.K, labels, work, work.gK, plan, table[t])
        finish_kernel(factors, work, plan, table[t])


def advance_sampled(factors, labels, work, plan, table, windows, context, token, K, gK):
    """One step per row of ``table`` on the windows of that row; ``labels`` and ``K`` are buffers for one batch.

    A window is the index e of a pair (``context[e]``, ``token[e]``) of the statistics.
    """
    for t in range(table.shape[0]):
        for i in range(windows.shape[1]):
            labels.token[i] = token[windows[t, i]]
            K[i] = factors.K[context[windows[t, i]]]
        gradients(factors, K, labels, work, gK, plan, table[t])
        if plan.train_K:
            work.gK[:] = 0
            for i in range(windows.shape[1]):
                work.gK[context[windows[t, i]]] += gK[i]
        finish_kernel(factors, work, plan, table[t])
