"""Models in memory: Hugging Face and plain PyTorch modules, and functions with a head."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tiny_models import BOS, ROWS, build, save
from tokengeom.core.errors import CheckpointError, InputError, ProblemError
from tokengeom.corpus.huggingface_tokenizer import load_huggingface
from tokengeom.models import language_model as module
from tokengeom.models.checkpoint import load_checkpoint
from tokengeom.models.language_model import FunctionModel, ModuleModel, language_model
from tokengeom.statistics.windows import START

CONTEXTS = np.array([[3, 4, 5, 6], [7, 8, 9, 3], [2, 2, 5, 1]], np.int32)
V, D = 11, 6


class Recurrent(torch.nn.Module):  # type: ignore[misc]
    """A GRU with a linear head, batch x length -> batch x V (last=True) or batch x length x V."""

    def __init__(self, *, last: bool = True, bias: bool = True) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.embedding = torch.nn.Embedding(V, D)
            self.before = torch.nn.Linear(D, V)
            self.inside = torch.nn.Linear(V, D)
            self.recurrent = torch.nn.GRU(D, D, batch_first=True)
            self.dropout = torch.nn.Dropout(0.5)
            self.head = torch.nn.Linear(D, V, bias=bias)
        self.last = last

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        wide = self.before(self.embedding(ids))
        states = self.dropout(self.recurrent(self.inside(wide))[0])
        found = self.head(states[:, -1] if self.last else states)
        assert isinstance(found, torch.Tensor)
        return found


@pytest.mark.parametrize("last", [True, False], ids=["batch x V", "batch x length x V"])
def test_a_plain_module_is_read_with_the_head_that_is_called_last(last: bool) -> None:
    plain = Recurrent(last=last)
    assert plain.training
    found = language_model(plain)
    assert isinstance(found, ModuleModel)
    assert found.head_module is plain.head
    assert (found.name, found.architecture, found.bos, found.tokenizer) == ("Recurrent", "Recurrent", None, None)
    states = found.readout(CONTEXTS)
    assert plain.training, "the mode of training is restored"
    plain.eval()
    with torch.no_grad():
        logits = plain(torch.tensor(CONTEXTS, dtype=torch.long)).double().numpy()
    np.testing.assert_allclose(states.logits, (logits if last else logits[:, -1]).T, atol=1e-6)
    np.testing.assert_array_equal(states.bias, plain.head.bias.detach().double().numpy())


def test_the_mode_of_training_is_restored_after_an_error() -> None:
    plain = Recurrent()
    with pytest.raises(CheckpointError, match="Recurrent cannot read a text of 1 tokens"):
        language_model(plain).states([(V + 5,)])
    assert plain.training


def test_w_is_that_of_the_time_of_reading() -> None:
    plain = Recurrent()
    found = language_model(plain)
    before = found.readout(CONTEXTS).W.copy()
    with torch.no_grad():
        plain.head.weight += 1.0
    np.testing.assert_array_equal(found.head.W, before)
    with pytest.raises(CheckpointError, match="logits of Recurrent; the largest difference"):
        found.readout(CONTEXTS)


def test_every_context_and_every_row_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong state shows in the checked rows, and a wrong row on the first context."""
    monkeypatch.setattr(module, "CHECKED_ROWS", 2)
    plain = Recurrent()
    found = language_model(plain)
    found.head.W[7] += 1.0
    with pytest.raises(CheckpointError, match="largest difference"):
        found.readout(CONTEXTS)
    found = language_model(plain)
    plain.head.register_forward_hook(lambda _, __, output: output + torch.tensor([[0.0], [0.0], [1.0]]))
    with pytest.raises(CheckpointError, match="largest difference"):
        found.readout(CONTEXTS)


def test_a_hugging_face_module_is_read_like_its_folder(tmp_path: Path) -> None:
    folder = save(build("phi"), tmp_path / "model")
    saved, found = load_checkpoint(folder), language_model(build("phi"), tokenizer=load_huggingface(folder))
    assert (found.bos, found.positions) == (BOS, 32)
    assert found.tokenizer is not None
    assert found.tokenizer.content_hash == load_huggingface(folder).content_hash
    assert found.convention == saved.convention
    one, other = found.readout(CONTEXTS, bos=True), saved.readout(CONTEXTS, bos=True)
    np.testing.assert_allclose(one.H, other.H, atol=1e-6)
    np.testing.assert_array_equal(one.W, other.W)
    assert language_model(found) is found
    assert repr(found) == f"ModuleModel(PhiForCausalLM, rows={ROWS}, d=16)"


