"""A monitor in a real training by Lightning."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import tokengeom as tg
from callback_cases import equal_weights, exact_loss_gap, model, one_thread, prediction, texts
from tokengeom.callbacks.lightning import TokengeomCallback
from tokengeom.comparison.monitor import NAMES
from tokengeom.core.errors import InputError

STEPS = 30
pytestmark = [
    # Advice about workers, and a name of PyTorch that Lightning 2.6 still uses; ends when Lightning follows.
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]


def module(inner: bool = True) -> Any:
    """A LightningModule around the tiny Llama; its own ``forward`` computes logits if ``inner`` is not set."""
    import torch
    from lightning.pytorch import LightningModule

    class Language(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.language_model = model(attention_dropout=0.1)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.language_model(batch, labels=batch).loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=3e-2)

    class Direct(Language):
        def forward(self, ids: Any) -> Any:
            return self.language_model(ids).logits

    return Language() if inner else Direct()


def trained(folder: Path, language: Any, callbacks: list[Any], **changes: Any) -> Any:
    """A Lightning trainer after 30 steps, with a logger that writes a table."""
    import torch
    from lightning.pytorch import Trainer, seed_everything
    from lightning.pytorch.loggers import CSVLogger

    seed_everything(0, verbose=False)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    settings = {"max_steps": STEPS, "log_every_n_steps": 7, "accelerator": "cpu", **quiet, **changes}
    trainer = Trainer(logger=CSVLogger(folder), callbacks=callbacks, default_root_dir=folder, **settings)
    batches = torch.utils.data.DataLoader(torch.tensor(texts()), batch_size=16, drop_last=True)
    with one_thread():
        trainer.fit(language, batches)
    return trainer


def measurements(trainer: Any) -> dict[int, dict[str, float]]:
    """Step -> the numbers that the logger wrote at it."""
    with (Path(trainer.logger.log_dir) / "metrics.csv").open() as file:
        rows = [{name: float(x) for name, x in row.items() if x} for row in csv.DictReader(file)]
    return {int(row["step"]): row for row in rows if "tokengeom/loss_gap" in row}


@pytest.fixture(autouse=True)
def quiet_lightning() -> None:
    import logging

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def test_the_numbers_reach_the_logger_are_exact_and_change_nothing(tmp_path: Path) -> None:
    language, plain = module(), module()
    callback = TokengeomCallback(tg.Monitor(prediction(), norm="nuclear", bos=False), every=5, part="language_model")
    trainer = trained(tmp_path, language, [callback])
    trained(tmp_path, plain, [])
    assert equal_weights(language, plain)
    found = measurements(trainer)
    assert list(found) == list(range(0, STEPS + 1, 5))
    last = found[STEPS]
    assert {f"tokengeom/{name}" for name in NAMES} <= set(last)
    assert last["tokengeom/loss_gap"] == pytest.approx(exact_loss_gap(language.language_model, bos=False), rel=1e-4)
    same = tg.Monitor(prediction(), norm="nuclear", bos=False)(language.language_model)
    assert {name: last[name] for name in same} == pytest.approx(same, abs=0.01)


def test_a_lightning_module_may_itself_be_the_model_and_a_step_may_have_several_batches(tmp_path: Path) -> None:
    language = module(inner=False)
    callback = TokengeomCallback(tg.Monitor(prediction(), at_loss=False))
    trainer = trained(tmp_path, language, [callback], max_steps=14, accumulate_grad_batches=2)
    found = measurements(trainer)
    assert list(found) == [0, 7, 14]
    exact = exact_loss_gap(language.language_model, bos=False)
    assert found[14]["tokengeom/loss_gap"] == pytest.approx(exact, rel=1e-4)


def test_a_part_that_does_not_exist_is_named(tmp_path: Path) -> None:
    callback = TokengeomCallback(tg.Monitor(prediction()), part="transformer")
    with pytest.raises(InputError, match="'transformer', which it does not have"):
        trained(tmp_path, module(), [callback])
    with pytest.raises(InputError, match="every must be a whole number"):
        TokengeomCallback(tg.Monitor(prediction()), every=0.5)  # type: ignore[arg-type]
