"""Training of networks: exact gradients, resuming to the last bit, and agreement that grows."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from network_cases import small_stories
from tokengeom.comparison.compare import compare
from tokengeom.core.errors import InputError, ProblemError, ResourceError
from tokengeom.core.numerics import Int
from tokengeom.core.settings import member_names
from tokengeom.models.networks.base import architecture_named
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.base import Steps
from tokengeom.training.optimizers.spectral import Spectral
from tokengeom.training.run import Run
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import build_network, train
from tokengeom.verification.verify import verify
from waiting import wait_until

NAMES = member_names("tokengeom.models.networks")
TINY: dict[str, Any] = {"dim": 16, "layers": 1, "seed": 5}


def tiny(name: str) -> dict[str, Any]:
    known = {*architecture_named(name).defaults, "dim", "seed"}
    return {setting: value for setting, value in (TINY | {"heads": 2}).items() if setting in known}


def raw_windows(stats: NextTokenStatistics) -> tuple[Int, Int]:
    """Context and next token of every window."""
    table = stats.counts.tocoo()
    return np.repeat(table.col, table.data), np.repeat(table.row, table.data)


@pytest.mark.parametrize("windows", ["sliding", "prefixes"])
@pytest.mark.parametrize("name", NAMES)
def test_a_step_follows_the_gradient_of_the_summed_loss_on_raw_windows(
    name: str, windows: Literal["sliding", "prefixes"]
) -> None:
    stats = small_stories(windows)
    rate = 1e-3
    run = train(stats, name, optimizer="gd", learning_rate=rate, steps=1, reduction="mean", **tiny(name))
    model = build_network(stats, TrainingSettings(model=name, **tiny(name)))
    context, token = (torch.as_tensor(x, dtype=torch.long) for x in raw_windows(stats))
    decoder = model.decoder.train()
    torch.nn.functional.cross_entropy(decoder(slice(0, stats.m))[context], token).backward()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter -= rate * parameter.grad
    np.testing.assert_allclose(run.W, model.readout().W, atol=1e-6)
    np.testing.assert_allclose(run.H, model.readout().H, atol=2e-5)


def test_the_loss_on_distinct_contexts_is_the_loss_on_raw_windows() -> None:
    stats = small_stories()
    run = train(stats, "mlp", steps=5, learning_rate=1e-2, **tiny("mlp"))
    context, token = raw_windows(stats)
    logits = torch.as_tensor(run.logits.T[context])
    loss = torch.nn.functional.cross_entropy(logits, torch.as_tensor(token, dtype=torch.long))
    assert run.loss == pytest.approx(float(loss), abs=1e-10)


def test_adamw_is_torchs_own() -> None:
    stats = small_stories()
    options: dict[str, Any] = {"learning_rate": 1e-2, "weight_decay": 0.1, "rate_schedule": Steps((2,), 0.4)}
    run = train(stats, "mlp", steps=4, **tiny("mlp"), **options)
    model = build_network(stats, TrainingSettings(model="mlp", **tiny("mlp")))
    adamw = torch.optim.AdamW(model.decoder.parameters(), lr=1e-2, weight_decay=0.1)
    context, token = (torch.as_tensor(x, dtype=torch.long) for x in raw_windows(stats))
    for step in range(4):
        adamw.param_groups[0]["lr"] = 1e-2 * (0.4 if step >= 2 else 1.0)
        adamw.zero_grad()
        logits = model.decoder(slice(0, stats.m))
        torch.nn.functional.cross_entropy(logits[context], token, reduction="sum").backward()
        adamw.step()
    np.testing.assert_allclose(run.W, model.readout().W, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_agreement_with_the_prediction_grows_during_training(name: str) -> None:
    stats = small_stories()
    prediction = predict(stats)
    options = tiny(name) | {"dim": 32, "learning_rate": 1e-2, "weight_decay": 1e-6, "rate_schedule": "cosine"}
    start = compare(prediction, train(stats, name, steps=0, **options), permutations=100)
    end = compare(prediction, train(stats, name, steps=150, **options), permutations=100)
    assert end.context_similarity.value > max(start.context_similarity.value + 0.1, end.context_similarity.null)
    assert end.token_similarity.value > start.token_similarity.value
    assert end["collapse"].value < start["collapse"].value


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_is_the_uninterrupted_one(name: str, tmp_path: Path) -> None:
    options = tiny(name) | {"steps": 6, "learning_rate": 1e-2, "rate_schedule": "constant"}
    if name == "transformer":
        options["attention_dropout"] = 0.2
    whole = train(small_stories(), name, **options)
    train(small_stories(), name, checkpoint=tmp_path / "run", **(options | {"steps": 3}))
    resumed = train(small_stories(), name, checkpoint=tmp_path / "run", resume=True, **options)
    np.testing.assert_array_equal(resumed.W, whole.W)
    np.testing.assert_array_equal(resumed.H, whole.H)
    np.testing.assert_array_equal(resumed.trajectory["loss_gap"], whole.trajectory["loss_gap"])
    np.testing.assert_array_equal(Run.load(tmp_path / "run").W, whole.W)
    assert verify(tmp_path / "run")


KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from network_cases import small_stories
from tokengeom.training.train import train
train(small_stories(), "lstm", dim=8, layers=1, batch=8, steps=10**9, rate_schedule="constant",
      checkpoint=sys.argv[1], checkpoint_seconds=0.05)
"""


