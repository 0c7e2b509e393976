"""Training reaches the published numbers, respects the symmetries of the problem, and refuses invalid input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokengeom.core.errors import InputError, ProblemError, ResourceError
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.adam import Adam
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import train, train_many
from training_problems import paper_setting, random_statistics

# Loss gap and norm of W after 1e4 steps in the overparameterised linear setting: ranges over five instances.
PUBLISHED = [
    ("gd", 0.5, (1.9e-3, 2.4e-3), (15.7, 16.7)),
    ("ngd", 0.01, (4.4e-4, 5.4e-4), (19.6, 21.6)),
    (Adam(betas=(0.9, 0.99)), 0.01, (2.3e-5, 5.5e-5), (30.9, 32.9)),
]


@pytest.mark.parametrize(("optimizer", "rate", "gaps", "norms"), PUBLISHED)
def test_linear_training_reaches_the_published_loss_and_norm(
    optimizer: Any, rate: float, gaps: tuple[float, float], norms: tuple[float, float]
) -> None:
    runs = []
    for seed in range(20):
        stats, H = paper_setting(seed)
        run = train(stats, "linear", embeddings=H, optimizer=optimizer, learning_rate=rate, seed=seed)
        runs.append((run.loss_gap, np.linalg.norm(run.W)))
    # Five instances show less variation than there is: the middle half of ours must overlap the published range.
    low, high = np.percentile(np.array(runs), [25, 75], axis=0)
    assert low[0] <= gaps[1]
    assert gaps[0] <= high[0]
    assert low[1] <= norms[1]
    assert norms[0] <= high[1]


def test_gradient_descent_closes_the_gap_like_one_over_the_steps() -> None:
    stats, H = paper_setting(0)
    run = train(stats, "linear", embeddings=H, optimizer="gd", learning_rate=0.5, steps=30_000)
    late = run.trajectory["step"] >= 1000
    slope = np.polyfit(np.log(run.trajectory["step"][late]), np.log(run.trajectory["loss_gap"][late]), 1)[0]
    assert -1.2 < slope < -0.8
    assert run.trajectory["norm_W"][-1] > run.trajectory["norm_W"][late][0]


def test_unconstrained_features_reach_the_entropy_floor() -> None:
    stats = random_statistics(0, V=30, m=16, k=3)
    settings: dict[str, Any] = {"optimizer": "adamw", "weight_decay": 1e-6, "reduction": "sum", "steps": 30_000}
    assert train(stats, "ufm", dim=30, learning_rate=1e-3, **settings).loss_gap <= 2e-5


def test_the_dimension_may_be_one() -> None:
    run = train(random_statistics(1), "ufm", dim=1, optimizer="adam", steps=200)
    assert run.W.shape == (7, 1)
    assert run.trajectory["loss_gap"][-1] < run.trajectory["loss_gap"][0]


def test_relabelling_tokens_and_permuting_contexts_permutes_the_result() -> None:
    stats, rng = random_statistics(2), np.random.default_rng(0)
    H = rng.standard_normal((5, 9))
    tokens, contexts = rng.permutation(7), rng.permutation(9)
    other = NextTokenStatistics.from_probabilities(stats.P.toarray()[tokens][:, contexts], stats.pi[contexts])
    for optimizer in ("gd", "ngd", "adam", "spectral"):
        run = train(stats, "linear", embeddings=H, optimizer=optimizer, init="zero", steps=100)
        moved = train(other, "linear", embeddings=H[:, contexts], optimizer=optimizer, init="zero", steps=100)
        np.testing.assert_allclose(moved.W, run.W[tokens], atol=1e-9)
        assert moved.loss_gap == pytest.approx(run.loss_gap, rel=1e-9)


def test_learned_embeddings_start_from_the_same_point_and_move() -> None:
    stats, H = random_statistics(3), np.random.default_rng(1).standard_normal((5, 9))
    fixed = train(stats, "linear", embeddings=H, steps=50, learning_rate=0.5)
    learned = train(stats, "linear", embeddings=H, steps=50, learning_rate=0.5, learn_embeddings=True)
    np.testing.assert_array_equal(fixed.H, H)
    assert learned.trajectory["loss_gap"][0] == fixed.trajectory["loss_gap"][0]
    assert np.abs(learned.H - H).max() > 1e-3
    assert learned.loss_gap < fixed.loss_gap


def test_single_precision_follows_double_precision() -> None:
    stats = random_statistics(4)
    double, single = (
        train(stats, "ufm", dim=6, optimizer="adam", steps=100, precision=p) for p in ("float64", "float32")
    )
    np.testing.assert_allclose(single.W, double.W, atol=1e-3)
    assert single.W.dtype == np.float64


def test_a_diverging_run_has_a_status_that_says_so() -> None:
    stats, H = random_statistics(9), np.random.default_rng(3).standard_normal((5, 9))
    run = train(stats, "linear", embeddings=H, learning_rate=1e308, steps=100)
    assert run.diverged
    assert "1e+308" in run.status
    assert np.isnan(run.loss_gap)


EMBEDDINGS = np.random.default_rng(4).standard_normal((5, 9))
TRANSPOSED, NAN, ZERO = EMBEDDINGS.T, EMBEDDINGS.copy(), EMBEDDINGS.copy()
NAN[2, 3], ZERO[:, 7] = np.nan, 0.0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"model": "linear"}, "needs embeddings"),
        ({"model": "linear", "embeddings": TRANSPOSED}, "look transposed"),
        ({"model": "linear", "embeddings": NAN}, r"H\[2, 3\]=nan \(context 3"),
        ({"model": "linear", "embeddings": ZERO}, "column 7 of H is 0"),
        ({"model": "linear", "embeddings": EMBEDDINGS[:, :4]}, r"here \(d, 9\); got shape \(5, 4\)"),
        ({"model": "linear", "embeddings": EMBEDDINGS, "dim": 4}, "d=5; got 4"),
        ({"model": "ufm", "dim": 0}, "dim must be .* got 0"),
        ({"model": "ufm", "dim": 2, "init": "zero"}, "init='zero'"),
        ({"model": "ufm", "dim": 2, "embeddings": EMBEDDINGS}, "leave embeddings out"),
        ({"model": "ufm", "dim": 2, "steps": -1}, "steps must be .* got -1"),
        ({"model": "ufm", "dim": 2, "batch": 0}, "batch must be .* got 0"),
        ({"model": "ufm", "dim": 2, "learning_rate": 0.0}, "learning_rate must be .* got 0.0"),
        ({"model": "ufm", "dim": 2, "weight_decay": float("nan")}, "weight_decay must be .* got nan"),
        ({"model": "ufm", "dim": 2, "precision": "float16"}, "precision .* got 'float16'"),
        ({"model": "gpt"}, "model must be one of linear, ufm, .* got 'gpt'"),
        ({"model": "ufm", "dim": 2, "optimizer": "lion"}, "optimizer must be one of .* got 'lion'"),
        ({"model": "ufm", "learning_rate": "fast"}, "learning_rate must be .* got 'fast'"),
        ({"model": "ufm", "learn_embeddings": True}, "learn_embeddings is not a setting of model 'ufm'"),
        ({"model": "ufm", "dim": 2, "rate_schedule": "linear"}, "schedule .* got 'linear'"),
        ({"model": "ufm", "dim": 2, "resume": True}, "resume=True needs checkpoint"),
        ({"model": "ufm", "dim": 2, "device": "tpu9"}, "device .* got 'tpu9'"),
    ],
)
def test_invalid_input_is_refused_with_its_name_and_value(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        train(random_statistics(0), **arguments)


def test_a_device_that_the_machine_lacks_is_refused() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("ends on a machine without a GPU")
    with pytest.raises(ResourceError, match="sees no CUDA device"):
        train(random_statistics(0), "ufm", dim=2, device="cuda")


def test_a_run_that_would_not_fit_in_memory_is_refused_with_its_size() -> None:
    with pytest.raises(ResourceError, match=r"in 1,000,000,000,000 dimensions must fit in memory: \S+ GiB are needed"):
        train(random_statistics(0), "ufm", dim=10**12)


def test_equal_contexts_with_different_embeddings_are_refused() -> None:
    stats = random_statistics(0)
    contexts = np.arange(9, dtype=np.int32)[:, None].repeat(2, 1)
    contexts[5] = contexts[2]
    repeated = NextTokenStatistics.from_probabilities(stats.P, stats.pi, contexts=contexts)
    with pytest.raises(ProblemError, match=r"contexts 2 and 5 are both \[2, 2\]"):
        train(repeated, "linear", embeddings=EMBEDDINGS)


def test_the_path_of_saved_statistics_is_enough(tmp_path: Path) -> None:
    stats = random_statistics(0)
    stats.save(tmp_path / "stats")
    expected = train(stats, "ufm", dim=3, steps=5)
    for given in (tmp_path / "stats", str(tmp_path / "stats")):
        run = train(given, "ufm", dim=3, steps=5)
        np.testing.assert_array_equal(run.W, expected.W)
        assert run.statistics_hash == stats.hash


def test_labels_are_enough_and_have_no_statistics() -> None:
    stats = random_statistics(0)
    run = train(SoftLabels.from_dense(stats.P.toarray(), stats.pi), "ufm", dim=3, steps=5)
    np.testing.assert_array_equal(run.W, train(stats, "ufm", dim=3, steps=5).W)
    assert run.statistics_hash is None


def test_a_text_is_refused_with_the_advice_to_count_it(tmp_path: Path) -> None:
    (tmp_path / "stories.txt").write_text("once upon a time")
    with pytest.raises(InputError, match="count it first"):
        train(tmp_path / "stories.txt")
    with pytest.raises(InputError, match="from_counts"):
        train(np.ones((3, 2)))  # type: ignore[arg-type]


def test_an_unknown_setting_is_refused_with_the_likely_name() -> None:
    with pytest.raises(InputError, match=r"train has no setting 'learning_rates'\. Did you mean 'learning_rate'"):
        train(random_statistics(0), learning_rates=0.1)  # type: ignore[call-arg]


def test_replicates_that_differ_in_more_than_seed_and_dimension_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="at least one"):
        train_many(random_statistics(0), [])
    with pytest.raises(ProblemError, match="only in seed and dim"):
        train_many(random_statistics(0), [TrainingSettings(steps=1), TrainingSettings(steps=2)])


def test_the_default_run_is_adamw_on_the_summed_loss_with_the_papers_schedule() -> None:
    stats = random_statistics(0)
    asked: dict[str, Any] = {
        "dim": 128,
        "optimizer": "adamw",
        "reduction": "sum",
        "precision": "float64",
        "rate_schedule": "paper",
    }
    default, explicit = train(stats, steps=20), train(stats, "ufm", steps=20, **asked)
    np.testing.assert_array_equal(default.W, explicit.W)
    assert default.settings == explicit.settings


@pytest.mark.parametrize("model", ["ufm", "mlp"])
def test_a_batch_that_does_not_fit_is_refused_by_its_name(model: str) -> None:
    with pytest.raises(ResourceError, match=r"batch=1,000,000,000,000 .*Take a smaller batch"):
        train(random_statistics(8), model, dim=2, steps=2, batch=10**12)


@pytest.mark.parametrize("size", [{"dim": 10**12}, {"dim": 4, "layers": 10**12}])
def test_a_network_that_cannot_fit_is_refused_before_it_is_built(size: dict[str, int]) -> None:
    with pytest.raises(ResourceError, match="must fit in memory"):
        train(random_statistics(8), "mlp", steps=2, **size)  # type: ignore[arg-type]


def test_records_without_number_are_refused() -> None:
    with pytest.raises(ProblemError, match="at most 1,000,000; got 1,000,000,000,000"):
        train(random_statistics(8), dim=2, steps=2, records_per_decade=10**12)
