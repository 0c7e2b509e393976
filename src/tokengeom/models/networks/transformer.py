"""The papers' transformer: pre-RMSNorm, SwiGLU, causal attention, no positional encoding [zhao2024, sec. 5].

Built from Hugging Face's Mistral, which is that block; what it lacks is attention without positions: a rotation by no
angle. The papers' 128 dimensions are no multiple of their 6 heads, so a head has its own size, rounded to an even
number: 22.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tokengeom.errors import ProblemError
from tokengeom.models.networks.base import (
    AbstractArchitecture,
    NetworkShape,
    hidden_states_of,
    import_torch,
    import_transformers,
)

# SwiGLU has three matrices where a plain block has two: 8/3 of the width keeps the number of parameters.
_WIDENING = 8 / 3


class Transformer(AbstractArchitecture):
    """Decoder-only transformer."""

    name: ClassVar[str] = "transformer"
    default_layers: ClassVar[int] = 4
    default_heads: ClassVar[int | None] = 6
    attends: ClassVar[bool] = True

    def check(self, shape: NetworkShape) -> None:
        """Refuse more heads than dimensions too."""
        super().check(shape)
        if not 1 <= (shape.heads or 1) <= shape.dim:
            raise ProblemError(f"heads must lie between 1 and dim={shape.dim}; got {shape.heads}.")

    def body(self, shape: NetworkShape) -> Any:
        """Mistral's decoder with every head its own keys and values."""
        transformers = import_transformers()
        heads = shape.heads or 1
        config = transformers.MistralConfig(
            vocab_size=shape.tokens,
            hidden_size=shape.dim,
            intermediate_size=max(8, 8 * round(_WIDENING * shape.dim / 8)),
            num_hidden_layers=shape.layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            head_dim=max(2, 2 * round(shape.dim / heads / 2)),
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
        """Mistral's table."""
        return body.inner.embed_tokens


def _no_rotation() -> Any:
    torch = import_torch()

    class NoRotation(torch.nn.Module):  # type: ignore[name-defined, misc]
        """Cosine 1 and sine 0 at every position: queries and keys stay as they are."""

        def forward(self, hidden: Any, position_ids: Any) -> tuple[Any, Any]:
            one = hidden.new_ones((1, 1, 1))
            return one, torch.zeros_like(one)

    return NoRotation()
