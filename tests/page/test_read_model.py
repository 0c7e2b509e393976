"""Models that a report reads: their folders and names, what decides that one is read again, and how it is saved."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tokengeom as tg
from forging import Entry, forge_array, forge_entry
from tiny_models import ROWS, build, save, sentences
from tokengeom.core.errors import CheckpointError, InputError, MissingExtraError
from tokengeom.core.progress import SilentProgress
from tokengeom.page.read_model import ReadModel, find_models
from tokengeom.training.objective import SoftLabels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(build("llama"), tmp_path_factory.mktemp("models") / "checkpoint-30")


def copied(source: Path, target: Path, **changes: object) -> Path:
    """A copy of a model's folder, whose config may differ."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **changes}))
    return target


@pytest.mark.parametrize("family", ["phi", "gemma2"])
def test_a_model_is_saved_with_its_loss(tmp_path: Path, family: str) -> None:
    path = save(build(family), tmp_path / "model")
    stats = tg.count(sentences(), context=2, tokenizer=path, vocabulary_size=ROWS)
    read = find_models([path]).read(0, stats, None, SilentProgress())
    again = ReadModel.load(read.save(tmp_path / "saved"))
    for name in ("W", "H", "bias"):
        mine, theirs = getattr(read, name), getattr(again, name)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_array_equal(mine, theirs)
    assert again.to_dict() == read.to_dict()
    assert (read.bias is not None) == (family == "phi")
    assert read.info is not None
    assert (read.info.cap is not None) == (family == "gemma2")
    assert again.loss_again(SoftLabels.from_statistics(stats)) == pytest.approx(read.loss_gap, rel=1e-6)
    assert "gives the lower loss" in again.summary()
    assert list(again.to_frame("contexts", stats).index[:2]) == [stats.context_text(0), stats.context_text(1)]


def _instead(value: object, before: object) -> object:
    return value


def test_a_forged_model_is_named_or_refused(folder: Path, tmp_path: Path) -> None:
    stats = tg.count(sentences(), context=2, tokenizer=folder, vocabulary_size=ROWS)
    stats.save(tmp_path / "stats")
    read = find_models([folder]).read(0, stats, None, SilentProgress())
    saved = read.save(tmp_path / "model")
    assert tg.verify(saved).ok
    assert "the loss gap is that of W and H" in tg.verify(saved).checked
    forge_entry(saved, "loss_gap", lambda gap: gap + 0.01)
    assert tg.verify(saved).failed == ("the loss gap is that of W and H",)
    forge_entry(read.save(saved), "entropy", lambda entropy: entropy + 0.01)
    assert tg.verify(saved).failed == ("the entropy floor is that of the statistics",)
    forge_entry(read.save(saved), "statistics_hash", lambda before: 64 * "0")
    assert any("--with FOLDER" in sentence for sentence in tg.verify(saved).not_checked)
    wrong: list[tuple[Entry, object]] = [
        (("info", "rows"), 1),
        (("info", "cap"), -2.0),
        (("bos",), "no"),
        (("info",), []),
    ]
    for entry, value in wrong:
        forge_entry(read.save(saved), entry, partial(_instead, value))
        with pytest.raises(InputError, match="model is damaged"):
            ReadModel.load(saved)
    for name in ("W", "H"):
        forge_array(read.save(saved), "model.safetensors", name, lambda x: x[1:])
        assert not tg.verify(saved).ok


def test_models_are_in_the_order_of_their_steps_and_have_different_names(folder: Path, tmp_path: Path) -> None:
    first = copied(folder, tmp_path / "a" / "checkpoint-9", rope_theta=9.0)
    models = find_models([folder, first])
    assert models.names == ["checkpoint-9", "checkpoint-30"]
    twin = copied(folder, tmp_path / "b" / "checkpoint-9", rope_theta=10.0)
    assert find_models([first, twin]).names == ["a/checkpoint-9", "b/checkpoint-9"]
    assert find_models([tmp_path / "a"]).names == ["checkpoint-9"]
    unknown = copied(folder, tmp_path / "final", rope_theta=11.0)
    assert find_models([unknown, first]).names == ["final", "checkpoint-9"], "as given, where a step is not known"
    with pytest.raises(CheckpointError, match="must be given once"):
        find_models([folder, folder])


def test_the_hash_is_that_of_weights_config_and_tokenizer(folder: Path, tmp_path: Path) -> None:
    def digests(path: Path) -> tuple[str, str]:
        (found,) = find_models([path]).folders
        return found.digest, found.tokenizer_digest

    copy = copied(folder, tmp_path / "copy")
    before = digests(copy)
    for name in ("optimizer.pt", "README.md", "training_args.bin"):
        (copy / name).write_bytes(b"another")
    assert digests(copy) == before
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    changed = digests(copy)
    assert changed[0] != before[0]
    assert changed[1] == before[1], "the text is not counted again"
    (copy / "tokenizer.json").write_text((copy / "tokenizer.json").read_text() + " ")
    assert digests(copy)[1] != before[1]


def test_what_is_no_model_is_refused_before_any_work(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CheckpointError, match=r"does not exist\. Models are never downloaded"):
        tg.report(sentences(), tmp_path / "page.html", model=tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        tg.report(sentences(), tmp_path / "page.html", model=tmp_path / "empty")
    copy = copied(folder, tmp_path / "pickled")
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="as a pickle"):
        find_models([copy])
    monkeypatch.setattr("tokengeom.page.read_model.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"A report about a trained model.*tokengeom\[networks\]"):
        tg.report(sentences(), tmp_path / "page.html", model=folder)
    assert not (tmp_path / "page-results").exists()
