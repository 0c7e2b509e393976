"""Tiny random causal language models, saved with save_pretrained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers

TOKENS = 30
ROWS = 40
"""Rows of W: more than the tokenizer has tokens."""
BOS = 1

_SIZES = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 32,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {**_SIZES, "tie_word_embeddings": False},
    "llama tied": {**_SIZES, "tie_word_embeddings": True},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32},
    "gpt_neox": {**_SIZES, "num_key_value_heads": None, "head_dim": None},
    "phi": _SIZES,
    "granite": {**_SIZES, "logits_scaling": 8.0},
    "cohere": {**_SIZES, "logit_scale": 0.25},
    "gemma2": {**_SIZES, "final_logit_softcapping": 3.0, "layer_types": None},
    "xlstm": {"hidden_size": 16, "num_heads": 2, "num_blocks": 1, "output_logit_soft_cap": 2.0, "use_cache": False},
    "mamba": {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},
}


def build(family: str, seed: int = 0, **changes: Any) -> Any:
    """A random model in which norm gains and biases are not 1 and 0, so leaving one out changes the logits."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    asked = {name: value for name, value in FAMILIES[family].items() if value is not None}
    special = {"bos_token_id": BOS, "eos_token_id": 2, "pad_token_id": 0}
    config = AutoConfig.for_model(family.split()[0], **{"vocab_size": ROWS, **special, **asked, **changes})
    generator = torch.Generator().manual_seed(seed)
    # The library draws from the global generator, which is restored.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).eval()
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


def save_tokenizer(folder: Path, tokens: int = TOKENS) -> None:
    """Save a tokenizer with the tokens w0, w1, ... between spaces; w1 starts a text."""
    vocabulary = {f"w{place}": place for place in range(tokens)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def save(model: Any, folder: Path, tokens: int = TOKENS) -> Path:
    """Save a model with its tokenizer, and return the folder."""
    model.save_pretrained(folder)
    save_tokenizer(folder, tokens)
    return folder
