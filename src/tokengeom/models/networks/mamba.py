"""Mamba: a selective state-space model (arXiv 2312.00752), from Hugging Face transformers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from tokengeom.models.networks.base import AbstractArchitecture, NetworkShape, hidden_states_of, import_transformers


class Mamba(AbstractArchitecture):
    """Blocks of gated convolution and selective scan."""

    defaults: ClassVar[Mapping[str, Any]] = {"layers": 4}

    def body(self, shape: NetworkShape) -> Any:
        """A model with Mamba's own defaults: state size 16, convolutions over 4 tokens, inner width 2 d."""
        transformers = import_transformers()
        config = transformers.MambaConfig(
            vocab_size=shape.tokens, hidden_size=shape.dim, num_hidden_layers=shape.layers, use_cache=False
        )
        # Advice to install CUDA kernels for the scan, which matter little for contexts of a few tokens.
        logging.getLogger("transformers.integrations.hub_kernels").addFilter(_is_not_advice)
        return hidden_states_of(transformers.MambaModel(config), use_cache=False)

    def embedding(self, body: Any) -> Any:
        return body.inner.embeddings


def _is_not_advice(record: logging.LogRecord) -> bool:
    return "falling back to its reference" not in record.getMessage()
