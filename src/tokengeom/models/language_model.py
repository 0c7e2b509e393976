"""Language models whose W and H can be read on given contexts: modules in memory, checkpoints, functions.

``H`` is what goes into the head: the last hidden state after the final norm with its gain. ``W`` has the rows of the
head. Both are in the same space for every architecture, since ``W h + bias`` are the logits. Before anything is
returned, this is checked on every context for `CHECKED_ROWS` tokens, and in every batch on one context for all tokens.

W and H have the numbers that the model computes with, in float32 where it has no more digits than that (float32,
bfloat16, float16). Memory: the model as it is stored, 4 V d bytes for W, 4 d m for H, and one batch of logits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.errors import CheckpointError, InputError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.corpus.tokenizers import AbstractTokenizer, make_tokenizer
from tokengeom.models.checkpoint_head import (
    Head,
    as_array,
    find_head,
    find_head_layer,
    head_input,
    keeps_last,
    last_logits,
    last_position,
    require_causal,
)
from tokengeom.statistics.windows import ABSENT, START

_BATCH_ENTRIES = 2**24
"""Logits per batch: 64 MB in float32."""
_BATCH_TOKENS = 2**12
"""Tokens per batch, which bounds the memory of hidden states."""
CHECKED_ROWS = 1024
"""Tokens whose logits are checked on every context; they are spread evenly over the vocabulary."""


@dataclass(frozen=True, eq=False, repr=False)
class AbstractLanguageModel(ABC):
    """A model of the next token, ready to be read.

    ``name``
        How messages and figures call it.
    ``head``
        W, bias and what is applied to their output.
    ``tokenizer``
        The model's own tokenizer; None where it is not known.
    ``bos``
        Id of the token that starts a text, or None.
    ``positions``
        Longest sequence that the model accepts, or None where there is no limit.
    ``step``
        Training step at which it was saved, or None where that is not known.
    """

    name: str
    head: Head
    tokenizer: AbstractTokenizer | None = None
    bos: int | None = None
    positions: int | None = None
    step: int | None = None

    @abstractmethod
    def states(self, batch: list[tuple[int, ...]]) -> Float:
        """H of texts of one length, d x batch, checked to reproduce the model's logits where it has any."""

    @property
    @abstractmethod
    def architecture(self) -> str:
        """Name of the class, or of the function, that computes the states."""

    def entries(self, length: int) -> int:
        """Numbers that reading one text of this length takes at once, about."""
        return self.d * length

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, rows={self.head.rows:,}, d={self.d:,})"

    @property
    def d(self) -> int:
        """Dimension of the embeddings."""
        return int(self.head.W.shape[1])

    @property
    def convention(self) -> str:
        """What W and H are for this model, in a few sentences."""
        head = self.head
        tied = ", tied to the input embeddings" if head.tied else ""
        padded = 0 if self.tokenizer is None else head.rows - self.tokenizer.size
        return " ".join(
            [
                f"W: the {head.rows:,} rows of the head of {self.architecture}{tied}.",
                f"H: what goes into the head, after the final norm with its gain (d={self.d}).",
                *([] if head.scale == 1 else [f"The model's logit scale {head.scale:.6g} is folded into W."]),
                *(["The head's bias is part of the logits."] if head.bias is not None else []),
                *([] if head.cap is None else [f"W h is the logit before the soft cap {head.cap:g}."]),
                *([f"{padded:,} rows belong to no token, so no text contains them."] if padded > 0 else []),
            ]
        )

    def sequences(self, contexts: NDArray[np.integer[Any]], *, bos: bool = False) -> list[tuple[int, ...]]:
        """Token ids that the model reads for each context (m x L ids, START and ABSENT as in the statistics).

        START fields of a context, however many, become one BOS token; ``bos`` puts it before every context.
        """
        contexts = np.asarray(contexts)
        if contexts.ndim != 2 or contexts.dtype.kind not in "iu":
            raise CheckpointError(f"Contexts must be an m x L matrix of ids; got {contexts.dtype}, {contexts.shape}.")
        worst = int(contexts.max(initial=0))
        if worst >= self.head.rows or int(contexts.min(initial=0)) < ABSENT:
            raise CheckpointError(
                f"Ids in contexts must lie below the model's {self.head.rows:,} rows; got up to {worst:,} (least "
                f"{int(contexts.min(initial=0))}). Count the text with the model's own tokenizer."
            )
        rows = [tuple(int(z) for z in row if z != ABSENT) for row in contexts]
        if self.bos is None and (bos or any(START in row for row in rows)):
            raise CheckpointError(
                f"{self.name} has no token that starts a text (bos_token), and contexts at the start of a document "
                "need one. Count without padding, and read without BOS."
            )
        first = () if self.bos is None else (int(self.bos),)
        read = [(*(first if bos or START in row else ()), *(z for z in row if z != START)) for row in rows]
        if not read or not min(map(len, read)):
            raise CheckpointError("A model needs at least one token; got no context, or one without any token.")
        self.require_length(max(map(len, read)))
        return read

    def require_length(self, length: int) -> None:
        """Refuse contexts of more tokens (BOS included) than the model has positions."""
        if self.positions is not None and length > self.positions:
            raise CheckpointError(
                f"Contexts of {length:,} tokens (BOS included) are longer than the {self.positions:,} positions of "
                f"{self.name}. Count shorter contexts."
            )

    def readout(
        self, contexts: NDArray[np.integer[Any]], *, bos: bool = False, progress: AbstractProgress | None = None
    ) -> Factors:
        """W (V x d), H (d x m) and bias on contexts, checked to reproduce the model's own logits (before a soft cap).

        Contexts of one length are read together, so nothing is padded and no mask is needed.
        """
        sequences = self.sequences(contexts, bos=bos)
        H = np.empty((self.d, len(sequences)), dtype=self.head.W.dtype)
        with (progress or SilentProgress()).stage(f"Reading {self.name}", len(sequences)) as stage:
            for batch in _batches(sequences, self.entries):
                H[:, batch] = self.states([sequences[j] for j in batch])
                stage.advance(len(batch))
        return Factors(self.head.W, H, self.head.bias)


