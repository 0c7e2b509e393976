"""Kernels: the exponential to the last bit, and fused kernels that are compiled again when a source changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokengeom.training import kernels
from tokengeom.training.kernels import Kernel, fuse
from tokengeom.training.optimizers import adam, gd


def fused(template: Kernel, **options: Any) -> Any:
    return fuse(template, **options)


def fused_name(update: Kernel) -> str:
    finish = fuse(kernels.finish, update=update)
    return str(fused(kernels.advance, gradients=finish, finish_kernel=finish).py_func.__qualname__)


@pytest.mark.parametrize(
    ("exp", "dtype", "bits", "least"),
    [(kernels.exp64, np.float64, np.int64, -700.0), (kernels.exp32, np.float32, np.int32, -80.0)],
)
def test_the_exponential_is_exact_to_two_units_in_the_last_place(
    exp: Kernel, dtype: Any, bits: Any, least: float
) -> None:
    x = np.linspace(least, 0.0, 10_001).astype(dtype)
    found = x.copy()
    exp(found, np.zeros(x.size, bits))
    exact = np.exp(x.astype(np.longdouble))
    assert np.max(np.abs(found - exact) / exact) < 2 * np.finfo(dtype).eps


def test_the_name_of_a_fused_kernel_depends_on_the_callees_of_its_callees() -> None:
    assert fused_name(adam.update) == fused_name(adam.update)
    assert fused_name(adam.update) != fused_name(gd.update)


def test_a_parallel_kernel_does_not_share_its_name_with_the_serial_one() -> None:
    names = [fused(kernels.finish, parallel=p, update=adam.update).py_func.__qualname__ for p in (False, True)]
    assert names[0] != names[1]


@pytest.mark.parametrize(("update", "expected"), [(gd.update, 0.5), (kernels.unmoved, 1.0)])
def test_a_fused_kernel_calls_the_given_callee(update: Kernel, expected: float) -> None:
    empty, W = np.zeros((0, 2)), np.ones((3, 2))
    factors = kernels.ParameterBuffers(W, empty, (np.zeros((3, 2)), empty), (empty, empty))
    work = kernels.Work(np.array([0, 1]), empty, np.zeros(0, int), np.ones((1, 3, 2)), np.zeros((3, 2)), empty)
    plan = kernels.Plan(train_W=True, train_K=False, eager=False, with_norm=False)
    # A gradient of 1 with learning rate 0.5 and without momentum.
    fuse(kernels.finish, update=update)(factors, work, plan, np.array([0.0, 0.5, 0.0]))
    np.testing.assert_array_equal(W, np.full((3, 2), expected))