def test_a_killed_network_continues_from_its_last_snapshot_to_the_same_end(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parents[1])])
    wait_until(lambda: max((path.name for path in tmp_path.glob("step-*")), default="") >= "step-000000000020", child)
    child.kill()
    child.wait()
    steps = Run.load(tmp_path).steps + 10
    options: dict[str, Any] = {"dim": 8, "layers": 1, "batch": 8, "steps": steps, "rate_schedule": "constant"}
    resumed = train(small_stories(), "lstm", checkpoint=tmp_path, resume=True, **options)
    whole = train(small_stories(), "lstm", **options)
    np.testing.assert_array_equal(resumed.W, whole.W)
    np.testing.assert_array_equal(resumed.H, whole.H)


def test_a_run_on_other_contexts_is_not_resumed(tmp_path: Path) -> None:
    stats = small_stories()
    assert stats.contexts is not None
    train(stats, "mlp", steps=2, checkpoint=tmp_path / "run", **TINY)
    turned = replace(stats, contexts=stats.contexts[:, ::-1].copy())
    with pytest.raises(InputError, match="other statistics"):
        train(turned, "mlp", steps=2, checkpoint=tmp_path / "run", resume=True, **TINY)


def test_labels_without_contexts_are_refused() -> None:
    with pytest.raises(ProblemError, match="SoftLabels have none"):
        train(SoftLabels.from_statistics(small_stories()), "mlp", steps=1)


def test_a_run_of_another_architecture_is_not_resumed(tmp_path: Path) -> None:
    train(small_stories(), "mlp", steps=2, checkpoint=tmp_path / "run", **TINY)
    with pytest.raises(InputError, match="model"):
        train(small_stories(), "lstm", steps=2, checkpoint=tmp_path / "run", resume=True, **TINY)


def test_training_on_batches_of_windows_is_determined_by_the_seed() -> None:
    options: dict[str, Any] = {"steps": 60, "batch": 64, "learning_rate": 1e-2, "rate_schedule": "constant", **TINY}
    first, second = (train(small_stories("prefixes"), "lstm", **options) for _ in range(2))
    np.testing.assert_array_equal(first.W, second.W)
    assert first.loss_gap < 0.5 * first.trajectory["loss_gap"][0]


def test_muon_moves_every_parameter_by_an_orthogonal_matrix() -> None:
    stats = small_stories()
    options = {"optimizer": Spectral(), "learning_rate": 0.1, "reduction": "mean", **TINY}
    before = train(stats, "mlp", steps=0, **options)
    after = train(stats, "mlp", steps=1, **options)
    singular = np.linalg.svd((before.W - after.W) / 0.1, compute_uv=False)
    moved = singular[singular > 1e-3]
    assert moved.size >= 15
    np.testing.assert_allclose(moved, 1.0, atol=1e-3)


def test_dropout_is_off_when_measuring_and_the_generator_of_the_caller_is_restored() -> None:
    options: dict[str, Any] = {"attention_dropout": 0.5, "learning_rate": 1e-2, **tiny("transformer")}
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    run = train(small_stories(), "transformer", steps=3, **options)
    torch.testing.assert_close(torch.rand(3), expected)
    again = train(small_stories(), "transformer", steps=3, **options)
    np.testing.assert_array_equal(run.W, again.W)
    other = train(small_stories(), "transformer", steps=3, **(options | {"attention_dropout": 0.0}))
    assert not np.array_equal(run.W, other.W)


def test_double_precision_is_double() -> None:
    options: dict[str, Any] = {"steps": 1, "optimizer": "gd", "learning_rate": 1e-3, **TINY}
    single = train(small_stories(), "mlp", **options)
    double = train(small_stories(), "mlp", precision="float64", **options)
    assert 0 < np.abs(single.W - double.W).max() < 1e-5
    assert not np.array_equal(double.W, double.W.astype(np.float32))
    assert double.start is not None
    assert np.linalg.norm(double.start.W) == double.trajectory["norm_W"][0], "the start does not change in training"


@pytest.mark.parametrize(
    ("options", "error", "part"),
    [
        ({"model": "ufm", "layers": 2}, ProblemError, "layers is not a setting of model 'ufm', which has init"),
        ({"model": "lstm", "init": "zero"}, ProblemError, "init is not a setting of model 'lstm', which has layers"),
        ({"model": "lstm", "precision": "bfloat16"}, ProblemError, "on a GPU"),
        ({"model": "gru"}, ProblemError, "must be one of linear, ufm, .*transformer"),
        ({"model": "lstm", "device": "cuda"}, ResourceError, "no CUDA device"),
        ({"model": "lstm", "embeddings": np.ones((3, 40))}, ProblemError, "leave embeddings out"),
        ({"model": "lstm", "layers": 0}, ProblemError, "layers"),
    ],
)
def test_settings_that_a_network_does_not_have_are_refused(
    options: dict[str, Any], error: type[Exception], part: str
) -> None:
    if options.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(error, match=part):
        train(small_stories(), steps=1, dim=8, **options)


def test_compiled_without_a_compiler_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ResourceError, match=r"compiled needs a C\+\+ compiler, and \S+ was not found"):
        train(small_stories(), "lstm", steps=1, compiled=True, **tiny("lstm"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ResourceError, match="no-such-compiler was not found"):
        train(small_stories(), "lstm", steps=1, compiled=True, **tiny("lstm"))
