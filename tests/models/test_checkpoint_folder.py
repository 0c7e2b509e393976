"""A folder without usable W and H is refused, with the reason and what to do."""

from __future__ import annotations

import json
import logging
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tiny_models import build, save, save_tokenizer
from tokengeom.core.errors import CheckpointError, InputError, MissingExtraError, ResourceError, TokenizerError
from tokengeom.models.checkpoint import checkpoint_folders, load_checkpoint, training_step


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(build("llama"), tmp_path / "model")


def change(folder: Path, **settings: Any) -> None:
    """Set (or, with None, drop) entries of config.json."""
    config = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps({name: v for name, v in config.items() if v is not None}))


def test_a_folder_without_a_whole_model_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"does not exist\. Models are never downloaded"):
        load_checkpoint(tmp_path / "absent")
    with pytest.raises(CheckpointError, match="is a file"):
        load_checkpoint(folder / "config.json")
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        load_checkpoint(tmp_path)
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="adapter, not a whole model"):
        load_checkpoint(folder)
    (folder / "adapter_config.json").unlink()
    change(folder, quantization_config={"bits": 4})
    with pytest.raises(CheckpointError, match="quantised"):
        load_checkpoint(folder)
    (folder / "config.json").write_text('{"model_type": "lla')
    with pytest.raises(CheckpointError, match="cannot be read as JSON"):
        load_checkpoint(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="it has a list"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"architectures": ["LlamaModel"]}, "without a head"),
        ({"architectures": ["BertForMaskedLM"], "model_type": "bert"}, "a masked model"),
        (
            {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "is_encoder_decoder": True},
            "two texts",
        ),
        ({"architectures": None, "model_type": "nonsense"}, "model_type 'nonsense'"),
        ({"architectures": ["Own"], "model_type": "own", "auto_map": {"AutoModelForCausalLM": "own.Own"}}, "never run"),
    ],
)
def test_other_kinds_of_model_are_refused(folder: Path, settings: dict[str, Any], reason: str) -> None:
    change(folder, **settings)
    with pytest.raises(CheckpointError, match=reason):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"model_type": ["llama"]}', "model_type must be a string"),
        ('{"model_type": "llama", "architectures": 5}', "architectures a list of strings"),
        ('{"model_type": "llama", "architectures": [{}]}', "architectures a list of strings"),
        ('{"model_type": "llama", "num_hidden_layers": 1000000000}', r"num_hidden_layers = 1,000,000,000, and the"),
        ('{"model_type": "llama", "text_config": {"n_layer": 1e300}}', "n_layer = "),
    ],
)
def test_a_damaged_config_is_refused(folder: Path, config: str, reason: str) -> None:
    (folder / "config.json").write_text(config)
    with pytest.raises(CheckpointError, match=reason):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("shard", "reason"),
    [
        ("../model.safetensors", "which is not a file of the folder"),
        ("/etc/passwd", "which is not a file of the folder"),
        ("absent.safetensors", r"has no absent\.safetensors, which its index names"),
        (5, "must name a file per weight"),
    ],
)
def test_weights_come_from_the_folder_alone(folder: Path, shard: object, reason: str) -> None:
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    names = dict.fromkeys(load_file(folder / "model-1.safetensors"), "model-1.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    assert load_checkpoint(folder).d == 16
    index.write_text(json.dumps({"metadata": {}, "weight_map": names | {"lm_head.weight": shard}}))
    with pytest.raises(CheckpointError, match=reason):
        load_checkpoint(folder)


def test_damaged_weights_and_pipes_are_refused_at_once(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    for damaged in (whole[:-5], b"\xff" * 8 + whole[8:], b""):
        (folder / "model.safetensors").write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read as safetensors"):
            load_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors is a named pipe"):
        load_checkpoint(folder)


def test_a_start_token_that_is_no_text_is_none(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"bos_token": "\\ud800"}')
    assert load_checkpoint(folder).bos is None


def test_code_in_the_folder_is_never_run(folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "was-run"
    (folder / "own.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    change(folder, auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Own"})
    load_checkpoint(folder)
    change(folder, model_type="own", architectures=["Own"])
    with pytest.raises(CheckpointError, match="auto_map"):
        load_checkpoint(folder)
    assert not trace.exists()


def test_a_model_that_looks_ahead_is_refused(tmp_path: Path) -> None:
    from transformers import BertConfig, BertLMHeadModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    folder = save(BertLMHeadModel(BertConfig(vocab_size=40, is_decoder=False, **sizes)), tmp_path / "bert")
    with pytest.raises(CheckpointError, match="depend on later tokens"):
        load_checkpoint(folder)
    change(folder, is_decoder=True)
    assert load_checkpoint(folder).d == 16


def test_weights_that_are_missing_are_never_random(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    whole = dict(weights)
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"1 are missing.*lm_head.weight"):
        load_checkpoint(folder)
    whole["model.norm.weight"] = np.ones(5, np.float32)
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"cannot be loaded|another shape"):
        load_checkpoint(folder)
    (folder / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(CheckpointError, match="cannot be read as safetensors"):
        load_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no weights"):
        load_checkpoint(folder)


def test_a_pickle_is_read_only_where_it_is_allowed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    import torch
    from safetensors.torch import load_file as load_tensors

    wanted = load_checkpoint(folder).readout(np.array([[3, 4]]))
    torch.save(load_tensors(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="--allow-pickle"):
        load_checkpoint(folder)
    with caplog.at_level(logging.WARNING, logger="tokengeom"):
        found = load_checkpoint(folder, allow_pickle=True).readout(np.array([[3, 4]]))
    assert "only do so with files whose source you trust" in caplog.text
    np.testing.assert_array_equal(found.logits, wanted.logits)


def test_a_pickle_that_runs_code_is_not_run_even_where_it_is_allowed(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Trap(tmp_path / "was-run")))
    with pytest.raises(CheckpointError, match="more in it than tensors, which is not read") as said:
        load_checkpoint(folder, allow_pickle=True)
    assert "weights_only" not in str(said.value), "PyTorch advises to run the code"
    assert not (tmp_path / "was-run").exists()


class _Trap:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


def test_a_tokenizer_must_exist_and_fit_the_model(folder: Path) -> None:
    save_tokenizer(folder, tokens=41)
    with pytest.raises(TokenizerError, match="ids up to 40 and the model only 40 rows"):
        load_checkpoint(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match="holds no tokenizer"):
        load_checkpoint(folder)


def test_a_device_that_the_machine_lacks_is_refused(folder: Path) -> None:
    import torch

    absent = "nonsense" if torch.cuda.is_available() else "cuda"
    with pytest.raises(ResourceError, match=f"device '{absent}'"):
        load_checkpoint(folder, device=absent)


def test_without_transformers_the_extra_to_install_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"tokengeom\[networks\]"):
        load_checkpoint(folder)


def test_steps_come_from_the_trainer_state_or_the_name(tmp_path: Path) -> None:
    for name in ("checkpoint-1000", "checkpoint-200", "step3000", "llama-7"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    assert training_step(tmp_path / "checkpoint-200") == 200
    assert training_step(tmp_path / "step3000") == 3000
    assert training_step(tmp_path / "llama-7") is None
    assert [path.name for path in checkpoint_folders(tmp_path)] == ["checkpoint-200", "checkpoint-1000"]
    assert checkpoint_folders(tmp_path / "llama-7") == [tmp_path / "llama-7"]
    (tmp_path / "checkpoint-200" / "trainer_state.json").write_text('{"global_step": 5000}')
    assert [path.name for path in checkpoint_folders(tmp_path)] == ["checkpoint-1000", "checkpoint-200"]
