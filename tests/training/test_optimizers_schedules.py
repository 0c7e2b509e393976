"""Schedules have the stated factors, and are given as objects, names, plain data or text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tokengeom.core.errors import ProblemError
from tokengeom.training.optimizers.base import (
    PAPER_STEPS,
    Constant,
    Cosine,
    Steps,
    paper_steps,
    parse_schedule,
    schedule_named,
)


def test_steps_equal_torchs_multistep_schedule() -> None:
    peer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = torch.optim.lr_scheduler.MultiStepLR(peer, [3, 7], gamma=0.4)
    theirs = []
    for _ in range(10):
        theirs.append(schedule.get_last_lr()[0])
        peer.step()
        schedule.step()
    ours = Steps(milestones=(3, 7), factor=0.4).factors(np.arange(10.0), 10)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_the_papers_schedule_falls_five_times() -> None:
    factors = PAPER_STEPS.factors(np.array([0.0, 4999, 5000, 29_999]), 30_000)
    np.testing.assert_allclose(factors, [1.0, 1.0, 0.4, 0.4**5])
    assert PAPER_STEPS == Steps((5_000, 10_000, 15_000, 20_000, 25_000), 0.4) == paper_steps(30_000)


def test_the_papers_schedule_is_stretched_over_a_run() -> None:
    assert paper_steps(100) == Steps((16, 33, 50, 66, 83), 0.4)
    assert paper_steps(6) == Steps((1, 2, 3, 4, 5), 0.4)
    with pytest.raises(ProblemError, match=r"6 parts .* got steps=5"):
        paper_steps(5)


def test_paper_as_a_name_has_fixed_milestones() -> None:
    assert schedule_named("paper") is PAPER_STEPS


def test_a_schedule_is_read_from_text() -> None:
    assert parse_schedule("cosine") == "cosine"
    text = '{name="steps", milestones=[2, 4], factor=0.5}'
    assert schedule_named(parse_schedule(text)) == Steps((2, 4), 0.5)
    with pytest.raises(ProblemError, match=r"inline table such as .* got '\{name='"):
        parse_schedule("{name=")


def test_cosine_warms_up_and_falls_to_its_floor() -> None:
    factors = Cosine(floor=0.1, warmup=10).factors(np.arange(101.0), 100)
    assert factors[0] == pytest.approx(0.1)
    assert factors[10] == pytest.approx(1.0)
    assert factors[100] == pytest.approx(0.1)
    assert np.all(np.diff(factors[10:]) <= 0)
    np.testing.assert_array_equal(Constant().factors(np.arange(3.0), 3), np.ones(3))


@pytest.mark.parametrize(
    "make", [lambda: Steps(milestones=(5, 3)), lambda: Steps(factor=-1.0), lambda: Cosine(floor=2.0)]
)
def test_invalid_schedules_are_refused(make: object) -> None:
    with pytest.raises(ProblemError, match="got"):
        make()  # type: ignore[operator]


def test_a_schedule_is_made_from_plain_data() -> None:
    given = {"name": "steps", "milestones": [2, 4], "factor": 0.5}
    assert schedule_named(given) == Steps((2, 4), 0.5)
    assert schedule_named({"name": "cosine", "warmup": 3}) == Cosine(warmup=3)
    assert schedule_named(given).to_dict() == given


@pytest.mark.parametrize("given", [{"name": "steps", "mile": 3}, {"milestones": [3]}, {"name": "saw"}])
def test_data_that_does_not_describe_a_schedule_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ProblemError, match="schedule"):
        schedule_named(given)
