"""`TokengeomCallback` for Lightning: a monitor's numbers in the trainer's loggers.

::

    trainer = Trainer(callbacks=[TokengeomCallback(tg.Monitor(prediction))])

Numbers are passed to the loggers themselves: ``pl_module.log`` would drop those of steps that are not a multiple of
``log_every_n_steps``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tokengeom.comparison.monitor import Monitor, check_interval
from tokengeom.core.errors import InputError, missing_extra

try:
    from lightning.pytorch import Callback
except ImportError:
    Callback = object

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer


class TokengeomCallback(Callback):  # type: ignore[misc]
    """Logs a monitor's numbers at the start of training and then as often as wanted.

    Only the first process measures; the others wait for it at their next step. The step of a number is
    ``trainer.global_step``, the number of optimizer steps that the model has taken.

    Parameters
    ----------
    monitor
        What to measure.
    every
        Number of steps between measurements; by default the trainer's ``log_every_n_steps``.
    part
        Name of the attribute of the LightningModule that computes logits from token ids, such as "model"; None where
        the LightningModule itself does.
    """

    def __init__(self, monitor: Monitor, *, every: int | None = None, part: str | None = None) -> None:
        if Callback is object:
            missing_extra("lightning", "lightning", "A callback for Lightning")
        self.monitor, self.part = monitor, part
        self.every = None if every is None else check_interval(every)
        self._last = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the model before its first step, which also shows at once if it cannot be read."""
        self._log(trainer, pl_module)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Measure after every so many optimizer steps; a step may have several batches."""
        if trainer.global_step - self._last >= (self.every or max(trainer.log_every_n_steps, 1)):
            self._log(trainer, pl_module)

    def _log(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._last = trainer.global_step
        if not trainer.is_global_zero:
            return
        numbers = self.monitor(self._model(pl_module), trainer.optimizers[0] if len(trainer.optimizers) == 1 else None)
        for logger in trainer.loggers if numbers else ():
            logger.log_metrics(numbers, step=trainer.global_step)

    def _model(self, pl_module: LightningModule) -> Any:
        try:
            return pl_module if self.part is None else attrgetter(self.part)(pl_module)
        except AttributeError as error:
            known = ", ".join(name for name, _ in pl_module.named_children())
            raise InputError(
                f"part must name an attribute of {type(pl_module).__name__} that computes logits from token ids; got "
                f"{self.part!r}, which it does not have. Its modules are: {known}."
            ) from error
