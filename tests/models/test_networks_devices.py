"""Devices that the machine lacks are refused with the reason; small work uses one thread."""

from __future__ import annotations

import pytest
import torch

from tokengeom.core.errors import ProblemError, ResourceError
from tokengeom.models.networks.base import THREADED_WORK, checked_device, threads_for


def test_the_cpu_is_there() -> None:
    assert checked_device(torch, "cpu").type == "cpu"


def test_a_name_that_is_not_a_device_is_refused() -> None:
    with pytest.raises(ProblemError, match=r"must be 'cpu' or 'cuda' .* got 'tpu9'"):
        checked_device(torch, "tpu9")


def test_a_device_that_the_machine_lacks_is_refused() -> None:
    absent = "cuda:99" if torch.cuda.is_available() else "cuda"
    with pytest.raises(ResourceError, match=f"device '{absent}' is not available"):
        checked_device(torch, absent)


def test_a_kind_of_device_that_the_build_lacks_is_refused() -> None:
    with pytest.raises(ResourceError, match=r"device 'xpu' cannot be used: .* Use device='cpu'"):
        checked_device(torch, "xpu")


def test_small_work_uses_one_thread_and_the_number_is_restored() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threads_for(torch, THREADED_WORK / 10):
            assert torch.get_num_threads() == 1
        with threads_for(torch, 10 * THREADED_WORK):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
