"""The head of a language model: scale, bias and cap are found whatever they are called; other maps are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_models import build, save
from tokengeom.core.errors import CheckpointError, InputError
from tokengeom.models.checkpoint import load_checkpoint
from tokengeom.models.checkpoint_head import Head, as_float64, find_head, last_logits, require_causal

CONTEXTS = np.array([[3, 4, 5, 6], [7, 8, 9, 3], [29, 2, 5, 11]], np.int32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(build("llama"), tmp_path / "model")


def test_the_head_of_a_model_in_memory_is_found() -> None:
    model = build("phi")
    head = find_head(model, model.lm_head, [])
    assert isinstance(head, Head)
    np.testing.assert_array_equal(head.W, as_float64(model.lm_head.weight))
    np.testing.assert_array_equal(head.bias, as_float64(model.lm_head.bias))
    require_causal(model)
    assert last_logits(model, [(3, 4)]).shape == (1, head.rows)


def test_hidden_states_that_do_not_reproduce_the_logits_are_refused(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(save(build("phi"), tmp_path / "phi"))
    readout = checkpoint.readout(CONTEXTS)
    with pytest.raises(CheckpointError, match="logits of PhiForCausalLM; the largest difference"):
        checkpoint.head.require_logits(1.01 * readout.H, readout.logits, "PhiForCausalLM")
    row = np.array([7])
    with pytest.raises(CheckpointError, match="largest difference"):
        checkpoint.head.require_logits(readout.H, readout.logits[row] + 0.1, rows=row)
    checkpoint.head.require_logits(readout.H, readout.logits[row], rows=row)
    with pytest.raises(CheckpointError, match="finite"):
        checkpoint.head.require_logits(readout.H * np.nan, readout.logits)
    readout.require_logits(readout.logits)


def change_logits(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    """Let every Llama apply a change to its logits."""
    from transformers import LlamaForCausalLM

    plain = LlamaForCausalLM.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = plain(self, *args, **kwargs)
        output.logits = change(output.logits)
        return output

    monkeypatch.setattr(LlamaForCausalLM, "forward", forward)


@pytest.mark.parametrize(
    "change",
    [
        lambda L: L**2,
        lambda L: -L,
        lambda L: 5 * (L / 5).tanh(),
        lambda L: L[..., :-1],
        lambda L: L - L.logsumexp(-1)[..., None],
    ],
    ids=["squared", "negated", "capped by an unknown number", "fewer", "normalised"],
)
def test_logits_of_another_form_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]
) -> None:
    change_logits(monkeypatch, change)
    with pytest.raises(InputError, match=r"not W h \+ bias|cannot be separated"):
        load_checkpoint(folder)


def test_scale_and_bias_after_the_head_are_found_whatever_they_are_called(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    before = load_checkpoint(folder).readout(np.array([[3, 4], [5, 6]]))
    change_logits(monkeypatch, lambda L: 0.3 * L + torch.arange(40) / 7)
    after = load_checkpoint(folder).readout(np.array([[3, 4], [5, 6]]))
    np.testing.assert_allclose(after.W, 0.3 * before.W, rtol=1e-6)
    assert after.bias is not None
    np.testing.assert_allclose(after.bias, np.arange(40) / 7, atol=1e-6)
