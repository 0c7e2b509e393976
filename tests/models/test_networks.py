"""Every architecture: W h equals the logits, contexts do not affect one another, and references agree."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch

from network_cases import small_stories
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.numerics import Float
from tokengeom.core.settings import member_names
from tokengeom.models.network import Network, NetworkInputs
from tokengeom.models.networks.base import AbstractArchitecture, architecture_named
from tokengeom.models.networks.lstm import LSTM
from tokengeom.models.networks.mamba import Mamba
from tokengeom.models.networks.mlp import MLP
from tokengeom.models.networks.tied import Tied
from tokengeom.models.networks.transformer import Transformer
from tokengeom.models.networks.xlstm import XLSTM
from tokengeom.statistics.next_token import NextTokenStatistics

DIM = 16
NAMES = member_names("tokengeom.models.networks")
CAUSAL = [name for name in NAMES if architecture_named(name).causal]
SHARING = [name for name in NAMES if "tied" in architecture_named(name).options]
"""Networks whose head can be their input embeddings."""


def network(name: str, stats: NextTokenStatistics | None = None, **options: Any) -> Network:
    architecture = architecture_named(name)
    usual = {name: 2 for name in ("heads", "layers") if name in architecture.defaults}
    stats = small_stories() if stats is None else stats
    return Network(architecture, stats, dim=DIM, seed=3, **(usual | options))


def logits_of(model: Network) -> Float:
    return np.asarray(model.readout().logits)


def hidden(model: Network, ids: list[int]) -> torch.Tensor:
    """States of one sequence of input numbers, by the body alone."""
    with torch.no_grad():
        return model.decoder.body.eval()(torch.tensor([ids]))[0]


def normed(x: Float, norm: torch.nn.RMSNorm) -> Float:
    """Divide by the root of the mean square, times the gain."""
    return np.asarray(x / np.sqrt(np.mean(x**2) + 1e-6) * norm.weight.detach().numpy())


def test_six_architectures_are_found_by_the_names_of_their_files() -> None:
    assert NAMES == ["lstm", "mamba", "mlp", "tied", "transformer", "xlstm"]
    assert [type(architecture_named(name)) for name in NAMES] == [LSTM, Mamba, MLP, Tied, Transformer, XLSTM]
    assert [architecture_named(name).name for name in NAMES] == NAMES
    with pytest.raises(InputError, match=r"must be one of lstm, .*got 'gru'"):
        architecture_named("gru")


@pytest.mark.parametrize("name", NAMES)
def test_an_architecture_lists_the_settings_that_it_has(name: str) -> None:
    architecture: AbstractArchitecture = architecture_named(name)
    assert set(architecture.options) - {"tied"} == {*architecture.defaults, "compiled"}
    shape = Network(architecture, small_stories(), dim=DIM).shape
    assert all(getattr(shape, option) == default for option, default in architecture.defaults.items())


@pytest.mark.parametrize(("name", "tied"), [*((name, False) for name in NAMES), *((name, True) for name in SHARING)])
def test_the_readout_is_the_forward_pass_of_the_decoder(name: str, tied: bool) -> None:
    model = network(name, tied=tied)
    with torch.no_grad():
        own = model.decoder.eval()(slice(0, small_stories().m)).numpy().T
    np.testing.assert_allclose(logits_of(model), own, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("windows", ["sliding", "prefixes"])
def test_a_context_is_read_as_if_it_were_alone(name: str, windows: Literal["sliding", "prefixes"]) -> None:
    model = network(name, small_stories(windows))
    H = model.readout().H
    with torch.no_grad():
        alone = [model.decoder.eval().states(torch.tensor([j]))[0].numpy() for j in range(H.shape[1])]
    np.testing.assert_allclose(H, np.stack(alone, 1), atol=2e-6)


@pytest.mark.parametrize("name", CAUSAL)
def test_padding_on_the_right_changes_nothing(name: str) -> None:
    model = network(name, small_stories("prefixes"))
    whole = hidden(model, [1, 2, 3])
    for padding in (0, model.shape.tokens - 1):
        torch.testing.assert_close(hidden(model, [1, 2, padding])[:2], whole[:2])


def test_contexts_that_begin_others_share_their_row() -> None:
    contexts = np.array([[-2, -2, 4], [-2, 4, 7], [4, 7, 9], [-2, 7, 7], [-1, -1, 4]], np.int32)
    stats = NextTokenStatistics.from_counts(np.ones((2, 5), int), contexts=contexts)
    inputs = NetworkInputs.of(stats, causal=True, tied=False)
    assert inputs.rows.shape == (3, 3)
    assert inputs.row[0] == inputs.row[1] == inputs.row[2]
    assert inputs.end.tolist() == [0, 1, 2, 1, 2]
    read = [inputs.rows[inputs.row[j], : inputs.end[j] + 1].tolist() for j in range(5)]
    # Numbers are in the order of ids: start -1, then 4, 7, 9; the padding comes last.
    assert read == [[1], [1, 2], [1, 2, 3], [2, 2], [0, 0, 1]]


def test_the_transformer_without_positions_is_the_textbook_one() -> None:
    model = network("transformer")
    weights = {name: p.detach() for name, p in model.decoder.body.inner.named_parameters()}
    tokens = model.decoder.rows[:5]
    torch.testing.assert_close(_textbook_transformer(weights, tokens, heads=2), model.decoder.body(tokens).detach())


def _norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain


def _textbook_transformer(weights: dict[str, torch.Tensor], tokens: torch.Tensor, heads: int) -> torch.Tensor:
    x = weights["embed_tokens.weight"][tokens]
    L = tokens.shape[1]
    future = torch.full((L, L), float("-inf")).triu(1)
    for layer in range(2):
        w = {n.removeprefix(f"layers.{layer}."): v for n, v in weights.items() if n.startswith(f"layers.{layer}.")}
        y = _norm(x, w["input_layernorm.weight"])
        q, k, v = ((y @ w[f"self_attn.{n}_proj.weight"].T).unflatten(2, (heads, -1)).transpose(1, 2) for n in "qkv")
        attention = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5 + future, -1)
        x = x + (attention @ v).transpose(1, 2).flatten(2) @ w["self_attn.o_proj.weight"].T
        y = _norm(x, w["post_attention_layernorm.weight"])
        gate = torch.nn.functional.silu(y @ w["mlp.gate_proj.weight"].T)
        x = x + (gate * (y @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
    return _norm(x, weights["norm.weight"])


def test_without_positions_the_order_of_earlier_tokens_does_not_matter() -> None:
    model, placed = network("transformer"), network("transformer", positions=True)
    a, b = [1, 2, 3], [2, 1, 3]
    one_layer = Network(Transformer(), small_stories(), dim=DIM, layers=1, heads=2)
    torch.testing.assert_close(hidden(one_layer, a)[-1], hidden(one_layer, b)[-1])
    assert not torch.allclose(hidden(placed, a)[-1], hidden(placed, b)[-1], atol=1e-4)
    assert not torch.allclose(hidden(model, a)[-1], hidden(placed, a)[-1], atol=1e-4)


@pytest.mark.parametrize(("name", "kind"), [("transformer", "Mistral"), ("mamba", "Mamba"), ("xlstm", "xLSTM")])
def test_the_reference_language_model_with_the_same_weights_gives_the_same_logits(name: str, kind: str) -> None:
    import transformers

    options: dict[str, Any] = {"positions": True} if name == "transformer" else {}
    model = network(name, **options)
    config = model.decoder.body.inner.config
    config.tie_word_embeddings = False
    reference = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    reference.base_model.load_state_dict(model.decoder.body.inner.state_dict())
    V = small_stories().V
    reference.lm_head.weight.data[:V] = model.decoder.W.data
    with torch.no_grad():
        logits = reference(input_ids=model.decoder.rows).logits[:, -1, :V]
    if name == "xlstm":  # the published head has a soft cap
        cap = config.output_logit_soft_cap
        logits = cap * torch.atanh(logits / cap)
    np.testing.assert_allclose(logits_of(model).T, logits.numpy(), atol=1e-4)


def test_the_lstm_is_the_recursion_of_its_definition() -> None:
    model = network("lstm")
    body = model.decoder.body
    w = {name: p.detach().numpy().astype(float) for name, p in body.layers.named_parameters()}
    x = body.tokens.weight.detach().numpy()[model.decoder.rows[7].numpy()].astype(float)
    for layer in range(2):
        h, c, states = np.zeros(DIM), np.zeros(DIM), []
        for token in x:
            z = w[f"weight_ih_l{layer}"] @ token + w[f"weight_hh_l{layer}"] @ h
            i, f, g, o = np.split(z + w[f"bias_ih_l{layer}"] + w[f"bias_hh_l{layer}"], 4)
            c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
            h = np.tanh(c) / (1 + np.exp(-o))
            states.append(h)
        x = np.stack(states)
    np.testing.assert_allclose(model.readout().H[:, 7], normed(x[-1], body.norm), atol=1e-5)


def test_the_mlp_is_the_composition_of_its_layers() -> None:
    from scipy.special import erf

    model = network("mlp")
    body = model.decoder.body
    x = body.tokens.weight.detach().numpy()[model.decoder.rows[7].numpy()].ravel().astype(float)
    for layer in body.layers:
        if isinstance(layer, torch.nn.Linear):
            bias = 0 if layer.bias is None else layer.bias.detach().numpy()
            x = layer.weight.detach().numpy() @ x + bias
        elif isinstance(layer, torch.nn.RMSNorm):
            x = normed(x, layer)
        else:
            x = x * 0.5 * (1 + erf(x / np.sqrt(2)))
    np.testing.assert_allclose(model.readout().H[:, 7], x, atol=1e-5)


@pytest.mark.parametrize("name", SHARING)
def test_a_tied_head_is_the_input_embedding_of_the_next_tokens(name: str) -> None:
    stats = small_stories()
    model = network(name, tied=True)
    table = architecture_named(name).embedding(model.decoder.body).weight.detach().numpy()
    assert stats.tokenizer is not None
    assert stats.contexts is not None
    tokens = [stats.tokenizer.token(int(i)) for i in stats.contexts[5]]
    numbers = model.decoder.rows[5].tolist()
    for token, number in zip(tokens, numbers, strict=True):
        if token in stats.vocabulary:
            assert stats.vocabulary.index(token) == number
    np.testing.assert_array_equal(model.readout().W, table[: stats.V].astype(float))


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides_the_weights(name: str) -> None:
    first, second = network(name), network(name)
    np.testing.assert_array_equal(logits_of(first), logits_of(second))
    other = Network(architecture_named(name), small_stories(), dim=DIM, seed=4)
    assert not np.allclose(logits_of(other), logits_of(first))


@pytest.mark.parametrize(
    ("name", "options", "part"),
    [
        ("lstm", {"positions": True}, "positions is not a setting of model 'lstm', which has layers, tied"),
        ("mamba", {"heads": 2}, "heads is not a setting of model 'mamba'"),
        ("transformer", {"heads": 99}, "between 1 and dim"),
        ("transformer", {"attention_dropout": 1.5}, "attention_dropout"),
        ("xlstm", {"heads": 3}, "multiple of twice its heads"),
    ],
)
def test_a_shape_that_the_architecture_cannot_have_is_refused(name: str, options: dict[str, Any], part: str) -> None:
    with pytest.raises(ProblemError, match=part):
        network(name, **options)


def test_contexts_without_tokens_are_refused() -> None:
    stats = NextTokenStatistics.from_counts(np.ones((3, 2), int))
    with pytest.raises(ProblemError, match="reads the tokens of contexts"):
        network("lstm", stats)


def test_tying_without_known_ids_is_refused() -> None:
    stats = NextTokenStatistics.from_counts(np.ones((3, 2), int), contexts=np.array([[7], [8]], np.int32))
    with pytest.raises(ProblemError, match="tied=False"):
        network("lstm", stats, tied=True)
