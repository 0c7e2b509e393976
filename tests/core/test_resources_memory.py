"""The memory guard: how much is free, and how work that does not fit is refused."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import psutil
import pytest

from tokengeom.core import resources
from tokengeom.core.errors import ResourceError
from tokengeom.core.resources import fewer_contexts, free_memory, require_memory


def test_free_memory_includes_what_the_system_only_caches() -> None:
    assert free_memory() == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_a_system_that_does_not_say_is_assumed_to_have_a_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_MEMORY_OF_LINUX", tmp_path / "meminfo")
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_AVPHYS_PAGES": 10}[name])
    assert free_memory() == 40960
    monkeypatch.delattr(os, "sysconf")
    assert free_memory() == resources.ASSUMED_FREE
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   7 kB\n")
    assert free_memory() == 7 * 1024


def test_a_limit_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    used = psutil.Process().memory_info().vms
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (used + 2**28, used + 2**28))
    assert free_memory() == pytest.approx(2**28, rel=0.1)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1, 1))
    assert free_memory() == 0
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert resources.left_to_this_process() is None


def test_what_does_not_fit_is_refused_with_both_sizes_and_an_alternative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "free_memory", lambda device=None: 2**30)
    require_memory(2**30, "The table", "Use less.")
    with pytest.raises(ResourceError, match=r"^The table must fit in memory: 2 GiB are needed and 1 GiB are free. Use"):
        require_memory(2**31, "The table", "Use less.")
    with pytest.raises(ResourceError, match=r"2 GiB are needed and 0.5 GiB are allowed"):
        require_memory(2**31, "The table", "Use less.", limit=2**29)


def test_an_alternative_can_depend_on_how_much_fits() -> None:
    with pytest.raises(ResourceError, match=r"allowed. Keep 450 of the 1,000 contexts \(stats.limited"):
        require_memory(2**31, "The table", lambda share: fewer_contexts(share, 1000), limit=2**30)


@pytest.mark.parametrize(
    ("share", "offer"), [(0.98765, "Keep 980 of the 1,000"), (0.0123, "Keep 12 of"), (1e-4, "Keep fewer contexts")]
)
def test_offers_are_rounded_down_to_two_digits(share: float, offer: str) -> None:
    assert fewer_contexts(share, 1000).startswith(offer)


def test_a_gpu_has_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    assert free_memory("cuda:999") == pytest.approx(free_memory(), rel=0.5) or torch.cuda.is_available()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)
    assert free_memory("cuda") == 130
    with pytest.raises(ResourceError, match="The table must fit in the memory of cuda: "):
        require_memory(131, "The table", "Use less.", device="cuda")
