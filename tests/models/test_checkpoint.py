"""W and H read from a saved model reproduce its logits, whatever its head is like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_models import BOS, FAMILIES, ROWS, build, save
from tokengeom.core.errors import CheckpointError, InputError, ProblemError
from tokengeom.core.numerics import Float
from tokengeom.models.checkpoint import load_checkpoint
from tokengeom.models.language_model import ModuleModel
from tokengeom.statistics.windows import ABSENT, START

CONTEXTS = np.array([[3, 4, 5, 6], [7, 8, 9, 3], [29, 2, 5, 11]], np.int32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, ModuleModel]]:
    """Each family: the model that was saved, and what was loaded."""
    folder = tmp_path_factory.mktemp("models")
    models = {family: build(family) for family in FAMILIES}
    return {f: (model, load_checkpoint(save(model, folder / f.replace(" ", "-")))) for f, model in models.items()}


def by_hand(model: Any, tokens: list[int]) -> tuple[Float, Float]:
    """Last hidden state after the final norm, and logits, of one text alone, as transformers returns them."""
    import torch

    with torch.no_grad():
        output = model(input_ids=torch.tensor([tokens]), output_hidden_states=True)
    return output.hidden_states[-1][0, -1].double().numpy(), output.logits[0, -1].double().numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_h_is_the_normed_state_and_w_h_gives_the_logits(saved: dict[str, tuple[Any, ModuleModel]], family: str) -> None:
    model, checkpoint = saved[family]
    readout = checkpoint.readout(CONTEXTS)
    assert readout.W.shape == (ROWS, 16)
    for j, context in enumerate(CONTEXTS.tolist()):
        h, logits = by_hand(model, context)
        np.testing.assert_allclose(readout.H[:, j], h, atol=1e-5)
        np.testing.assert_allclose(checkpoint.head.capped(readout.logits)[:, j], logits, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "factor"), [("llama", 1.0), ("llama tied", 1.0), ("phi", 1.0), ("granite", 1 / 8), ("cohere", 0.25)]
)
def test_scale_is_folded_into_w(saved: dict[str, tuple[Any, ModuleModel]], family: str, factor: float) -> None:
    model, checkpoint = saved[family]
    weight = model.lm_head.weight.detach().double().numpy()
    np.testing.assert_allclose(checkpoint.head.W, factor * weight, rtol=1e-6)
    if factor == 1:
        np.testing.assert_array_equal(checkpoint.head.W, weight)
    assert ("logit scale" in checkpoint.convention) == (factor != 1)


def test_bias_cap_tying_and_padded_rows_are_found_and_described(saved: dict[str, tuple[Any, ModuleModel]]) -> None:
    heads = {family: checkpoint.head for family, (_, checkpoint) in saved.items()}
    assert {family for family, head in heads.items() if head.bias is not None} == {"phi", "gptj", "codegen"}
    assert {family: head.cap for family, head in heads.items() if head.cap is not None} == {"gemma2": 3.0, "xlstm": 2.0}
    assert {family for family, head in heads.items() if head.tied} == {
        "llama tied",
        "gpt2",
        "cohere",
        "gemma2",
        "mamba",
        "gpt_neo",
        "zamba2",
    }
    np.testing.assert_array_equal(heads["phi"].bias, saved["phi"][0].lm_head.bias.detach().numpy())
    conventions = {family: checkpoint.convention for family, (_, checkpoint) in saved.items()}
    assert all("10 rows belong to no token" in convention for convention in conventions.values())
    assert "before the soft cap 3." in conventions["gemma2"]
    assert "bias is part of the logits" in conventions["phi"]
    assert "tied to the input embeddings" in conventions["gpt2"]


def test_the_cap_is_needed_to_reproduce_gemmas_logits(saved: dict[str, tuple[Any, ModuleModel]]) -> None:
    model, checkpoint = saved["gemma2"]
    readout = checkpoint.readout(CONTEXTS)
    logits = np.stack([by_hand(model, context)[1] for context in CONTEXTS.tolist()], axis=1)
    with pytest.raises(ProblemError, match="largest difference"):
        readout.require_logits(logits)


@pytest.mark.parametrize("family", ["llama", "gpt2", "mamba"])
def test_shorter_contexts_are_read_as_if_alone(saved: dict[str, tuple[Any, ModuleModel]], family: str) -> None:
    model, checkpoint = saved[family]
    contexts = np.array(
        [[ABSENT, ABSENT, 5, 6], [3, 4, 5, 6], [ABSENT, ABSENT, ABSENT, 9], [START, START, 7, 8], [ABSENT, START, 7, 8]]
    )
    alone = [[5, 6], [3, 4, 5, 6], [9], [BOS, 7, 8], [BOS, 7, 8]]
    assert [list(tokens) for tokens in checkpoint.sequences(contexts)] == alone
    H = checkpoint.readout(contexts).H
    for j, tokens in enumerate(alone):
        np.testing.assert_allclose(H[:, j], by_hand(model, tokens)[0], atol=1e-5)
    every = [[BOS, 5, 6], [BOS, 3, 4, 5, 6], [BOS, 9], [BOS, 7, 8], [BOS, 7, 8]]
    assert [list(tokens) for tokens in checkpoint.sequences(contexts, bos=True)] == every


def test_order_and_batching_of_contexts_do_not_matter(saved: dict[str, tuple[Any, ModuleModel]]) -> None:
    checkpoint = saved["llama"][1]
    contexts = np.random.default_rng(0).integers(0, 30, size=(300, 3))
    contexts[::3, 0] = ABSENT
    order = np.random.default_rng(1).permutation(300)
    H = checkpoint.readout(contexts).H
    np.testing.assert_allclose(checkpoint.readout(contexts[order]).H, H[:, order], atol=1e-5)
    np.testing.assert_allclose(checkpoint.readout(contexts[17:18]).H, H[:, 17:18], atol=1e-5)


def test_contexts_that_the_model_cannot_read_are_refused(saved: dict[str, tuple[Any, ModuleModel]]) -> None:
    checkpoint = saved["gpt2"][1]
    with pytest.raises(CheckpointError, match="longer than the 32 positions of"):
        checkpoint.readout(np.full((1, 33), 4))
    with pytest.raises(CheckpointError, match=r"33 tokens \(BOS included\)"):
        checkpoint.readout(np.full((1, 32), 4), bos=True)
    assert checkpoint.readout(np.full((1, 32), 4)).H.shape == (16, 1)
    with pytest.raises(CheckpointError, match="below the model's 40 rows; got up to 40"):
        checkpoint.readout(np.array([[3, 40]]))
    with pytest.raises(CheckpointError, match="without any token"):
        checkpoint.readout(np.array([[3, 4], [ABSENT, ABSENT]]))
    with pytest.raises(CheckpointError, match="m x L matrix of ids"):
        checkpoint.readout(np.array([3, 4]))


def test_a_model_without_bos_is_read_without_it(tmp_path: Path) -> None:
    folder = save(build("llama"), tmp_path / "model")
    (folder / "tokenizer_config.json").write_text('{"bos_token": null}')
    checkpoint = load_checkpoint(folder)
    assert checkpoint.bos is None
    checkpoint.readout(CONTEXTS)
    with pytest.raises(CheckpointError, match="has no token that starts a text"):
        checkpoint.readout(np.array([[START, 3]]))
    (folder / "tokenizer_config.json").write_text('{"bos_token": {"content": "w7"}}')
    assert load_checkpoint(folder).bos == 7


@pytest.fixture(scope="module")
def stored_in_bfloat16(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    return save(build("llama").to(torch.bfloat16), tmp_path_factory.mktemp("bfloat16") / "model")


def test_bfloat16_weights_are_read_as_they_are(stored_in_bfloat16: Path) -> None:
    import torch

    checkpoint = load_checkpoint(stored_in_bfloat16)
    assert {parameter.dtype for parameter in checkpoint.module.parameters()} == {torch.bfloat16}
    exact = load_checkpoint(stored_in_bfloat16, precision="float32")
    assert {parameter.dtype for parameter in exact.module.parameters()} == {torch.float32}
    assert checkpoint.head.W.dtype == np.float32
    np.testing.assert_array_equal(checkpoint.head.W, exact.head.W)
    rough, fine = checkpoint.readout(CONTEXTS).H, exact.readout(CONTEXTS).H
    assert 0 < np.linalg.norm(rough - fine) < 0.03 * np.linalg.norm(fine), "rounded to 8 bits in every layer"
    with pytest.raises(InputError, match="precision must be one of auto, float32, bfloat16; got 'int8'"):
        load_checkpoint(stored_in_bfloat16, precision="int8")


def test_float16_is_computed_in_float32_on_a_cpu(tmp_path: Path) -> None:
    import torch

    checkpoint = load_checkpoint(save(build("llama").to(torch.float16), tmp_path / "model"))
    assert {parameter.dtype for parameter in checkpoint.module.parameters()} == {torch.float32}


@pytest.mark.parametrize("gain", [1.01, "random"], ids=["off by 1%", "off by 3% at random"])
def test_a_missing_norm_gain_is_noticed_in_bfloat16(stored_in_bfloat16: Path, gain: float | str) -> None:
    import torch

    checkpoint = load_checkpoint(stored_in_bfloat16)
    contexts = np.random.default_rng(0).integers(0, 30, size=(50, 4))
    H = checkpoint.readout(contexts).H
    with torch.inference_mode():
        logits = checkpoint.module(torch.tensor(contexts)).logits[:, -1].float().numpy().T
    checkpoint.head.require_logits(H, logits)
    factor = gain if isinstance(gain, float) else 1 + 0.03 * np.random.default_rng(1).standard_normal((16, 1))
    with pytest.raises(CheckpointError, match="largest difference"):
        checkpoint.head.require_logits(H * factor, logits)


def test_a_model_that_fails_is_refused_by_its_class(tmp_path: Path) -> None:
    model = build("dbrx", attn_config={"kv_n_heads": 2, "clip_qkv": None, "rope_theta": 1e4})
    with pytest.raises(CheckpointError, match="DbrxForCausalLM cannot read a text of 2 tokens"):
        load_checkpoint(save(model, tmp_path / "model"))
