"""Settings of training: defaults that depend on model and optimizer, and members that are found as files."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tokengeom.models.networks
import tokengeom.training.optimizers
from network_cases import small_stories
from tokengeom.core.errors import ProblemError
from tokengeom.core.settings import default_of, member_names
from tokengeom.training.optimizers.adamw import AdamW
from tokengeom.training.optimizers.base import optimizer_names
from tokengeom.training.settings import TrainingSettings, model_names, model_options
from tokengeom.training.train import train
from training_problems import random_statistics


@pytest.mark.parametrize(
    ("given", "optimizer", "reduction", "precision", "dim"),
    [
        ({}, "adamw", "sum", "float64", 128),
        ({"model": "ufm", "optimizer": "gd"}, "gd", "mean", "float64", 128),
        ({"model": "linear"}, "gd", "mean", "float64", None),
        ({"model": "linear", "optimizer": "adamw"}, "adamw", "sum", "float64", None),
        ({"model": "linear", "optimizer": AdamW(eps=1e-6)}, "adamw", "sum", "float64", None),
        ({"model": "transformer"}, "adamw", "sum", "float32", 128),
        ({"model": "lstm", "optimizer": "adam", "dim": 7}, "adam", "mean", "float32", 7),
        ({"reduction": "mean", "precision": "float32"}, "adamw", "mean", "float32", 128),
    ],
)
def test_defaults_depend_on_the_model_and_the_optimizer(
    given: dict[str, object], optimizer: str, reduction: str, precision: str, dim: int | None
) -> None:
    settings = TrainingSettings(**given)  # type: ignore[arg-type]
    assert settings.optimization().optimizer.name == optimizer
    assert (settings.reduction, settings.precision, settings.dim) == (reduction, precision, dim)


def test_settings_that_are_filled_in_stay_the_same() -> None:
    settings = TrainingSettings()
    assert dataclasses.replace(settings) == settings


def test_the_signature_of_train_shows_every_setting_with_its_default() -> None:
    shown = inspect.signature(train).parameters
    for field in dataclasses.fields(TrainingSettings):
        assert shown[field.name].default == default_of(field)
        assert field.metadata["help"] in (train.__doc__ or "")
        assert field.metadata["help"].endswith(".")
        assert field.metadata["panel"] in ("Model", "Training")


def test_settings_as_plain_data_have_the_defaults_filled_in() -> None:
    plain = TrainingSettings().to_dict()
    assert plain["learning_rate"] == 1e-4
    assert plain["optimizer"] == {"name": "adamw", "betas": [0.9, 0.999], "eps": 1e-8}
    assert plain["rate_schedule"]["milestones"] == [5_000, 10_000, 15_000, 20_000, 25_000]


def test_only_a_schedule_that_ends_with_the_run_depends_on_the_steps() -> None:
    stored = TrainingSettings(steps=10).to_dict()
    assert TrainingSettings(steps=20).differs_from(stored) == []
    stored = TrainingSettings(steps=10, rate_schedule="cosine").to_dict()
    assert TrainingSettings(steps=20, rate_schedule="cosine").differs_from(stored) == ["steps"]
    assert TrainingSettings(steps=10, seed=1).differs_from(stored) == ["rate_schedule", "seed"]


@pytest.mark.parametrize("model", model_names())
def test_a_model_refuses_the_settings_that_it_does_not_have(model: str) -> None:
    other = {"layers": 3, "heads": 2, "positions": True, "tied": True, "attention_dropout": 0.1, "compiled": True}
    for name, value in {**other, "learn_embeddings": True, "init": "zero"}.items():
        if name in model_options(model):
            TrainingSettings(model=model, **{name: value})  # type: ignore[arg-type]
        else:
            with pytest.raises(ProblemError, match=f"{name} is not a setting of model '{model}'"):
                TrainingSettings(model=model, **{name: value})  # type: ignore[arg-type]


LISTED = """
import sys
from tokengeom.training.settings import TrainingSettings, model_names, optimizer_names
print(*model_names(), *optimizer_names())
assert not {"torch", "numba", "transformers", "scipy"} & set(sys.modules), sys.modules.keys()
"""


def test_names_are_listed_without_torch_and_numba() -> None:
    done = subprocess.run([sys.executable, "-c", LISTED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*model_names(), *optimizer_names()]


OPTIMIZER = '''
"""Gradient descent with half the learning rate."""

from dataclasses import dataclass

from tokengeom.training.optimizers.base import AbstractOptimizer
from tokengeom.training.optimizers.gd import update


@dataclass(frozen=True)
class Half(AbstractOptimizer):
    slots = 1
    default_rate = 0.1

    def rule(self, steps, rates, decays):
        return [rates / 2, 0.0]

    def kernel(self):
        return update

    def torch_update(self, x, g, first, second, c, norm):
        x.sub_(c[1] * g)
'''


def test_a_new_file_is_a_new_optimizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "halved.py").write_text(OPTIMIZER)
    package = tokengeom.training.optimizers
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "tokengeom.training.optimizers.halved", raising=False)
    assert "halved" in optimizer_names()
    H = np.random.default_rng(0).standard_normal((5, 9))
    run = train(random_statistics(0), "linear", embeddings=H, optimizer="halved", learning_rate=0.4, steps=10)
    assert run.settings["optimizer"] == {"name": "halved"}
    plain = train(random_statistics(0), "linear", embeddings=H, optimizer="gd", learning_rate=0.2, steps=10)
    np.testing.assert_allclose(run.W, plain.W, atol=1e-12)
    network = train(small_stories(), "mlp", optimizer="halved", learning_rate=0.1, dim=8, layers=1, steps=2)
    assert network.status == "finished"


NETWORK = '''
"""The mean of the embeddings of a context's tokens."""

from tokengeom.models.networks.base import AbstractArchitecture, import_torch


class Mean(AbstractArchitecture):
    defaults = {"heads": 3}

    def body(self, shape):
        torch = import_torch()

        class Body(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens = torch.nn.Embedding(shape.tokens, shape.dim)

            def forward(self, tokens):
                states = self.tokens(tokens)
                return states.cumsum(1) / torch.arange(1, states.shape[1] + 1).view(1, -1, 1)

        return Body()

    def embedding(self, body):
        return body.tokens
'''


def test_a_new_file_is_a_new_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "averaged.py").write_text(NETWORK)
    package = tokengeom.models.networks
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "tokengeom.models.networks.averaged", raising=False)
    assert "averaged" in member_names("tokengeom.models.networks")
    assert "averaged" in model_names()
    run = train(small_stories(), "averaged", dim=8, steps=100, learning_rate=1e-2, rate_schedule="constant", tied=True)
    assert run.settings["model"] == "averaged"
    assert run.loss_gap < 0.8 * run.trajectory["loss_gap"][0]
    with pytest.raises(ProblemError, match="layers is not a setting of model 'averaged', which has heads"):
        train(small_stories(), "averaged", layers=2)
