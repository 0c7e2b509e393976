from __future__ import annotations

from typing import TYPE_CHECKING

from threadpoolctl import threadpool_info

from tokengeom import numerics as blas_threads
from tokengeom.numerics import blas_threads_for

if TYPE_CHECKING:
    import pytest


def threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_small_work_runs_on_one_thread_and_large_work_is_left_alone() -> None:
    before = threads()
    with blas_threads_for(104, 400):
        assert threads() == {1}
    assert threads() == before
    with blas_threads_for(4096, 16384):
        assert threads() == before


def test_without_the_helper_package_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas_threads, "_controller", lambda: None)
    before = threads()
    with blas_threads_for(2, 2):
        assert threads() == before
