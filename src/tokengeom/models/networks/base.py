"""What network architectures share: the interface, the shape, finding one by its name, and PyTorch with its devices.

An architecture builds a body: a torch module that maps tokens to one hidden state per position. The head and the
reading of contexts are the same for all of them (``models/network.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from tokengeom.core.errors import ProblemError, ResourceError, missing_extra
from tokengeom.core.settings import member

_PACKAGE = __name__.removesuffix(".base")
THREADED_WORK = 3e9
"""Multiplications per step from which more than one thread is faster.

Measured on 2 busy cores: a step of 0.3e9 takes 19 ms with one thread and 2.0 s with two, which spin while they wait for
each other.
"""


@dataclass(frozen=True)
class NetworkShape:
    """Size of a network.

    where
        tokens   number of distinct input tokens, including the start of a document and the padding of short contexts
        length   L, the longest context
        dim      d, dimension of the hidden states and of the rows of W
        spans    weight of each span where contexts are read as features, of which ``tokens`` is then the number

    The other fields are settings of `train`; an architecture reads those that are among its ``defaults``.
    """

    tokens: int
    length: int
    dim: int
    layers: int = 1
    heads: int = 1
    positions: bool = False
    attention_dropout: float = 0.0
    ties: str = ""
    last_norm: bool = True
    head_start: float = 1.0
    feature_start: float = 1.0
    spans: tuple[float, ...] = ()


class AbstractArchitecture(ABC):
    """Builds torch modules that map tokens (rows x L) to hidden states (rows x L x d), with random weights.

    ``defaults``  The settings of `train` that this architecture has besides those of every network, with their
                  defaults, for example ``{"layers": 4, "heads": 6}``. One that has ``ties`` reads the features of
                  contexts, not their tokens.
    ``causal``    Whether the state at a position depends only on the tokens up to it. A context that is the beginning
                  of another is then read from the same row.
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

    def kept(self, body: Any) -> dict[str, Any]:
        """Tensors that a run keeps beside W and H; none by default."""
        return {}

    def check(self, shape: NetworkShape) -> None:  # noqa: B027 - most architectures take every shape
        """Refuse a shape that this architecture cannot have."""


def architecture_named(name: str) -> AbstractArchitecture:
    """The architecture of a name."""
    return member(_PACKAGE, name, AbstractArchitecture, "a network")()  # type: ignore[type-abstract]


def import_torch(extra: str = "networks", what: str = "A network") -> Any:
    """PyTorch, or an error that names the extra to install, and what needs it."""
    try:
        import torch
    except ModuleNotFoundError:
        missing_extra("torch", extra, what)
    return torch


def import_transformers(what: str = "A transformer, Mamba or xLSTM") -> Any:
    """Hugging Face transformers, or an error that names the extra to install, and what needs it."""
    import_torch(what=what)
    try:
        import transformers
    except ModuleNotFoundError:
        missing_extra("transformers", "networks", what)
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


def checked_device(torch: Any, device: str) -> Any:
    """The torch device of a name, or an error where this machine does not have it."""
    try:
        made = torch.device(device)
    except RuntimeError as error:
        raise ProblemError(f"device must be 'cpu' or 'cuda' (or 'cuda:1'); got {device!r}.") from error
    if made.type == "cuda" and not torch.cuda.is_available():
        raise ResourceError(
            f"device {device!r} is not available: torch {torch.__version__} sees no CUDA device. Use device='cpu', "
            "or install a CUDA build of torch on a machine with a GPU."
        )
    if made.type == "cuda" and (made.index or 0) >= torch.cuda.device_count():
        raise ResourceError(
            f"device {device!r} is not available: this machine has {torch.cuda.device_count()} CUDA device(s), "
            "numbered from cuda:0."
        )
    try:
        torch.empty(1, device=made)
    # A build of torch without this kind of device raises one of these.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ResourceError(f"device {device!r} cannot be used: {reason}. Use device='cpu'.") from error
    return made


@contextmanager
def threads_for(torch: Any, work: float) -> Iterator[None]:
    """A context in which torch uses one thread where the work of a step is small."""
    before = torch.get_num_threads()
    if work < THREADED_WORK:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
