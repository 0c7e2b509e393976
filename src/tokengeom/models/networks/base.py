"""What an architecture is here: a shape in, a body out that gives each position of a sequence a hidden state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from tokengeom.errors import ProblemError, missing_extra


@dataclass(frozen=True)
class NetworkShape:
    """Size of a network.

    where
        tokens   number of distinct input tokens, the start of a document and the filling of short contexts included
        length   L, the longest context
        dim      d, dimension of the hidden states and of W's rows
        layers, heads, positions, attention_dropout   as the architecture reads them
    """

    tokens: int
    length: int
    dim: int
    layers: int
    heads: int | None = None
    positions: bool = False
    attention_dropout: float = 0.0


class AbstractArchitecture(ABC):
    """Builds bodies: torch modules that map tokens (rows x L) to hidden states (rows x L x d), weights at random.

    ``causal``
        Whether the state at a position depends on the tokens up to it alone. Contexts that are the beginning of
        others are then read off the same row.
    ``default_layers``, ``default_heads``
        What is built unless asked otherwise; no heads where the architecture has none.
    ``attends``
        Whether it has attention, and so the options of positions and attention dropout.
    """

    name: ClassVar[str]
    causal: ClassVar[bool] = True
    default_layers: ClassVar[int]
    default_heads: ClassVar[int | None] = None
    attends: ClassVar[bool] = False

    @abstractmethod
    def body(self, shape: NetworkShape) -> Any:
        """Build the body; the caller has seeded the generator of torch."""

    @abstractmethod
    def embedding(self, body: Any) -> Any:
        """Return the table of input embeddings (``torch.nn.Embedding``) of a body, which a tied head shares."""

    def check(self, shape: NetworkShape) -> None:
        """Refuse a shape that this architecture cannot have."""
        if not self.attends and (shape.positions or shape.attention_dropout):
            raise ProblemError(
                f"positions and attention_dropout belong to an architecture with attention; {self.name!r} has none."
            )
        if self.default_heads is None and shape.heads is not None:
            raise ProblemError(f"heads must be left out: {self.name!r} has none; got {shape.heads}.")
        if not 0.0 <= shape.attention_dropout < 1.0:
            raise ProblemError(f"attention_dropout must lie in [0, 1); got {shape.attention_dropout!r}.")


def import_torch() -> Any:
    """PyTorch, or an error that names the extra."""
    try:
        import torch
    except ModuleNotFoundError:
        missing_extra("torch", "networks", "A sequence network")
    return torch


def import_transformers() -> Any:
    """Hugging Face transformers, or an error that names the extra."""
    import_torch()
    try:
        import transformers
    except ModuleNotFoundError:
        missing_extra("transformers", "networks", "A transformer, Mamba or xLSTM")
    return transformers


def hidden_states_of(inner: Any, **always: Any) -> Any:
    """Module that returns the last hidden states of a Hugging Face model, and nothing around them."""
    torch = import_torch()

    class HiddenStates(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, tokens: Any) -> Any:
            return self.inner(input_ids=tokens, **always).last_hidden_state

    return HiddenStates()
