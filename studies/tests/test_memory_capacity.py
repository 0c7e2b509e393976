"""Parameters per context at a loss gap: sub-samples, counts of parameters, interpolation, and made-up outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feature_cases import random_counts
from study_cases import failed
from tokengeom import NextTokenStatistics, TrainingSettings
from tokengeom.extending import InputError, SilentProgress, build_network
from tokengeom_studies.base import Findings, find_study
from tokengeom_studies.common.capacity_thresholds import interpolated
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Rows
from tokengeom_studies.memory_capacity import count_parameters, sub_sample


def study() -> AbstractMeasuredStudy:
    found = find_study("memory-capacity")
    assert isinstance(found, AbstractMeasuredStudy)
    return found


def with_tokens(m: int = 12) -> NextTokenStatistics:
    ids = np.stack([np.arange(m) % 5, np.arange(m) // 5], 1).astype(np.int32)
    return NextTokenStatistics.from_counts(random_counts(9, m, 3, seed=0), contexts=ids)


def test_sub_samples_are_nested_and_keep_counts_and_tokens() -> None:
    stats = with_tokens()
    small, large = (sub_sample(stats, size, seed=1) for size in (4, 8))
    assert small.contexts is not None
    assert large.contexts is not None
    assert {tuple(row) for row in small.contexts} < {tuple(row) for row in large.contexts}
    original = {tuple(ids): int(n) for ids, n in zip(np.asarray(stats.contexts), stats.context_counts, strict=True)}
    kept = zip(small.contexts, small.context_counts, strict=True)
    assert all(original[tuple(ids)] == n for ids, n in kept)
    assert np.asarray(small.counts.sum(axis=1)).min() > 0
    with pytest.raises(InputError, match="12 contexts"):
        sub_sample(stats, 13, seed=0)


@pytest.mark.parametrize("layers", [1, 3])
def test_the_body_of_an_mlp_is_its_matrices_and_its_norm(layers: int) -> None:
    stats, d, length = with_tokens(), 4, 2
    network = build_network(stats, TrainingSettings(model="mlp", dim=d, layers=layers))
    found, wide = count_parameters(network), 4 * d
    assert found["body"] == (length * d + 1) * wide + (layers - 1) * (wide + 1) * wide + wide * d + d
    # Five distinct tokens in the contexts, one that pads short ones, and a row of the head per next token.
    assert found["parameters"] - found["body"] == (5 + 1) * d + stats.V * d


def test_parameters_at_a_loss_gap_follow_a_power_law_exactly() -> None:
    runs = [{"width": w, "loss_gap": 100.0 * w**-3.0, "parameters": 7.0 * w**2} for w in (4, 8, 16, 32)]
    for gap in (1.0, 0.03):
        width = (100.0 / gap) ** (1 / 3)
        assert interpolated(runs, gap, "parameters") == pytest.approx(7.0 * width**2)
    assert interpolated(runs, 10.0, "parameters") is None
    assert interpolated(runs, 1e-6, "parameters") is None


def rows(
    *, power: float = 1.0, steps: float = 1.0, depth: float = 1.0, steep: float = 4.0, diverged: bool = False
) -> list[dict[str, Any]]:
    """Loss gaps that fall like (parameters / contexts^power) ^ -steep, with these effects of steps and depth."""
    found = []
    for network in ("mlp:2", "mlp:4"):
        for contexts, budget in ((100, 10), (1_000, 10), (100, 20)):
            for seed in range(5):
                for width in (8, 16, 32, 64, 128, 256):
                    size = width**2
                    effective = size * (steps if budget == 20 else 1.0) * (depth**2 if network == "mlp:4" else 1.0)
                    gap = (effective / (10.0 * contexts**power * (1 + 0.01 * seed))) ** -steep * 1e-2
                    row = {"network": network, "contexts": contexts, "steps": budget, "seed": seed, "width": width}
                    sizes = {"parameters": size, "body": size // 2, "tokens": 50, "loss_gap": gap}
                    found.append({"kind": "run", **row, **sizes})
    if diverged:
        found[-1]["loss_gap"] = None
    return found


def judged(**changes: Any) -> Findings:
    return judged_rows(rows(**changes))


def judged_rows(given: list[dict[str, Any]], widths: tuple[int, ...] = (8, 16, 32, 64, 128, 256)) -> Findings:
    return study().judge(study().recipe(loss_gaps=[1e-1, 1e-2], widths=list(widths)), given)


def decision(found: Findings, name: str) -> str:
    place = list(study().hypotheses).index(name)
    return str(found.tables["hypotheses"]["answer"][place])


def test_a_constant_number_per_context_gives_yes_everywhere() -> None:
    found = judged()
    assert [decision(found, name) for name in study().hypotheses] == ["yes"] * 5
    assert failed(found) == []
    table = found.tables["thresholds"]
    at = [n for n, gap in zip(table["parameters per context"], table["loss_gap"], strict=True) if gap == 1e-2]
    np.testing.assert_allclose(at, 10.0 * 1.02, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"power": 0.6}, "all"),
        ({"power": 0.6}, "body"),
        ({"steep": 1.2}, "tenth"),
        ({"steps": 1.8}, "longer"),
        ({"depth": 1.4}, "depth"),
    ],
)
def test_each_hypothesis_is_refuted_by_its_own_numbers(changes: dict[str, float], name: str) -> None:
    assert decision(judged(**changes), name) == "no"


def test_a_run_that_diverged_fails_a_check() -> None:
    assert "share of runs that diverged" in failed(judged(diverged=True))


def test_a_seed_that_was_cut_off_is_counted_in_the_table() -> None:
    gone = {"network": "mlp:2", "contexts": 100, "steps": 10, "seed": 4}
    kept = [row for row in rows() if row["width"] >= 64 or any(row[name] != value for name, value in gone.items())]
    found = judged_rows(kept)
    assert failed(found) == []
    table = found.tables["thresholds"]
    assert (table["seeds"][:3], table["cut off"][:3]) == ([4, 4, 5], [1, 1, 0])


@pytest.mark.parametrize(("kept", "widths"), [((8, 16), (8, 16)), ((64, 128, 256), (64, 128, 256))])
def test_a_loss_gap_outside_the_grid_fails_a_check(kept: tuple[int, ...], widths: tuple[int, ...]) -> None:
    found = judged_rows([row for row in rows() if row["width"] in kept], widths)
    assert failed(found) == ["share of thresholds that lie inside the grid of widths"]


def test_cases_with_one_seed_are_named_and_leave_a_hypothesis_open() -> None:
    found = judged_rows([row for row in rows() if row["contexts"] == 100 or row["seed"] == 0])
    place = list(study().hypotheses).index("tenth")
    assert decision(found, "tenth") == "undecided"
    assert (
        "Not measured with two seeds or more: mlp:2, 1,000; mlp:4, 1,000"
        in found.tables["hypotheses"]["because"][place]
    )
    shown = found.tables["thresholds"]
    single = np.array(shown["seeds"]) == 1
    np.testing.assert_array_equal(np.isnan(np.array(shown["parameters, low"], float)), single)


def test_thresholds_that_were_not_reached_can_be_saved(tmp_path: Path) -> None:
    given = [row for row in rows() if row["contexts"] == 100 or row["width"] <= 16]
    found = judged_rows(given)
    table = found.tables["thresholds"]
    assert np.isnan(np.array(table["width"], float)[np.array(table["seeds"]) == 0]).all()
    found.save(tmp_path / "found")
    assert Findings.load(tmp_path / "found").tables["thresholds"].keys() == table.keys()


def test_only_widths_around_the_loss_gaps_are_trained_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []

    def train(text: Any, recipe: Any, network: str, width: int, steps: int, seed: int) -> dict[str, Any]:
        trained.append(width)
        return {"loss_gap": 10.0 / width**2, "parameters": width, "body": width, "tokens": 1, "seconds": 0.0}

    monkeypatch.setattr("tokengeom_studies.memory_capacity._train", train)
    recipe = study().recipe(
        stories=60, context=2, contexts=20, vocabulary=30, networks=["mlp:1"], seeds=[0, 1], budgets=[[8, 5]],
        widths=[1, 2, 4, 8, 16, 32, 64, 128], loss_gaps=[1.0, 0.1],
    )  # fmt: skip
    kept = Rows()
    study().measure(recipe, kept, SilentProgress())
    # The first seed starts in the middle (16); 10 / 4^2 and 10 / 16^2 are the first below the loss gaps.
    assert [row["width"] for row in kept.rows if row["seed"] == 0] == [16, 8, 4, 2]
    assert sorted(row["width"] for row in kept.rows if row["seed"] == 1) == [2, 4, 8, 16]
    study().measure(recipe, kept, SilentProgress())
    assert len(trained) == 8
