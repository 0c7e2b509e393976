"""Simulated trainings: means of cosines, settings of the run, the loss at which they end, and contexts never seen."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from estimate_cases import Said
from network_cases import small_stories
from tokengeom.core import resources
from tokengeom.core.errors import InputError, ProblemError, ResourceError
from tokengeom.core.numerics import centre_columns, cosines
from tokengeom.core.progress import SilentProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.optimizers.adamw import AdamW
from tokengeom.training.run import Run
from tokengeom.training.simulate import FIRST_SEED, SURE, UNSURE, estimate_simulation, simulate, steps_to
from tokengeom.training.simulation import Simulation, _spread
from tokengeom.training.train import train

QUICK: dict[str, Any] = {"dim": 8, "learning_rate": 1e-2, "rate_schedule": "constant"}


@cache
def trained(model: str = "mlp") -> Run:
    return train(small_stories(), model, steps=60, **QUICK)


@cache
def simulated() -> Simulation:
    return simulate(small_stories(), like=trained(), replicates=3, ties="positions+self")


def test_a_replicate_is_a_training_of_the_tied_model_that_ends_at_the_loss_of_the_run() -> None:
    simulation, run = simulated(), trained()
    again = train(
        small_stories(),
        "tied",
        ties="positions+self",
        last_norm=True,
        seed=FIRST_SEED + 1,
        steps=simulation.steps[1],
        **QUICK,
    )
    np.testing.assert_allclose(simulation.trainings()[1].W, again.W, atol=1e-6)
    np.testing.assert_allclose(simulation.trainings()[1].H, again.H, atol=1e-5)
    assert simulation.wanted == run.loss_gap
    for gap in simulation.loss_gaps:
        assert 0.85 * run.loss_gap < gap <= run.loss_gap * (1 + 1e-4)


def test_cosines_are_the_means_of_those_of_the_replicates() -> None:
    simulation = simulated()
    trainings = simulation.trainings()
    contexts = np.mean([cosines(each.H) for each in trainings], axis=0)
    tokens = np.mean([cosines(centre_columns(each.W).T) for each in trainings], axis=0)
    np.testing.assert_allclose(simulation.context_cosines, contexts, atol=1e-12)
    np.testing.assert_allclose(simulation.token_cosines, tokens, atol=1e-12)
    logits = np.mean([each.logits for each in trainings], axis=0)
    np.testing.assert_allclose(simulation.W @ simulation.H, logits, atol=1e-10)
    # As a pair of W and H it has the mean Gram matrices, whose cosines differ little.
    for mine, mean in ((simulation.H, contexts), (centre_columns(simulation.W).T, tokens)):
        assert np.corrcoef(cosines(mine).ravel(), mean.ravel())[0, 1] > 0.99


def test_reliability_and_standard_error_are_those_of_known_noise() -> None:
    """Cosines c + noise of variance s^2: rho = v / (v + s^2), and the mean of R has R rho / (1 + (R - 1) rho)."""
    rng, R, n = np.random.default_rng(0), 5, 300
    shared = rng.standard_normal((60, n))
    noisy = [np.vstack([shared, 0.9 * rng.standard_normal((60, n))]) for _ in range(R)]
    units = [x / np.linalg.norm(x, axis=0) for x in noisy]
    reliability, standard_error = _spread(units, np.arange(n))
    others = [np.vstack([shared, 0.9 * rng.standard_normal((60, n))]) for _ in range(R)]
    pairs = np.triu_indices(n, 1)
    means = [np.mean([cosines(x)[pairs] for x in each], axis=0) for each in (noisy, others)]
    assert reliability == pytest.approx(np.corrcoef(*means)[0, 1], abs=0.01)
    assert standard_error == pytest.approx(np.std(means[0] - means[1]) / np.sqrt(2), rel=0.05)
    assert np.isnan(_spread(units[:1], np.arange(n))).all()


def test_pairs_of_one_support_say_nothing_of_reliability() -> None:
    units = [np.linalg.qr(np.random.default_rng(r).standard_normal((6, 4)))[0] for r in range(3)]
    assert np.isnan(_spread(units, np.zeros(4, int))).all()


def test_settings_are_those_of_the_run_unless_they_are_given() -> None:
    stats = small_stories()
    own: dict[str, Any] = {
        "optimizer": AdamW(eps=1e-6),
        "weight_decay": 1e-3,
        "rate_schedule": "cosine",
        "reduction": "mean",
        "batch": 32,
    }
    run = train(stats, "lstm", steps=30, layers=1, dim=6, learning_rate=2e-2, **own)
    copied = simulate(stats, like=run, replicates=1).settings
    for name in ("optimizer", "learning_rate", "weight_decay", "rate_schedule", "reduction", "batch", "dim", "steps"):
        assert copied[name] == run.settings[name], name
    assert (copied["last_norm"], copied["head_start"]) == (True, 1.0)
    given = simulate(stats, like=trained(), replicates=1, last_norm=False, dim=5, optimizer="adam", loss_gap=1.0)
    assert not given.settings["last_norm"]
    assert given.settings["dim"] == 5
    assert given.settings["optimizer"]["name"] == "adam"
    assert given.loss_gap == pytest.approx(1.0, rel=0.1)
    assert not simulate(stats, like=trained("ufm"), replicates=1).settings["last_norm"]
    tied = train(stats, "tied", steps=20, head_start=0.5, feature_start=2.0, **QUICK)
    like = simulate(stats, like=tied, replicates=1).settings
    assert (like["head_start"], like["feature_start"], like["last_norm"]) == (0.5, 2.0, False)


def test_a_simulation_explains_a_network_better_than_unconstrained_features_do() -> None:
    stats = small_stories(contexts=120)
    runs = [train(stats, "mlp", steps=80, seed=seed, **(QUICK | {"dim": 32})) for seed in range(2)]
    pairs = np.triu_indices(stats.m, 1)
    network = np.mean([cosines(run.H) for run in runs], axis=0)[pairs]
    free, tied = (
        simulate(stats, like=runs[0], ties=ties, replicates=3).context_cosines[pairs]
        for ties in ("self", "positions+pairs+self")
    )
    assert np.corrcoef(network, tied)[0, 1] > np.corrcoef(network, free)[0, 1] + 0.02


def test_it_is_saved_loaded_verified_and_described(tmp_path: Path) -> None:
    simulation = simulated()
    small_stories().save(tmp_path / "stats")
    simulation.save(tmp_path / "simulation")
    loaded = tg.load(tmp_path / "simulation")
    assert isinstance(loaded, Simulation)
    np.testing.assert_array_equal(loaded.context_vectors, simulation.context_vectors)
    assert loaded.to_dict() == simulation.to_dict()
    assert {"loss_gap", "replicates", "reliability", "seconds"} <= set(simulation.to_dict())
    checked = tg.verify(tmp_path / "simulation")
    assert checked.ok, checked.failed
    assert "the loss gaps are those of the weights" in checked.checked
    assert [sentence for sentence in checked.not_checked if "only training shows it" in sentence]
    assert "mean of 3 random starts: a loss gap of" in simulation.summary()
    assert repr(simulation).startswith("Simulation(ties=positions+self, replicates=3, loss gap=")
    near = simulation.neighbours(small_stories().vocabulary[0], stats=small_stories())
    assert near.source.startswith("simulated to a loss gap of")


def test_a_changed_simulation_is_found(tmp_path: Path) -> None:
    small_stories().save(tmp_path / "stats")
    replace(simulated(), loss_gaps=(0.5, 0.5, 0.5)).save(tmp_path / "simulation")
    assert tg.verify(tmp_path / "simulation").failed == ("the loss gaps are those of the weights",)
    replace(simulated(), reliability={"contexts": 0.99, "tokens": 0.99}).save(tmp_path / "simulation")
    assert tg.verify(tmp_path / "simulation").failed == ("replicates are as alike as claimed",)
    replace(simulated(), replicates=2).save(tmp_path / "simulation")
    with pytest.raises(InputError, match="do not belong together"):
        tg.load(tmp_path / "simulation")


def test_contexts_of_the_statistics_are_placed_where_they_are_and_others_by_what_they_share() -> None:
    simulation, stats = simulated(), small_stories()
    assert stats.contexts is not None
    np.testing.assert_allclose(simulation.place(stats.contexts).H, simulation.H, atol=1e-12)
    last = stats.contexts[0].copy()
    last[0] = 10**6
    placed = simulation.parts_of(simulation.features.of(last[None, :])).sum(axis=1)
    assert np.linalg.norm(placed) == pytest.approx(1.0)
    same_end = np.all(stats.contexts[:, 1:] == last[1:], axis=1)
    similar = placed @ simulation.context_vectors
    assert similar[same_end].mean() > similar[~same_end].mean() + 0.2


def test_texts_are_placed_with_the_mean_of_the_replicates_probabilities(tmp_path: Path) -> None:
    simulation, stats = simulated(), small_stories()
    names = [stats.context_text(j) for j in range(stats.m)]
    placed = simulation.place(names)
    assert set(placed.seen) == {"counted"}
    np.testing.assert_allclose(placed.H, simulation.H, atol=1e-12)
    each = [np.exp(one.logits) / np.exp(one.logits).sum(axis=0) for one in simulation.trainings()]
    np.testing.assert_allclose(placed.probabilities, np.mean(each, axis=0), atol=1e-12)
    assert sum(share for _, share in placed.shared_features(0)) == pytest.approx(1.0)
    cosine = simulation.context_cosines[0]
    nearest = max(range(1, stats.m), key=lambda j: cosine[j])
    ((name, found),) = placed.neighbours(0, 1)
    assert name == names[nearest]
    assert found == pytest.approx(cosine[nearest])
    assert placed.why(nearest).cosine == pytest.approx(cosine[nearest])
    stats.save(tmp_path / "stats")
    simulation.save(tmp_path / "simulation")
    never = tg.place(tmp_path / "simulation", f"zebra {names[0].split()[-1]}")
    assert never.seen[0] != "counted"
    assert len(never.shared_features()) == 1
    np.testing.assert_allclose(tg.place(tmp_path / "simulation", names[:2]).H, placed.H[:, :2], atol=1e-6)
    nothing = simulation.place("zebra zebra zebra zebra")
    np.testing.assert_allclose(nothing.probabilities, 1 / stats.V)
    assert nothing.next_tokens() == nothing.neighbours() == []


def test_the_kernel_of_an_mlp_is_refused_for_a_run_of_another_network() -> None:
    run = trained()
    with pytest.raises(InputError, match=r"what an MLP does at its start, and the run is a lstm. .*like=run\)"):
        simulate(small_stories(), like=replace(run, settings={**run.settings, "model": "lstm"}), ties="2*kernel+self")


@pytest.mark.parametrize("last_norm", [False, True])
def test_questions_are_answered_with_the_mean_cosines(last_norm: bool) -> None:
    stats = small_stories()
    simulation = simulate(stats, loss_gap=1.5, dim=8, replicates=3, last_norm=last_norm, learning_rate=1e-2)
    names, cosine = [stats.context_text(j) for j in range(stats.m)], simulation.context_cosines
    found = simulation.neighbours(names[0], k=5, items="contexts")
    assert [row.cosine for row in found.rows] == pytest.approx([cosine[0, row.index] for row in found.rows])
    seen = np.unique(stats.P.indices)
    W = [each.W - each.W[seen].mean(axis=0) for each in simulation.trainings()]
    tokens = np.mean([cosines(each.T) for each in W], axis=0)
    token = int(seen[0])
    near = simulation.neighbours(stats.vocabulary[token], k=5, items="tokens")
    assert [row.cosine for row in near.rows] == pytest.approx([tokens[token, row.index] for row in near.rows])
    report = simulation.explain(names[0], k=3, items="contexts")
    assert [shared.cosine for shared in report.features] == pytest.approx(
        [1.0, *(row.cosine for row in report.neighbours.rows)]
    )
    placed = simulation.place(names[0])
    known = dict(placed.next_tokens(k=stats.V))
    assert {row.token: row.values["probability"] for row in report.logits} == pytest.approx(
        {row.token: known[row.token] for row in report.logits}
    )


def test_gradient_flow_is_one_replicate_that_is_not_random(tmp_path: Path) -> None:
    stats = small_stories()
    flow = simulate(stats, like=trained(), optimizer="gradient-flow", loss_gap=0.5)
    assert flow.replicates == 1
    assert flow.loss_gap == pytest.approx(0.5, rel=1e-6)
    assert flow.reliability == {"contexts": 1.0, "tokens": 1.0}
    wide = simulate(stats, optimizer="gd", learning_rate=0.5, loss_gap=0.5, dim=1000, replicates=2)
    pairs = np.triu_indices(stats.m, 1)
    assert np.corrcoef(flow.context_cosines[pairs], wide.context_cosines[pairs])[0, 1] > 0.99
    flow.save(tmp_path / "flow")
    stats.save(tmp_path / "stats")
    assert tg.verify(tmp_path / "flow").ok


def test_the_time_of_gradient_flow_is_that_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    stats, seconds = small_stories(), itertools.count()
    flow = simulate(stats, optimizer="gradient-flow", loss_gap=0.1)
    monkeypatch.setattr("tokengeom.training.simulate.time.monotonic", lambda: float(next(seconds)))
    how: dict[str, Any] = {"optimizer": "gradient-flow", "loss_gap": 0.1}
    whole = estimate_simulation(stats, **how, rehearsal=600.0)
    assert whole.what.startswith("Gradient flow of ")
    assert whole.shortest <= flow.steps[0] <= whole.longest, "every step takes a second"
    begun = estimate_simulation(stats, **how, rehearsal=0.0)
    assert begun.longest == pytest.approx(UNSURE**2 * begun.shortest)
    assert begun.shortest <= flow.steps[0] <= begun.longest
    assert begun.bytes == whole.bytes > 0


def test_a_loss_that_is_not_reached_is_said() -> None:
    simulation = simulate(small_stories(), like=trained(), replicates=2, steps=3)
    assert simulation.steps == (3, 3)
    assert "Of 2 trainings of tied features, 2 did not reach the loss gap" in simulation.summary()


def test_the_time_is_estimated_as_a_range() -> None:
    estimate = estimate_simulation(small_stories(), like=trained(), rehearsal=0.0, loss_gap=1e-6, steps=10**6)
    assert estimate.longest == pytest.approx(UNSURE**2 * estimate.shortest)
    assert "8 replicates" in estimate.sentence
    whole = estimate_simulation(small_stories(), like=trained(), rehearsal=600.0)
    assert whole.longest == pytest.approx(SURE**2 * whole.shortest)
    assert tg.estimate("simulate", small_stories(), like=trained(), replicates=2).what.startswith("Simulating 2")


def test_a_long_simulation_says_once_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "LONG", 0.0)
    monkeypatch.setattr("tokengeom.training.simulate.FEWEST_RECORDS", 2)
    monkeypatch.setattr("tokengeom.training.simulate._at_a_time", lambda *_: 1)
    for seconds, said in ((0.0, 1), (600.0, 0)):
        monkeypatch.setattr("tokengeom.training.simulate.REHEARSAL", seconds)
        # The loss gap is not reached before the last step, so that only the seconds decide.
        shown = Said()
        simulate(small_stories(), like=trained(), loss_gap=1e-6, steps=20, replicates=2, progress=shown)
        assert len(shown.sentences) == said
        assert all(one.startswith("Simulating 2 replicates on ") for one in shown.sentences)


def test_steps_are_extrapolated_along_a_power_of_the_steps() -> None:
    seen = [(step, 3.0 * step**-0.5) for step in (1, 2, 5, 10, 20, 50, 100)]
    assert steps_to(0.03, seen) == pytest.approx(1e4)
    assert steps_to(0.5, seen) == 100
    assert steps_to(0.1, [(1, 2.0), (10, 2.0), (20, 2.0)]) == float("inf")
    # A loss that began to fall late: only the last records say how fast it falls now.
    late = [(step, 3.0 * min(60 / step, 1.0)) for step in range(10, 101, 5)]
    assert steps_to(0.3, late) == pytest.approx(600)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({}, "Give loss_gap, or a run"),
        ({"loss_gap": 99.0}, "uniform guess"),
        ({"loss_gap": -1.0}, "between 0 and that of a uniform guess"),
        ({"loss_gap": 0.5, "replicates": 0}, "replicates must be at least 1"),
        ({"loss_gap": 0.5, "optimizer": "gradient-flow", "last_norm": True}, "has no last norm"),
    ],
)
def test_what_cannot_be_simulated_is_refused(given: dict[str, Any], part: str) -> None:
    with pytest.raises(ProblemError, match=part):
        simulate(small_stories(), progress=SilentProgress(), **given)


def test_runs_that_cannot_be_copied_are_refused() -> None:
    stats = small_stories()
    with pytest.raises(ProblemError, match="statistics that the run was trained on"):
        simulate(small_stories(contexts=30), like=trained())
    linear = train(stats, "linear", embeddings=np.random.default_rng(0).standard_normal((5, stats.m)), steps=1)
    with pytest.raises(InputError, match="not of the linear model"):
        simulate(stats, like=linear)
    with pytest.raises(InputError, match="like must be a run"):
        simulate(stats, like=stats)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="reads the tokens of contexts"):
        simulate(NextTokenStatistics.from_counts(stats.counts.toarray()), loss_gap=0.5)


def test_replicates_that_do_not_fit_are_refused_by_their_name() -> None:
    with pytest.raises(ResourceError, match="weights of 1,000,000,000,000 replicates"):
        simulate(small_stories(), loss_gap=0.5, replicates=10**12)
