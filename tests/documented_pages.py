"""The pages whose code blocks are run: which are slow, and what each needs that it does not make itself."""

from __future__ import annotations

import os
import runpy
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

import pytest

from callback_cases import model, one_thread, save_texts, texts
from documented import ROOT, AfterBlock, Block, Prepare
from documented_models import with_checkpoints

GENERATED = ("examples", "generated", "_static", "_extensions", "results")
"""Folders of docs/ that are written by a program, and results, whose commands need the machines that they name."""
WITHOUT_BLOCKS = ("map.md", "experiments.md")
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if path.name not in WITHOUT_BLOCKS and not set(path.relative_to(ROOT).parts) & set(GENERATED)
)
NOT_RUN = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "SECURITY.md", ROOT / "docs" / "experiments.md", *(ROOT / "docs" / "results").glob("*.md")]
)
"""Pages without blocks, or with blocks of other machines: only the names in them are checked."""
SLOW = {
    "docs/extending/network.md": 8,
    "docs/guide/training_models.md": 16,
}
"""Pages that run with the slow tests: those that take more than 7 s of processor time, given here, imports included.

Getting started (11 s), training of one's own (20 s, most of it imports) and the pages about a checkpoint (8 s) and
about near items (5 s) are what readers run first: always tested.
"""


@contextmanager
def your_own_training(folder: Path, names: dict[str, Any]) -> Iterator[AfterBlock]:
    """A text, its tokenizer, and a fresh model for each kind of loop, whose loss gap must have been logged."""
    save_texts(folder)
    seen = []

    def after(block: Block, printed: str) -> None:
        if "monitor(model, optimizer)" in block.text:
            seen.append("loop")
            assert len(block.text.strip().splitlines()) == 5
            assert "0 {'tokengeom/loss_gap': " in printed
        elif "transformers import Trainer" in block.text:
            seen.append("trainer")
            history = names["trainer"].state.log_history
            assert [one["step"] for one in history if "tokengeom/loss_gap" in one] == [0, 10, 20]
        elif "lightning.pytorch import Trainer" in block.text:
            seen.append("lightning")
            written = (Path(names["logger"].log_dir) / "metrics.csv").read_text()
            assert "tokengeom/loss_gap" in written.splitlines()[0]
            assert len(written.splitlines()) >= 4
        else:
            return
        names.update(_fresh_model())

    names.update(_fresh_model())
    with one_thread(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
        yield after
    assert seen == ["loop", "trainer", "lightning"]


@contextmanager
def a_model_in_training(folder: Path, names: dict[str, Any]) -> Iterator[AfterBlock]:
    """A text, its tokenizer, a model and its optimizer, whose numbers must be printed."""
    save_texts(folder)
    names.update(_fresh_model())
    seen = []

    def after(block: Block, printed: str) -> None:
        if "monitor(model, optimizer)" in block.text:
            seen.append(printed)

    yield after
    assert len(seen) == 1
    assert "'tokengeom/loss_gap': " in seen[0]


def _fresh_model() -> dict[str, Any]:
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


EXTENSIBLE = (
    "tokengeom.comparison.explanations",
    "tokengeom.models.networks",
    "tokengeom.training.optimizers",
    "tokengeom_studies",
)
"""Packages to which a member is added as a file."""
_EXTENDED = """\
import importlib
for name, folder in {folders!r}.items():
    importlib.import_module(name).__path__.append(folder)
"""


@contextmanager
def new_members(folder: Path, names: dict[str, Any]) -> Iterator[AfterBlock]:
    """Files under ``src`` are members, here and in commands; tests under ``tests`` are run when written."""
    places = {name: Path("studies/src" if name == "tokengeom_studies" else "src") for name in EXTENSIBLE}
    folders = {name: str(folder / place / name.replace(".", "/")) for name, place in places.items()}
    for path in folders.values():
        Path(path).mkdir(parents=True)
    (folder / "path").mkdir()
    (folder / "path" / "sitecustomize.py").write_text(_EXTENDED.format(folders=folders))

    def after(block: Block, printed: str) -> None:
        invalidate_caches()
        if block.file is not None and "tests/" in block.file and block.language == "python":
            tests = [value for name, value in runpy.run_path(block.file).items() if name.startswith("test_")]
            assert tests
            for test in tests:
                test()

    known = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        for package, path in folders.items():
            module = import_module(package)
            patch.setattr(module, "__path__", [*module.__path__, path])
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder / "path"), os.environ.get("PYTHONPATH", "")]).strip(":"))
        try:
            yield after
        finally:
            for name in set(sys.modules) - known:
                if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
                    del sys.modules[name]


EXTENDING = [page for page in PAGES if page.startswith("docs/extending/")]
IN_PROCESSES = ("docs/extending/network.md", "docs/extending/optimizer.md")
"""Pages whose commands run in processes of their own: ``train`` lists models and optimizers when it is imported."""
PREPARED: dict[str, Prepare] = {
    "README.md": a_model_in_training,
    "docs/guide/watch_a_training.md": your_own_training,
    "docs/guide/does_my_model_obey.md": with_checkpoints,
    "docs/guide/why_are_two_near.md": with_checkpoints,
    **dict.fromkeys(EXTENDING, new_members),
}
