"""The papers' transformer: pre-RMSNorm, SwiGLU, causal attention, no positional encoding [zhao2024].

It is built from Hugging Face's Mistral, whose blocks are of this kind; without positional encoding, queries and keys
are rotated by an angle of 0. The papers' 128 dimensions are not a multiple of their 6 heads, so the size of a head is
rounded to an even number: 22.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tokengeom.core.errors import ProblemError
from tokengeom.models.networks.base import (
    AbstractArchitecture,
    NetworkShape,
    hidden_states_of,
    import_torch,
    import_transformers,
)

# SwiGLU has three matrices where a plain MLP block has two: 8/3 of the width keeps the number of parameters.
_WIDENING = 8 / 3


class Transformer(AbstractArchitecture):
    """Decoder-only transformer."""

    defaults: ClassVar[Mapping[str, Any]] = {"layers": 4, "heads": 6, "positions": False, "attention_dropout": 0.0}

    def check(self, shape: NetworkShape) -> None:
        """Refuse more heads than dimensions, and a dropout that is not a probability below 1."""
        if not 1 <= shape.heads <= shape.dim:
            raise ProblemError(f"heads must lie between 1 and dim={shape.dim}; got {shape.heads}.")
        if not 0.0 <= shape.attention_dropout < 1.0:
            raise ProblemError(f"attention_dropout must lie in [0, 1); got {shape.attention_dropout!r}.")

    def body(self, shape: NetworkShape) -> Any:
        """Mistral's decoder, in which every head has its own keys and values."""
        transformers = import_transformers()
        config = transformers.MistralConfig(
            vocab_size=shape.tokens,
            hidden_size=shape.dim,
            intermediate_size=max(8, 8 * round(_WIDENING * shape.dim / 8)),
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.heads,
            head_dim=max(2, 2 * round(shape.dim / shape.heads / 2)),
            max_position_embeddings=max(shape.length, 1),
            attention_dropout=shape.attention_dropout,
            sliding_window=None,
            pad_token_id=None,
            use_cache=False,
        )
        inner = transformers.MistralModel(config)
        if not shape.positions:
            inner.rotary_emb = _no_rotation()
        return hidden_states_of(inner, use_cache=False)

    def embedding(self, body: Any) -> Any:
        return body.inner.embed_tokens


def _no_rotation() -> Any:
    torch = import_torch()

    class NoRotation(torch.nn.Module):  # type: ignore[name-defined, misc]
        """Cosine 1 and sine 0 at every position: queries and keys are unchanged."""

        def forward(self, hidden: Any, position_ids: Any) -> tuple[Any, Any]:
            one = hidden.new_ones((1, 1, 1))
            return one, torch.zeros_like(one)

    return NoRotation()