@dataclass(frozen=True, eq=False, repr=False)
class ModuleModel(AbstractLanguageModel):
    """A PyTorch module that computes logits from token ids by calling a linear head once.

    ``module``       The module itself.
    ``head_module``  The part of it whose weight is W and whose input is h.
    """

    module: Any = None
    head_module: Any = None

    @property
    def architecture(self) -> str:
        return type(self.module).__name__

    @property
    def parameters(self) -> int:
        """Number of parameters, tied ones counted once."""
        return sum(int(parameter.numel()) for parameter in self.module.parameters())

    def entries(self, length: int) -> int:
        """Logits of one text: of its last token where the module can leave out the others."""
        return self.head.rows * (1 if keeps_last(self.module) else length)

    def states(self, batch: list[tuple[int, ...]]) -> Float:
        with head_input(self.head_module) as seen:
            logits = last_logits(self.module, batch)
        if len(seen) != 1:
            raise CheckpointError(f"The head of {self.architecture} must run once per text; it ran {len(seen)} times.")
        H = as_array(last_position(seen[0])).T
        # A wrong h shows in any rows, and a wrong row of W on any text.
        step = max(1, self.head.rows // CHECKED_ROWS)
        some = np.arange(0, self.head.rows, step)
        self.head.require_logits(H, as_array(logits[:, ::step]).T, self.architecture, some)
        self.head.require_logits(H[:, :1], as_array(logits[:1]).T, self.architecture)
        return H


@dataclass(frozen=True, eq=False, repr=False)
class FunctionModel(AbstractLanguageModel):
    """A function from token ids to hidden states, and a head that was given with it.

    ``function``  From an array of token ids (batch x length) to the states that the head is applied to (batch x d).
    """

    function: Callable[[Any], Any] | None = None

    @property
    def architecture(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def states(self, batch: list[tuple[int, ...]]) -> Float:
        assert self.function is not None
        given = self.function(np.asarray(batch, np.int64))
        H = as_array(given) if hasattr(given, "detach") else np.asarray(given)
        if H.shape != (len(batch), self.d):
            raise InputError(
                f"{self.architecture} must return one state of d={self.d} numbers per text, shape "
                f"({len(batch)}, {self.d}); got shape {H.shape}. Return the last hidden state, the one that the head "
                "is applied to."
            )
        if not np.isfinite(H).all():
            raise InputError(f"States must be finite; {self.architecture} returned infinite or NaN numbers.")
        return np.asarray(H, np.float64).T


def language_model(
    model: Any, *, head: Any = None, tokenizer: object = None, bos: int | None = None, name: str | None = None
) -> AbstractLanguageModel:
    """A model in memory, ready for ``compare`` and ``rivals``.

    Parameters
    ----------
    model
        A Hugging Face causal language model; a PyTorch module from token ids (batch x length) to logits (batch x V, or
        batch x length x V); or any function from an array of token ids (batch x length) to hidden states (batch x d),
        together with ``head``.
    head
        The linear layer inside a PyTorch module that makes the logits; found by itself where only one layer has as
        many outputs as there are logits. For a function: W (V x d), or the pair of W and bias (V).
    tokenizer
        The model's tokenizer: one of tokengeom's, one of Hugging Face's, or the path of a saved one. It is compared
        with the one that the text was counted with.
    bos
        Id of the token that starts a text; by default what a Hugging Face model's config says.
    name
        Name in messages and figures; by default that of the class.
    """
    if isinstance(model, AbstractLanguageModel):
        return model
    own = None if tokenizer is None else make_tokenizer(tokenizer)
    named = name or str(getattr(model, "__name__", type(model).__name__))
    if not _is_module(model):
        return FunctionModel(named, _given_head(model, head), own, bos, function=model)
    caps, positions = list[float](), None
    if hasattr(model, "get_output_embeddings") and hasattr(model, "config"):
        text = model.config.get_text_config()
        head = model.get_output_embeddings() if head is None else head
        caps, positions = soft_caps(text), positions_of(text)
        bos = _whole(getattr(text, "bos_token_id", None)) if bos is None else bos
    layer = find_head_layer(model) if head is None else head
    readable_head = find_head(model, layer, caps)
    require_causal(model)
    return ModuleModel(named, readable_head, own, bos, positions, module=model, head_module=layer)


def soft_caps(config: Any) -> list[float]:
    """Numbers that a config names as soft caps of the logits, without those of attention."""
    numbers = [v for k, v in config.to_dict().items() if "cap" in k and "soft" in k and "att" not in k]
    return [float(v) for v in numbers if isinstance(v, int | float) and v > 0]


def positions_of(config: Any) -> int | None:
    """Longest sequence that a config allows; None where it names no limit."""
    limit = _whole(getattr(config, "max_position_embeddings", None))
    return limit if limit is not None and limit > 0 else None


def _whole(given: object) -> int | None:
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _is_module(model: Any) -> bool:
    """Whether this is a PyTorch module; PyTorch is imported only where something of it may be given."""
    if not callable(model):
        raise InputError(
            f"A model must be a PyTorch module or a function from token ids to hidden states; got "
            f"{type(model).__name__}."
        )
    return hasattr(model, "parameters") and hasattr(model, "register_forward_hook")


def _given_head(model: Any, head: Any) -> Head:
    if head is None:
        raise InputError(
            f"{getattr(model, '__name__', type(model).__name__)} is a function from token ids to hidden states, so its "
            "head is needed too: language_model(function, head=W), or head=(W, bias)."
        )
    W, bias = head if isinstance(head, tuple) else (getattr(head, "weight", head), getattr(head, "bias", None))
    # The states that it is applied to are not known: one state of zeros stands for them.
    checked = Factors.of(Factors(W, np.zeros((int(W.shape[-1]), 1)), bias))
    return Head(checked.W, checked.bias, 1.0, None, False)


def _batches(sequences: Sequence[tuple[int, ...]], entries: Callable[[int], int]) -> Iterator[list[int]]:
    """Indices of contexts of one length, as many at once as fit in a batch."""
    by_length: dict[int, list[int]] = {}
    for place, tokens in enumerate(sequences):
        by_length.setdefault(len(tokens), []).append(place)
    for length, places in sorted(by_length.items()):
        most = max(1, min(_BATCH_TOKENS // length, _BATCH_ENTRIES // entries(length)))
        yield from (places[k : k + most] for k in range(0, len(places), most))