def test_tokenizers_of_hugging_face_are_taken_without_changing_them(tmp_path: Path) -> None:
    import tokenizers

    save(build("llama"), tmp_path / "model")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    theirs.enable_padding()
    found = language_model(build("llama"), tokenizer=theirs)
    assert theirs.padding is not None
    assert found.tokenizer is not None
    assert found.tokenizer.content_hash == load_huggingface(tmp_path / "model").content_hash


def hashed(ids: np.ndarray) -> np.ndarray:
    """States of texts that depend on their last two tokens."""
    return np.sin(np.outer(ids[:, -1] + 3 * ids[:, -2], np.arange(1, D + 1)))


@pytest.mark.parametrize("form", ["array", "pair", "layer", "tensor"])
def test_a_function_is_read_with_the_head_that_was_given(form: str) -> None:
    rng = np.random.default_rng(0)
    W, bias = rng.standard_normal((V, D)), rng.standard_normal(V)
    layer = torch.nn.Linear(D, V)
    head = {"array": W, "pair": (W, bias), "layer": layer, "tensor": torch.tensor(W)}[form]
    found = language_model(hashed, head=head, bos=0, name="mine")
    assert isinstance(found, FunctionModel)
    assert (found.name, found.architecture) == ("mine", "hashed")
    states = found.readout(np.array([[START, 4], [3, 5]]))
    np.testing.assert_array_equal(states.H.T, hashed(np.array([[0, 4], [3, 5]])))
    if form in ("pair", "layer"):
        assert states.bias is not None
        np.testing.assert_allclose(states.bias, bias if form == "pair" else layer.bias.detach().double().numpy())
    else:
        np.testing.assert_array_equal(states.W, W)
        assert states.bias is None


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda ids: hashed(ids).T, r"one state of d=6 numbers per text, shape \(3, 6\); got shape \(6, 3\)"),
        (lambda ids: hashed(ids)[:, :5], r"got shape \(3, 5\)"),
        (lambda ids: hashed(ids) * np.nan, "must be finite"),
    ],
    ids=["transposed", "too few numbers", "not finite"],
)
def test_states_of_a_wrong_shape_are_refused(function: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        language_model(function, head=np.eye(V, D)).readout(CONTEXTS)


class Fixed(torch.nn.Module):  # type: ignore[misc]
    """A module that returns what it was made with."""

    def __init__(self, answer: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.answer, self.head = answer, torch.nn.Linear(D, V)

    def forward(self, ids: torch.Tensor) -> Any:
        return self.answer(self.head(torch.ones(*ids.shape, D)))


class LooksAhead(Recurrent):
    """A module whose states at each position depend on the whole text."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found = self.head(self.embedding(ids).mean(dim=1, keepdim=True).expand(-1, ids.shape[1], -1))
        assert isinstance(found, torch.Tensor)
        return found


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        (Fixed(lambda logits: logits[0, 0]), r"Fixed must make logits, batch x V or batch x length x V"),
        (Fixed(lambda logits: "text"), r"it made str of 1 x 2"),
        (Fixed(lambda logits: logits[..., :5]), r"No linear layer of Fixed has 5 outputs"),
        (Fixed(lambda logits: logits**2), r"the head of Fixed must be scaled by a constant"),
        (LooksAhead(), r"logits of LooksAhead depend on later tokens"),
    ],
    ids=["one number per token", "no tensor", "no head", "squared", "not causal"],
)
def test_modules_that_are_not_models_of_the_next_token_are_refused_by_name(plain: Any, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        language_model(plain)


def test_heads_and_models_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(InputError, match=r"hashed is a function .* language_model\(function, head=W\)"):
        language_model(hashed)
    with pytest.raises(InputError, match="PyTorch module or a function from token ids to hidden states; got int"):
        language_model(3)
    with pytest.raises(ProblemError, match="bias must have V=11 entries"):
        language_model(hashed, head=(np.eye(V, D), np.zeros(3)))
    with pytest.raises(CheckpointError, match="Recurrent has no head with a weight matrix"):
        language_model(Recurrent(), head=torch.nn.Dropout())


def test_batches_are_bounded_by_logits_and_by_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    found = language_model(build("llama"))
    assert isinstance(found, ModuleModel)
    found.module.register_forward_pre_hook(lambda _, inputs: sizes.append(int(inputs[0].shape[0])))
    contexts = np.random.default_rng(0).integers(0, 30, size=(20, 4))
    found.readout(contexts)
    monkeypatch.setattr(module, "_BATCH_TOKENS", 24)
    found.readout(contexts)
    monkeypatch.setattr(module, "_BATCH_ENTRIES", 3 * ROWS)
    found.readout(contexts)
    assert sizes == [20, 6, 6, 6, 2, *[3] * 6, 2]
