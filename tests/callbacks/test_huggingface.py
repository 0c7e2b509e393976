"""A monitor in a real training by Hugging Face's Trainer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tokengeom as tg
from callback_cases import equal_weights, exact_loss_gap, model, one_thread, prediction, texts
from tokengeom.callbacks.huggingface import TokengeomCallback
from tokengeom.comparison.monitor import NAMES
from tokengeom.core.errors import InputError

STEPS = 30


class Reporter:
    """What TensorBoard's callback is to a Trainer: called at every log, before the callbacks that are added later."""

    def __new__(cls) -> Any:
        from transformers import TrainerCallback

        class Recorded(TrainerCallback):  # type: ignore[misc]
            def __init__(self) -> None:
                self.seen: list[tuple[int, dict[str, float]]] = []

            def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
                self.seen.append((state.global_step, dict(logs)))

        return Recorded()


def trained(folder: Path, every: Any = None, **changes: Any) -> tuple[Any, Any]:
    """A Trainer after 30 steps, and its reporter; with a monitor if ``every`` is given."""
    from transformers import Trainer, TrainingArguments

    settings = {
        "max_steps": STEPS,
        "per_device_train_batch_size": 16,
        "learning_rate": 3e-2,
        "logging_steps": 10,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 0,
    }
    reporter = Reporter()
    data = [{"input_ids": ids, "labels": ids} for ids in texts()]
    trainer = Trainer(
        model=model(attention_dropout=0.1),
        args=TrainingArguments(output_dir=str(folder), **{**settings, **changes}),
        train_dataset=data,
        eval_dataset=data[:16],
        callbacks=[reporter],
    )
    if every is not None:
        trainer.add_callback(
            TokengeomCallback(trainer, tg.Monitor(prediction(), norm="nuclear", bos=False), every=every)
        )
    with one_thread():
        trainer.train()
    return trainer, reporter


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return trained(tmp_path_factory.mktemp("plain"))[0]


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return trained(tmp_path_factory.mktemp("monitored"), every=5)


def measurements(reporter: Any) -> dict[int, dict[str, float]]:
    return {step: logs for step, logs in reporter.seen if "tokengeom/loss_gap" in logs}


def test_the_numbers_reach_reporters_and_history_and_are_the_exact_ones(monitored: tuple[Any, Any]) -> None:
    trainer, reporter = monitored
    found = measurements(reporter)
    assert list(found) == list(range(0, STEPS + 1, 5))
    assert [one["step"] for one in trainer.state.log_history if "tokengeom/loss_gap" in one] == list(found)
    last = found[STEPS]
    assert {f"tokengeom/{name}" for name in NAMES} <= set(last)
    assert last["tokengeom/loss_gap"] == pytest.approx(exact_loss_gap(trainer.model, bos=False), rel=1e-4)
    assert last["tokengeom/loss_gap"] < 0.5 * found[0]["tokengeom/loss_gap"]
    near = prediction().at(last["tokengeom/loss_gap"], norm="nuclear", tolerance=1e-3)
    contexts = prediction().statistics.contexts
    assert contexts is not None
    states = tg.language_model(trainer.model).readout(contexts)
    W = states.W[: prediction().W.shape[0]]
    same = tg.compare(prediction(), (W, states.H), at=near, loss_gap=last["tokengeom/loss_gap"], permutations=0)
    assert last["tokengeom/context_agreement"] == pytest.approx(same.context_agreement.value, abs=0.01)
    assert last["tokengeom/token_agreement"] == pytest.approx(same.token_agreement.value, abs=0.01)
    assert last["tokengeom/efficiency"] == pytest.approx(same.efficiency, abs=0.01)
    assert last["tokengeom/collapse"] == pytest.approx(same["collapse"].value, abs=1e-6)


def test_training_is_the_same_with_and_without_measurements(plain: Any, monitored: tuple[Any, Any]) -> None:
    trainer = monitored[0]
    assert equal_weights(plain.model, trainer.model)
    losses = [[one["loss"] for one in t.state.log_history if "loss" in one] for t in (plain, trainer)]
    assert len(losses[0]) == 3
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("every", "steps", "changes"),
    [
        ("log", [0, 10, 20, 30], {}),
        ("evaluate", [0, 15, 30], {"eval_strategy": "steps", "eval_steps": 15, "bf16": True}),
    ],
)
def test_numbers_are_measured_when_the_trainer_logs_or_evaluates(
    every: str, steps: list[int], changes: dict[str, Any], tmp_path: Path
) -> None:
    trainer, reporter = trained(tmp_path, every, **changes)
    assert list(measurements(reporter)) == steps
    exact = exact_loss_gap(trainer.model, bos=False)
    # Mixed precision rounds the model's own answers, not the measurement.
    rounding = 0.02 if changes else 1e-4
    assert measurements(reporter)[30]["tokengeom/loss_gap"] == pytest.approx(exact, rel=rounding)
    assert len([one for one in trainer.state.log_history if "loss" in one]) == 3


def test_other_processes_and_wrong_intervals(plain: Any) -> None:
    measured: list[object] = []

    def monitor(model: object, optimizer: object) -> dict[str, float]:
        measured.append(model)
        return {}

    callback = TokengeomCallback(plain, monitor, every=1)  # type: ignore[arg-type]
    known = {"model": plain.model, "optimizer": None}
    plain.state.is_world_process_zero = False
    callback.on_step_end(plain.args, plain.state, plain.control, **known)
    assert measured == []
    plain.state.is_world_process_zero = True
    callback.on_step_end(plain.args, plain.state, plain.control, **known)
    assert measured == [plain.model]
    for wrong in (0, "sometimes"):
        with pytest.raises(InputError, match="every must be"):
            TokengeomCallback(plain, monitor, every=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("module", "library", "given"), [
    ("huggingface", "transformers", "None, None"), ("lightning", "lightning", "None"),
])  # fmt: skip
def test_without_its_library_a_module_imports_and_its_callback_names_the_extra(
    module: str, library: str, given: str
) -> None:
    code = f"import sys; sys.modules['{library}'] = None; from tokengeom.callbacks import {module}; print('imported')"
    code += f"; {module}.TokengeomCallback({given})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"needs the package '{library}', which is not installed" in found.stderr
    assert f"tokengeom[{module}]" in found.stderr
    assert found.stdout == "imported\n"
