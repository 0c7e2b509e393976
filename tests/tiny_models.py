"""Tiny random causal language models, saved with save_pretrained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
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
    "mamba2": {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "state_size": 4,
        "num_heads": 4,
        "head_dim": 8,
        "n_groups": 1,
        "chunk_size": 8,
    },
    "gpt_neo": {
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "attention_types": [[["global", "local"], 1]],
        "max_position_embeddings": 32,
        "window_size": 8,
    },
    "gptj": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "rotary_dim": 4},
    "codegen": {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32, "rotary_dim": 4},
    "jamba": {
        **_SIZES,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "mamba_d_state": 4,
        "mamba_dt_rank": 4,
    },
    "zamba2": {
        **_SIZES,
        "mamba_d_state": 4,
        "n_mamba_heads": 4,
        "mamba_headdim": 8,
        "mamba_ngroups": 1,
        "chunk_size": 8,
        "layers_block_type": ["mamba", "hybrid"],
        "num_mem_blocks": 1,
    },
    "deepseek_v3": {
        **_SIZES,
        "head_dim": None,
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 4,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 8,
        "first_k_dense_replace": 1,
    },
    "mixtral": {**_SIZES, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {
        **_SIZES,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 8,
    },
    "dbrx": {
        "d_model": 16,
        "n_heads": 2,
        "n_layers": 2,
        "max_seq_len": 32,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 1e4},
        "ffn_config": {"ffn_hidden_size": 8, "moe_num_experts": 4, "moe_top_k": 2},
    },
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


def sentences(seed: int = 0) -> list[str]:
    """Documents over 12 tokens in which each token has few followers."""
    rng = np.random.default_rng(seed)
    followers = {z: rng.choice(np.arange(3, 15), size=3, replace=False) for z in range(3, 15)}
    documents = []
    for _ in range(40):
        tokens = [int(rng.integers(3, 15))]
        while len(tokens) < 12:
            tokens.append(int(rng.choice(followers[tokens[-1]])))
        documents.append(" ".join(f"w{z}" for z in tokens))
    return documents


def fit_head(folder: Path, stats: Any, share: float = 1.0) -> Path:
    """Give a saved model the head that comes closest to the log-probabilities of statistics; returns its folder.

    ``share`` is the share of these logits that the head gets: the loss falls as it grows to 1.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from tokengeom.models.checkpoint import load_checkpoint

    H = load_checkpoint(folder).readout(stats.contexts).H
    wanted = np.log(np.asarray(stats.P.toarray()) + 1e-3)
    W = share * (wanted - wanted.mean(axis=0)) @ np.linalg.pinv(H, rcond=1e-3)
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.get_output_embeddings().weight.copy_(torch.as_tensor(W))
    model.save_pretrained(folder)
    return folder


def save(model: Any, folder: Path, tokens: int = TOKENS) -> Path:
    """Save a model with its tokenizer, and return the folder."""
    model.save_pretrained(folder)
    save_tokenizer(folder, tokens)
    return folder
