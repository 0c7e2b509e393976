"""How a kernel is compiled here, and how an optimizer's rule is fused with the gradient into one compiled loop.

A compiled function is kept on disk, so that only the first use ever on a machine waits for the compiler. Numba
does not keep functions that take other functions as arguments, and does not see when a callee in another file has
changed; :func:`fuse` solves both: it copies a template, binds the callees as globals, and names the copy after a
digest of all the sources that it is made of.
"""

from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    import numba
except ModuleNotFoundError:  # a bare machine with torch alone: the rules are imported, the torch engine runs them
    numba = None

Kernel = Callable[..., Any]

# Contraction to fused multiply-add is the only liberty: nothing is reordered, so a run is the same on each repeat.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract"},
    "parallel": False,
}


def jit(function: Kernel) -> Kernel:
    """Compile on first use, and keep the result on disk where there is a place to keep it."""
    return _compile(function)


def reduction_jit(function: Kernel) -> Kernel:
    """As :func:`jit`, for a sum or a maximum, whose terms may be taken in the order that the hardware likes best."""
    return _compile(function, fastmath={"contract", "reassoc", "nsz", "nnan"})


def fuse(template: Kernel, *, parallel: bool = False, **callees: Kernel) -> Kernel:
    """Compile a copy of ``template`` in which each name of ``callees`` is bound to the given kernel."""
    name = f"{template.__name__}{'_parallel' if parallel else ''}_{'_'.join(map(_label, callees.values()))}"
    sources = {Path(inspect.getfile(_plain(item))) for item in (template, *callees.values())}
    # A callee that was itself fused carries the digest of its own sources in its qualified name.
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
    except RuntimeError:  # no writable folder for the cache: compile anew in each process
        compiled = numba.njit(function, **options)
    return compiled


def _plain(kernel: Kernel) -> Kernel:
    plain: Kernel = getattr(kernel, "py_func", kernel)
    return plain


def _label(kernel: Kernel) -> str:
    plain = _plain(kernel)
    return f"{plain.__module__.rsplit('.', 1)[-1]}_{plain.__name__}"
