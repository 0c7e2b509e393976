"""xLSTM: blocks with a matrix memory and exponential gates (arXiv 2405.04517), from Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tokengeom.core.errors import ProblemError
from tokengeom.models.networks.base import AbstractArchitecture, NetworkShape, hidden_states_of, import_transformers


class XLSTM(AbstractArchitecture):
    """Blocks of mLSTM and gated feed-forward layers.

    Only the body is used: the published language model applies a soft cap to its logits, ``cap tanh(L / cap)``, and
    capped logits are not a product W H.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"layers": 4, "heads": 4}

    def check(self, shape: NetworkShape) -> None:
        """Refuse a dimension that cannot be divided between the heads: keys have half the width."""
        if shape.heads < 1 or shape.dim % (2 * shape.heads):
            raise ProblemError(
                f"dim of an xlstm must be a multiple of twice its heads; got dim={shape.dim}, heads={shape.heads}."
            )

    def body(self, shape: NetworkShape) -> Any:
        """One chunk per context, kernels in single precision."""
        transformers = import_transformers()
        config = transformers.xLSTMConfig(
            vocab_size=shape.tokens,
            hidden_size=shape.dim,
            embedding_dim=shape.dim,
            num_hidden_layers=shape.layers,
            num_blocks=shape.layers,
            num_heads=shape.heads,
            chunk_size=shape.length,
            mode="train",
            return_last_states=True,
            autocast_kernel_dtype="float32",
            use_cache=False,
        )
        return hidden_states_of(transformers.xLSTMModel(config), use_cache=False)

    def embedding(self, body: Any) -> Any:
        return body.inner.embeddings
