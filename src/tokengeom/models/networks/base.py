"""What network architectures share: the interface, the shape, and finding an architecture by its name.

An architecture builds a body: a torch module that maps tokens to one hidden state per position. The head and the
reading of contexts are the same for all of them (``models/network.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tokengeom.core.errors import missing_extra
from tokengeom.core.settings import member

_PACKAGE = __name__.removesuffix(".base")


@dataclass(frozen=True)
class NetworkShape:
    """Size of a network.

    where
        tokens   number of distinct input tokens, including the start of a document and the padding of short contexts
        length   L, the longest context
        dim      d, dimension of the hidden states and of the rows of W

    The other fields are settings of `train`; an architecture reads those that are among its ``defaults``.
    """

    tokens: int
    length: int
    dim: int
    layers: int = 1
    heads: int = 1
    positions: bool = False
    attention_dropout: float = 0.0


class AbstractArchitecture(ABC):
    """Builds torch modules that map tokens (rows x L) to hidden states (rows x L x d), with random weights.

    ``defaults``
        The settings of `train` that this architecture has besides those of every network, with their defaults, for
        example ``{"layers": 4, "heads": 6}``.
    ``causal``
        Whether the state at a position depends only on the tokens up to it. A context that is the beginning of
        another is then read from the same row.
    """

    defaults: ClassVar[Mapping[str, Any]]
    causal: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name of the file that defines the architecture."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def options(self) -> tuple[str, ...]:
        """Settings of `train` that the model has besides ``dim``."""
        return (*self.defaults, "tied", "compiled")

    @abstractmethod
    def body(self, shape: NetworkShape) -> Any:
        """Build the body; the caller has seeded torch's generator."""

    @abstractmethod
    def embedding(self, body: Any) -> Any:
        """The table of input embeddings (``torch.nn.Embedding``) of a body, which a tied head shares."""

    def check(self, shape: NetworkShape) -> None:  # noqa: B027 - most architectures take every shape
        """Refuse a shape that this architecture cannot have."""


def architecture_named(name: str) -> AbstractArchitecture:
    """The architecture of a name."""
    return member(_PACKAGE, name, AbstractArchitecture, "a network")()  # type: ignore[type-abstract]


def import_torch() -> Any:
    """PyTorch, or an error that names the extra to install."""
    try:
        import torch
    except ModuleNotFoundError:
        missing_extra("torch", "networks", "A network")
    return torch


def import_transformers() -> Any:
    """Hugging Face transformers, or an error that names the extra to install."""
    import_torch()
    try:
        import transformers
    except ModuleNotFoundError:
        missing_extra("transformers", "networks", "A transformer, Mamba or xLSTM")
    return transformers


def hidden_states_of(inner: Any, **always: Any) -> Any:
    """A module that returns only the last hidden states of a Hugging Face model."""
    torch = import_torch()

    class HiddenStates(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, tokens: Any) -> Any:
            return self.inner(input_ids=tokens, **always).last_hidden_state

    return HiddenStates()
