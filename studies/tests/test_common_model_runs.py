"""Networks trained as a recipe says, numbers before and after training, and checks that can fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import ortho_group

from study_cases import counted_text
from tokengeom import Agreement, FeaturePrediction, NextTokenStatistics, Run, compare, predict, train
from tokengeom.extending import (
    Float,
    Int,
    Probe,
    ResourceError,
    SilentProgress,
    cosines,
    paper_steps,
)
from tokengeom.training.run import Trajectory
from tokengeom_studies.common.model_runs import (
    REPORTED,
    Snapshots,
    Trained,
    agreement_checks,
    agreement_table,
    between_runs,
    compare_run,
    count_stories,
    floor_check,
    outcome,
    reported_loss_checks,
    require_device,
    train_and_compare,
    train_network,
    train_ufm_and_compare,
    with_interval,
)

QUIET = SilentProgress()
RECIPE: dict[str, Any] = {
    "seed": 3, "stories": 300, "context": 3, "contexts": 100, "vocabulary": 40, "layers": 1, "heads": 2, "dim": 32,
    "steps": 100, "learning_rate": 1e-2, "weight_decay": 1e-6, "schedule": "cosine", "device": "cpu", "draws": 20,
    "ufm_steps": 60, "ufm_learning_rate": 2e-2,
}  # fmt: skip


@pytest.fixture(scope="module")
def stats() -> NextTokenStatistics:
    return count_stories(RECIPE, QUIET)


@pytest.fixture(scope="module")
def prediction(stats: NextTokenStatistics) -> FeaturePrediction:
    return predict(stats)


@pytest.fixture(scope="module")
def transformer(stats: NextTokenStatistics, prediction: FeaturePrediction) -> Trained:
    return train_and_compare(stats, prediction, RECIPE, progress=QUIET)


@pytest.fixture(scope="module")
def free(stats: NextTokenStatistics, prediction: FeaturePrediction) -> Trained:
    return train_ufm_and_compare(stats, prediction, RECIPE, QUIET)


def short(stats: NextTokenStatistics, **changes: Any) -> dict[str, Any]:
    return train_network(stats, RECIPE, probes=None, progress=QUIET, **{"steps": 0, **changes}).settings


def test_a_network_is_trained_as_its_recipe_says(transformer: Trained) -> None:
    settings = transformer.run.settings
    for name in ("seed", "layers", "heads", "dim", "steps", "learning_rate", "weight_decay", "device"):
        assert settings[name] == RECIPE[name]
    assert settings["rate_schedule"]["name"] == "cosine"
    assert settings["optimizer"]["name"] == "adamw"
    assert settings["reduction"] == "sum"


def test_only_a_transformer_has_heads(stats: NextTokenStatistics) -> None:
    assert short(stats)["heads"] == 2
    assert short(stats, heads=1)["heads"] == 1
    assert short(stats, model="lstm")["heads"] is None


def test_changes_override_the_recipe(stats: NextTokenStatistics) -> None:
    settings = short(stats, dim=8, learning_rate=0.5, weight_decay=0.25)
    assert (settings["dim"], settings["learning_rate"], settings["weight_decay"]) == (8, 0.5, 0.25)


def test_a_recipe_without_d_needs_it_as_a_change(stats: NextTokenStatistics) -> None:
    recipe = {name: value for name, value in RECIPE.items() if name != "dim"}
    assert train_network(stats, recipe, probes=None, progress=QUIET, dim=4, steps=0).settings["dim"] == 4


def test_the_papers_schedule_has_the_length_of_the_run(stats: NextTokenStatistics) -> None:
    recipe = {**RECIPE, "schedule": "papers", "steps": 12}
    found = train_network(stats, recipe, probes=None, progress=QUIET).settings["rate_schedule"]
    assert tuple(found["milestones"]) == paper_steps(12).milestones == (2, 4, 6, 8, 10)
    assert found["factor"] == 0.4
    # A run of another length than the recipe's has that length's schedule.
    changed = train_network(stats, recipe, probes=None, progress=QUIET, steps=6).settings["rate_schedule"]
    assert tuple(changed["milestones"]) == (1, 2, 3, 4, 5)


def test_the_number_before_training_is_that_of_a_network_without_steps(
    stats: NextTokenStatistics, prediction: FeaturePrediction, transformer: Trained
) -> None:
    untrained = train(stats, "transformer", dim=32, layers=1, heads=2, steps=0, seed=3)
    expected = compare(prediction, untrained, permutations=0, at_loss=False)
    for item in ("context", "token"):
        start = expected.in_limit[f"{item}_agreement"].value
        assert transformer.in_limit(item).untrained == pytest.approx(start, abs=1e-9)
        similarity = transformer.similarity(item).untrained
        assert transformer.before(f"{item}_similarity") == pytest.approx(similarity, abs=1e-9)


def correlation_across(x: Float, y: Float, units: Int) -> float:
    """Correlation of the cosines of two sets of columns over pairs of different units, by brute force."""
    pairs = [(i, j) for i in range(units.size) for j in range(i) if units[i] != units[j]]
    X, Y = cosines(x), cosines(y)
    return float(np.corrcoef([X[pair] for pair in pairs], [Y[pair] for pair in pairs])[0, 1])


def test_two_runs_agree_as_brute_force_says(prediction: FeaturePrediction, transformer: Trained, free: Trained) -> None:
    a, b = transformer.run, free.run
    agreement = between_runs(prediction, a, b)
    each = np.arange(a.W.shape[0])
    contexts = correlation_across(a.H, b.H, prediction.context_groups)
    tokens = correlation_across((a.W - a.W.mean(axis=0)).T, (b.W - b.W.mean(axis=0)).T, each)
    assert agreement == pytest.approx({"context": contexts, "token": tokens}, abs=1e-9)
    assert between_runs(prediction, b, a) == pytest.approx(agreement, abs=1e-9)


def test_a_rotated_run_agrees_fully_with_itself(prediction: FeaturePrediction, free: Trained) -> None:
    R = ortho_group.rvs(free.run.H.shape[0], random_state=np.random.default_rng(0))
    turned = _run(free.run.W @ R, R.T @ free.run.H, free.run.trajectory)
    agreement = between_runs(prediction, free.run, turned)
    assert agreement == pytest.approx({"context": 1.0, "token": 1.0}, abs=1e-9)


@pytest.mark.parametrize(
    "number",
    [
        Agreement(0.5, 0.4, 0.6, null=0.3),
        Agreement(0.5, 0.2, 0.6, null=0.3),
        Agreement(0.5, 0.3, 0.6, null=0.3, untrained=0.1),
        Agreement(0.5, 0.4, 0.6, null=0.1, untrained=0.45),
        Agreement(0.5, null=0.3),
        Agreement(0.1, -0.1, 0.2, gaussian=-0.2),
        Agreement(0.5, 0.4, 0.6),
        Agreement(float("nan"), null=0.3),
    ],
)
def test_a_floor_check_passes_where_a_number_is_above_its_floor(number: Agreement) -> None:
    assert floor_check("a number", number).passed == number.above_floor


def _run(W: Any, H: Any, trajectory: Trajectory, gap: float = 0.0) -> Run:
    return Run(W, H, gap, trajectory, {}, "finished", 1, 0.0, 1.0)


def failed(found: Trained, **limits: float) -> set[str]:
    return {check.name for check in agreement_checks("run", found, **limits) if not check.passed}


def test_a_trained_network_passes_and_an_untrained_one_does_not(
    stats: NextTokenStatistics, prediction: FeaturePrediction, transformer: Trained
) -> None:
    assert failed(transformer, contexts=0.5, tokens=0.5, loss_gap=0.2) == set()
    untrained = train_and_compare(stats, prediction, RECIPE, progress=QUIET, steps=0)
    missed = failed(untrained, contexts=0.5, tokens=0.5, loss_gap=0.2)
    assert {
        "run: loss gap",
        "run: agreement of contexts, lower end of the interval above the floor",
        "run: agreement of contexts gained in training",
        "run: agreement of tokens, lower end of the interval above the floor",
        "run: agreement of tokens gained in training",
    } <= missed


def test_a_trained_network_is_compared_at_its_loss_and_an_untrained_one_in_the_limit(
    stats: NextTokenStatistics, prediction: FeaturePrediction, transformer: Trained
) -> None:
    assert transformer.compared_with == "at the loss reached (gamma_2 norm)"
    assert transformer.agreement("context") == transformer.comparison.context_agreement
    assert transformer.in_limit("context") != transformer.agreement("context")
    # W and H with the sign of the logits turned have a loss above that of a uniform guess.
    turned = _run(-transformer.run.W, transformer.run.H, transformer.run.trajectory)
    found = compare_run(prediction, turned, RECIPE)
    assert found.compared_with == "in the limit"
    assert found.agreement("context") == found.in_limit("context")


def test_the_sentence_on_a_run_holds_its_numbers(transformer: Trained) -> None:
    text = outcome("transformer", transformer)
    for item in ("context", "token"):
        assert with_interval(transformer.agreement(item)) in text
        assert f"in the limit {transformer.in_limit(item).value:.2f}" in text
        assert f"{transformer.similarity(item).value:.3f} for {item}s" in text


def test_an_interval_is_shown_where_there_is_one() -> None:
    assert with_interval(Agreement(0.51239, 0.4, 0.6)) == "0.512 [0.400, 0.600]"
    assert with_interval(Agreement(0.51239)) == "0.512"


def test_the_table_has_every_number_of_every_run(transformer: Trained, free: Trained) -> None:
    table = agreement_table({"a": transformer, "b": free})
    assert len(table["model"]) == 2 * len(transformer.comparison)
    row = [
        i for i, (m, n) in enumerate(zip(table["model"], table["number"], strict=True)) if (m, n) == ("b", "collapse")
    ]
    assert table["before"][row[0]] == free.before("collapse")
    # The agreement is not measured during training: its value before training is that of the start of the run.
    place = list(table["number"]).index("limit_context_agreement")
    assert table["before"][place] == pytest.approx(transformer.in_limit("context").untrained)


@pytest.mark.parametrize(("scale", "passed"), [(1.0, True), (9.0, True), (11.0, False)])
def test_losses_are_compared_with_reported_ones_where_a_run_is_long_enough(scale: float, passed: bool) -> None:
    steps = [0, *REPORTED]
    gaps = [5.0, *(scale * gap for gap in REPORTED.values())]
    run = _run(np.eye(2), np.eye(2), Trajectory({"step": steps, "loss_gap": gaps}))
    checks = reported_loss_checks(run)
    assert len(checks) == len(REPORTED)
    assert [check.passed for check in checks] == [passed] * len(REPORTED)
    early = _run(np.eye(2), np.eye(2), Trajectory({"step": steps[:2], "loss_gap": gaps[:2]}))
    assert len(reported_loss_checks(early)) == 1


def test_a_device_that_does_not_exist_is_refused() -> None:
    require_device({"device": "cpu"})
    with pytest.raises(ResourceError, match="cuda:99"):
        require_device({"device": "cuda:99"})


def test_snapshots_are_taken_at_the_first_record_after_each_step() -> None:
    snapshots = Snapshots([0, 30, 200])
    probes: dict[str, Probe] = {"snapshots": snapshots}
    run = train(counted_text(), "ufm", dim=8, steps=200, probes=probes)
    assert list(snapshots.taken) == [0, 32, 200]
    np.testing.assert_array_equal(snapshots.taken[200].W, run.W)
    assert "snapshots" not in run.trajectory.names
