"""The recipes of docs/your_own_training.md run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from callback_cases import model, one_thread, save_texts, texts

PAGE = Path(__file__).parents[1] / "docs" / "your_own_training.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def with_fresh_model() -> dict[str, Any]:
    """The names that the recipes use."""
    import torch
    from lightning.pytorch import LightningModule
    from lightning.pytorch.loggers import CSVLogger

    class Language(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model()

        def training_step(self, batch: Any, index: int) -> Any:
            return self.model(batch, labels=batch).loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    made = model()
    return {
        "model": made,
        "optimizer": torch.optim.SGD(made.parameters(), lr=0.1),
        "batches": torch.utils.data.DataLoader(torch.tensor(texts()), batch_size=16),
        "dataset": [{"input_ids": ids, "labels": ids} for ids in texts()],
        "lightning_module": Language(),
        "logger": CSVLogger("."),
    }


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:.*LeafSpec:FutureWarning")
def test_the_recipes_run_and_log_the_loss_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_texts(tmp_path)
    names: dict[str, Any] = with_fresh_model()
    prepare, loop, trainer, lightning = BLOCKS
    exec(prepare, names)
    assert len(loop.strip().splitlines()) == 5
    with one_thread():
        exec(loop, names)
    assert "0 {'tokengeom/loss_gap': " in capsys.readouterr().out
    names |= with_fresh_model()
    with one_thread():
        exec(trainer, names)
    history = names["trainer"].state.log_history
    assert [one["step"] for one in history if "tokengeom/loss_gap" in one] == [0, 10, 20]
    names |= with_fresh_model()
    with one_thread():
        exec(lightning, names)
    written = (Path(names["logger"].log_dir) / "metrics.csv").read_text()
    assert "tokengeom/loss_gap" in written.splitlines()[0]
    assert len(written.splitlines()) >= 4
