"""`TokengeomCallback` for Hugging Face's Trainer: a monitor's numbers in the Trainer's own log.

::

    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.add_callback(TokengeomCallback(trainer, tg.Monitor(prediction)))

The Trainer calls its reporting callbacks (TensorBoard, Weights & Biases, ...) before those of a user, so numbers added
to ``logs`` in ``on_log`` would not reach them. ``Trainer.log`` does reach them, and ``state.log_history``; therefore
the callback is given the trainer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tokengeom.comparison.monitor import Monitor, check_interval
from tokengeom.core.errors import missing_extra

try:
    from transformers import TrainerCallback
except ImportError:
    TrainerCallback = object

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments


class TokengeomCallback(TrainerCallback):  # type: ignore[misc]
    """Logs a monitor's numbers at the start of training and then as often as wanted.

    Only the first process measures; the others wait for it at their next step.

    Parameters
    ----------
    trainer
        The Trainer that the callback is added to.
    monitor
        What to measure.
    every
        Number of steps between measurements; "log" to measure whenever the Trainer logs its loss, "evaluate" to measure
        after every evaluation.
    """

    def __init__(self, trainer: Trainer, monitor: Monitor, *, every: int | Literal["log", "evaluate"] = "log") -> None:
        if TrainerCallback is object:
            missing_extra("transformers", "huggingface", "A callback for Hugging Face's Trainer")
        self.trainer, self.monitor = trainer, monitor
        self.every = every if every in ("log", "evaluate") else check_interval(every)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **known: Any
    ) -> None:
        """Measure the model before its first step, which also shows at once if it cannot be read."""
        self._log(state, control, **known)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **known: Any) -> None:
        """Measure after every so many steps."""
        if isinstance(self.every, int) and state.global_step % self.every == 0:
            self._log(state, control, **known)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **known: Any) -> None:
        """Measure when the Trainer logs its loss."""
        if self.every == "log" and "loss" in known["logs"]:
            self._log(state, control, **known)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **known: Any) -> None:
        """Measure after an evaluation."""
        if self.every == "evaluate":
            self._log(state, control, **known)

    def _log(self, state: TrainerState, control: TrainerControl, *, model: Any, optimizer: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        numbers = self.monitor(model, optimizer)
        # Trainer.log marks the logging of this step as done, but the loss may still have to be logged.
        should_log = control.should_log
        if numbers:
            self.trainer.log(numbers)
        control.should_log = should_log
