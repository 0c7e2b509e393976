"""A fused kernel is compiled anew exactly when one of its sources has changed."""

from __future__ import annotations

from tokengeom.training import kernels
from tokengeom.training.kernels import Kernel, fuse, jit
from tokengeom.training.optimizers import adam, gd


def fused_name(update: Kernel) -> str:
    finish = fuse(kernels.finish, update=update)
    return str(fuse(kernels.advance, gradients=finish, finish_kernel=finish).py_func.__qualname__)


def test_the_name_of_a_fused_kernel_tells_its_callees_callees_apart() -> None:
    assert fused_name(adam.update) == fused_name(adam.update)
    assert fused_name(adam.update) != fused_name(gd.update)


def test_a_parallel_kernel_does_not_share_a_name_with_its_serial_twin() -> None:
    names = [fuse(kernels.finish, parallel=p, update=adam.update).py_func.__qualname__ for p in (False, True)]  # type: ignore[attr-defined]
    assert names[0] != names[1]


def test_a_fused_kernel_calls_what_it_was_given() -> None:
    assert fuse(_template, callee=jit(_double))(3) == 7


def callee(x: int) -> int:
    return x


def _template(x: int) -> int:
    return callee(x) + 1


def _double(x: int) -> int:
    return 2 * x
