"""Stories, training with the papers' settings, and measurements that several studies share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokengeom import TokengeomError, predict
from tokengeom.extending import SilentProgress, paper_steps
from tokengeom.training.optimizers.base import PAPER_STEPS
from tokengeom_studies.common.model_runs import (
    count_all_stories,
    count_stories,
    direction_probe,
    over_training,
    rank_correlation,
    train_like_the_papers,
    with_probabilities_of,
)
from tokengeom_studies.common.random_data import random_counts

QUIET = SilentProgress()
RECIPE: dict[str, Any] = {
    "seed": 3, "stories": 40, "context": 2, "contexts": 30, "vocabulary": 20, "dim": 8, "steps": 12,
    "learning_rate": 1e-2, "weight_decay": 1e-6,
}  # fmt: skip


def test_stories_are_limited_to_the_contexts_and_tokens_of_the_recipe() -> None:
    all_of_them, limited = count_all_stories(RECIPE, QUIET), count_stories(RECIPE, QUIET)
    assert limited.V == 20
    assert limited.m <= 30 < all_of_them.m
    assert limited.n < all_of_them.n


def test_the_papers_schedule_is_theirs_at_their_length() -> None:
    assert paper_steps(30_000) == PAPER_STEPS
    with pytest.raises(TokengeomError, match="steps=5"):
        paper_steps(5)


def test_training_like_the_papers_has_their_optimizer_reduction_and_schedule() -> None:
    stats = random_counts(0, V=6, m=5, size=2, most=3)
    settings = train_like_the_papers(stats, RECIPE, probes=None, progress=QUIET).settings
    assert settings["optimizer"]["name"] == "adamw"
    assert settings["reduction"] == "sum"
    assert tuple(settings["rate_schedule"]["milestones"]) == (2, 4, 6, 8, 10)
    assert train_like_the_papers(stats, RECIPE, probes=None, progress=QUIET, dim=3).W.shape == (6, 3)


def test_a_prediction_is_carried_over_to_statistics_with_the_same_supports() -> None:
    one, other = (random_counts(0, V=8, m=6, size=3, most=most) for most in (1, 9))
    assert (one.S != other.S).nnz == 0
    carried, solved = with_probabilities_of(other, predict(one)), predict(other)
    assert np.array_equal(carried.L_mm, solved.L_mm)
    assert np.array_equal(carried.L_in, solved.L_in)
    assert carried.entropy == other.entropy
    assert carried.statistics_hash == solved.statistics_hash == other.hash
    assert carried.windows == solved.windows == other.n
    # Shares of contexts count at a loss.
    assert not np.array_equal(one.pi, other.pi)
    assert pytest.approx(solved.at(0.3).L, abs=1e-3) == carried.at(0.3).L


def test_the_direction_of_the_limit_has_cosine_one() -> None:
    stats = random_counts(0, V=6, m=5, size=2, most=3)
    prediction = predict(stats)
    run = train_like_the_papers(stats, RECIPE, probes=direction_probe(prediction), progress=QUIET)
    assert -1.0 <= run.trajectory.last("direction_cosine") <= 1.0

    class Limit:
        L = 3.0 * prediction.L_mm + 7.0

    assert direction_probe(prediction)["direction_cosine"](Limit()) == pytest.approx(1.0)  # type: ignore[arg-type]


def test_curves_begin_at_the_first_step_and_name_their_columns() -> None:
    run = train_like_the_papers(random_counts(0, V=6, m=5, size=2, most=3), RECIPE, probes=None, progress=QUIET)
    panel = over_training("Loss", "nats", {"a": run}, ["loss_gap", "norm_W"])
    assert [curve.label for curve in panel.curves] == ["a, loss gap", "a, norm W"]
    assert panel.curves[0].x[0] == 1.0
    assert panel.curves[0].y[-1] == run.loss_gap


def test_rank_correlation_of_orders_and_ties() -> None:
    assert rank_correlation(np.array([1.0, 5.0, 9.0]), np.array([2.0, 3.0, 70.0])) == pytest.approx(1.0)
    assert rank_correlation(np.array([1.0, 5.0, 9.0]), np.array([3.0, 2.0, 1.0])) == pytest.approx(-1.0)
    assert np.isnan(rank_correlation(np.ones(3), np.arange(3.0)))
