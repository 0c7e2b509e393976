"""Mamba: a selective state-space model (arXiv 2312.00752), from Hugging Face transformers."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from tokengeom.models.networks.base import AbstractArchitecture, NetworkShape, hidden_states_of, import_transformers


class Mamba(AbstractArchitecture):
    """Blocks of gated convolution and selective scan."""

    name: ClassVar[str] = "mamba"
    default_layers: ClassVar[int] = 4

    def body(self, shape: NetworkShape) -> Any:
        """Mamba's own defaults: states of 16, convolutions over 4 tokens, twice the width inside."""
        transformers = import_transformers()
        config = transformers.MambaConfig(
            vocab_size=shape.tokens, hidden_size=shape.dim, num_hidden_layers=shape.layers, use_cache=False
        )
        # Advice to install CUDA kernels for the scan: contexts here are a few tokens long, where it costs nothing.
        logging.getLogger("transformers.integrations.hub_kernels").addFilter(_not_advice)
        return hidden_states_of(transformers.MambaModel(config), use_cache=False)

    def embedding(self, body: Any) -> Any:
        """Mamba's table."""
        return body.inner.embeddings


def _not_advice(record: logging.LogRecord) -> bool:
    return "falling back to its reference" not in record.getMessage()
