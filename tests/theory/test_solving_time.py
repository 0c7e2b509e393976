"""Estimates of predictions: operations and memory compared with those counted by torch and by tracemalloc."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tokengeom as tg
from estimate_cases import Said
from tokengeom.core import resources
from tokengeom.core.errors import InputError, ProblemError, ResourceError
from tokengeom.core.numerics import Bool
from tokengeom.models.networks.base import threads_for
from tokengeom.problems.backend import Backend
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.solvers.nuclear_admm import NuclearADMM
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory import solving_time as module
from tokengeom.theory.at_loss import LossSettings
from tokengeom.theory.loss_path import FITTED_FROM, LossPath
from tokengeom.theory.predict import estimate_prediction, predict
from tokengeom.theory.solving_time import (
    GAMMA2_AT_LOSS,
    GAMMA2_FITTED,
    LIMIT,
    NUCLEAR_AT_LOSS,
    Speed,
    measure_speed,
    memory_needed,
    work_at_loss,
)


def supports(V: int, m: int, seed: int = 0) -> Bool:
    rng = np.random.default_rng(seed)
    S = np.zeros((V, m), dtype=bool)
    for j in range(m):
        S[rng.choice(V, int(rng.integers(2, 8)), replace=False), j] = True
    return S


def statistics(V: int, m: int) -> NextTokenStatistics:
    S = supports(V, m)
    return NextTokenStatistics.from_counts(S * np.random.default_rng(1).integers(1, 5, S.shape))


@pytest.mark.slow  # torch's counter takes seconds to load
def test_products_per_iteration_are_those_that_torch_counts() -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    problem = NuclearSVM.from_support(supports(260, 400), device="cpu")
    k, n = problem.shape
    with threads_for(torch, 0.0), FlopCounterMode(display=False) as counter:
        solution = NuclearADMM(max_iterations=20)(problem)
    counted = counter.get_total_flops() / 2 / solution.iterations
    expected = LIMIT.seconds(k, n, Speed(product=1.0, eigen=0.0, entry=0.0))
    # torch has no product of a matrix with its transpose at half the price, which numpy uses for the Gram matrix.
    assert expected + 0.5 * k**2 * n == pytest.approx(counted, rel=0.3)


def test_small_problems_are_decomposed_at_every_iteration() -> None:
    alone = Speed(product=0.0, eigen=1.0, entry=0.0)
    assert LIMIT.seconds(100, 300, alone) == 100**3
    assert LIMIT.seconds(400, 300, alone) < 300**3


def solve_limit(stats: NextTokenStatistics) -> object:
    return predict(stats, spread_solves=0, tolerance=1e-3)


def solve_at_loss(norm: str) -> Callable[[NextTokenStatistics], object]:
    return lambda stats: predict(stats, loss_gap=1.0, norm=norm, tolerance=1e-2)


@pytest.mark.parametrize(
    ("work", "solve"),
    [
        (LIMIT, solve_limit),
        (NUCLEAR_AT_LOSS, solve_at_loss("nuclear")),
        (GAMMA2_AT_LOSS, solve_at_loss("gamma2")),
    ],
)
def test_memory_is_that_which_tracemalloc_sees(
    work: module.Work, solve: Callable[[NextTokenStatistics], object]
) -> None:
    stats = statistics(80, 300)
    solve(stats)  # loads code
    tracemalloc.start()
    try:
        solve(stats)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / 1.3 <= sum(size for size, _ in work.needed(80, 300, Backend.on())) <= 2 * peak


@pytest.mark.parametrize(("V", "m"), [(40, 100), (104, 300)])
@pytest.mark.parametrize("gap", [2.0, 0.5, 0.05, 1e-3, 1e-5])
def test_iterations_in_the_gamma2_norm_are_about_those_of_searches(gap: float, V: int, m: int) -> None:
    stats = tg.count(top_contexts=m, vocabulary=V)
    path = LossPath(stats.P, stats.pi, entropy=stats.entropy, settings=LossSettings("gamma2", 1e-3))
    found = re.search(r"(\d+) iterations in total", path.at(gap).status)
    assert found is not None
    share = gap / path.largest_gap
    work = work_at_loss("gamma2", share, fitted=share >= FITTED_FROM)
    fewest, most = (count * 3.0 / work.digits for count in work.iterations)
    assert most <= 3.0 * fewest
    assert fewest / 1.6 < int(found[1]) < 1.6 * most


def test_work_at_a_loss_grows_as_the_loss_falls_in_the_gamma2_norm_only() -> None:
    assert work_at_loss("nuclear", 1e-6, fitted=False) == NUCLEAR_AT_LOSS
    assert work_at_loss("gamma2", 0.05, fitted=False) == GAMMA2_AT_LOSS
    first, last = (work_at_loss("gamma2", share, fitted=False).iterations for share in (1e-4, 1e-7))
    assert GAMMA2_AT_LOSS.iterations < first < last
    each = {work.seconds(200, 600, Speed(1e-10, 1e-10, 1e-10)) for work in (GAMMA2_FITTED, GAMMA2_AT_LOSS)}
    assert 0.5 < min(each) / max(each) < 0.8


def test_time_is_iterations_times_the_measured_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Speed(product=1e-9, eigen=1e-8, entry=1e-8)
    monkeypatch.setattr(module, "measure_speed", lambda backend, rows, columns: given)
    stats = statistics(300, 2000)
    found = tg.estimate("predict", stats, max_iterations=100)
    each = LIMIT.seconds(*NuclearSVM.from_support(stats.S).shape, given)
    assert (found.shortest, found.longest) == pytest.approx((45 * each, 100 * each))
    finer = estimate_prediction(stats, tolerance=1e-12)
    assert finer.shortest == pytest.approx(90 * each)


def test_small_work_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measure_speed", lambda *given: pytest.fail("measured"))
    said = Said()
    predict(statistics(20, 30), progress=said)
    assert said.sentences == []


@pytest.mark.parametrize("device", [None, "cpu"])
def test_speeds_are_measured_with_both_array_libraries(device: str | None) -> None:
    speed = measure_speed(Backend.on(device), 40, 60)
    assert speed.product > 0
    assert speed.eigen > 0
    assert 0 < speed.entry < 1e-3


@pytest.mark.parametrize("settings", [{}, {"loss_gap": 0.1}, {"loss_gap": 0.1, "norm": "gamma2"}])
def test_long_predictions_are_announced_before_they_start(
    settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "LONG", 0.0)
    said = Said()
    stats = statistics(20, 30)
    predict(stats, progress=said, **settings)  # type: ignore[call-overload]
    (sentence,) = said.sentences
    assert sentence.startswith(f"{estimate_prediction(stats, **settings).what}: ")  # type: ignore[arg-type]
    assert "20 x " in sentence


@pytest.mark.parametrize("settings", [{}, {"loss_gap": 0.1}, {"loss_gap": 0.1, "norm": "gamma2"}])
def test_the_number_of_contexts_on_offer_fits(settings: dict[str, object]) -> None:
    stats, limit = statistics(60, 400), 3_000_000
    with pytest.raises(ResourceError, match=r"must fit in memory: .* allowed. Keep \d+ of the 400 contexts") as error:
        predict(stats, memory_limit=limit, **settings)  # type: ignore[call-overload]
    offered = re.search(r"limited\(top_contexts=(\d+)\)", str(error.value))
    assert offered is not None
    fewer = stats.limited(top_contexts=int(offered[1]))
    assert fewer.m == int(offered[1]) >= 100
    assert estimate_prediction(fewer, memory_limit=limit, **settings).bytes <= limit  # type: ignore[arg-type]


def test_a_gap_that_no_prediction_has_is_refused() -> None:
    stats = statistics(20, 30)
    with pytest.raises(ProblemError, match="must lie strictly between 0 and"):
        LossPath(stats.P, stats.pi, entropy=float(stats.entropy), settings=LossSettings()).estimate(-1.0)
    with pytest.raises(InputError, match="'compare' cannot be estimated"):
        tg.estimate("compare", stats)  # type: ignore[call-overload]


def test_memory_is_that_of_a_block_and_of_the_state_where_that_is_kept() -> None:
    enough = replace(Backend.on("cpu"), largest_block=40, device_memory=2**20)
    assert memory_needed(enough, 6, 50, 10.0) == [(8 * 10 * 40 + 128 * 300, "cpu")]
    too_small = replace(enough, device_memory=1)
    assert memory_needed(too_small, 6, 50, 10.0) == [(8 * 10 * 40, "cpu"), (128 * 300, None)]
    assert memory_needed(Backend.on(), 6, 50, 10.0) == [(8 * 10 * 300, None)], "one block"
