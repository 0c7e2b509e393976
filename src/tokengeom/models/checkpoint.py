"""W, H and logits of a trained causal language model in a local folder (Hugging Face format).

``H`` is what goes into the head: the last hidden state after the final norm with its gain. ``W`` has the rows of the
head. Both are in the same space for every architecture, since ``W h + bias`` are the logits, which is checked on every
context before anything is returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.corpus.huggingface_tokenizer import HuggingFaceTokenizer, load_huggingface
from tokengeom.errors import CheckpointError, TokenizerError, missing_extra
from tokengeom.factors import Factors
from tokengeom.models.checkpoint_folder import (
    find_weights,
    read_json,
    require_causal_model,
    require_model_folder,
    training_step,
)
from tokengeom.models.checkpoint_head import Head, as_float64, find_head, head_input, require_causal, run_model
from tokengeom.models.devices import checked_device
from tokengeom.models.networks.base import import_torch
from tokengeom.numerics import Float
from tokengeom.progress import AbstractProgress, SilentProgress
from tokengeom.statistics.windows import ABSENT, START

_BATCH_ENTRIES = 2**24
"""Logits per batch: 64 MB in float32."""


def require_packages() -> None:
    """Refuse to start without the packages that loading needs."""
    for package in ("torch", "transformers"):
        try:
            __import__(package)
        except ModuleNotFoundError:
            missing_extra(package, "networks", "Loading a trained model")


def load_model(folder: Path, safetensors: bool) -> Any:
    """The model with every weight from the folder, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with _silent():
            model, info = AutoModelForCausalLM.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=safetensors,
                dtype=torch.float32,
                output_loading_info=True,
            )
    # A config can be wrong in every way, and the library raises whatever that leads to.
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{folder} cannot be loaded as a causal language model: {reason} Check that config.json and the weights "
            "belong together, and that transformers is not older than the model."
        ) from error
    _require_all_weights(folder, info)
    return model


def _require_all_weights(folder: Path, info: dict[str, Any]) -> None:
    """Refuse a model with missing weights: they would be drawn at random, and the geometry would be that of noise."""
    absent = sorted(map(str, info.get("missing_keys", ())))
    other = sorted(str(key[0] if isinstance(key, tuple) else key) for key in info.get("mismatched_keys", ()))
    if absent or other:
        named = ", ".join([*absent, *other][:3]) + (", ..." if len(absent) + len(other) > 3 else "")
        raise CheckpointError(
            f"{folder} must hold every weight of its model; {len(absent)} are missing and {len(other)} have another "
            f"shape: {named}. They would be random numbers. Likely the model was saved without its head, or the save "
            "was interrupted: save it again with AutoModelForCausalLM."
        )


@contextmanager
def _silent() -> Iterator[None]:
    """A context without progress bars and messages of transformers."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@dataclass(frozen=True, eq=False, repr=False)
class Checkpoint:
    """A loaded model.

    ``head``       W, bias and what is applied to their output
    ``tokenizer``  the model's own tokenizer
    ``bos``        id of the token that starts a text, or None
    ``positions``  longest sequence that the model accepts, or None where there is no limit
    ``step``       training step at which it was saved, or None where the folder does not say
    """

    folder: Path
    head: Head
    tokenizer: HuggingFaceTokenizer
    bos: int | None
    positions: int | None
    step: int | None
    model: Any

    @property
    def d(self) -> int:
        """Dimension of the embeddings."""
        return int(self.head.W.shape[1])

    @property
    def parameters(self) -> int:
        """Number of parameters, tied ones counted once."""
        return sum(int(parameter.numel()) for parameter in self.model.parameters())

    @property
    def convention(self) -> str:
        """What W and H are for this model, in a few sentences."""
        head, name = self.head, type(self.model).__name__
        tied = ", tied to the input embeddings" if head.tied else ""
        padded = head.rows - self.tokenizer.size
        return " ".join(
            [
                f"W: the {head.rows:,} rows of the head of {name}{tied}.",
                f"H: what goes into the head, after the final norm with its gain (d={self.d}).",
                *([] if head.scale == 1 else [f"The model's logit scale {head.scale:.6g} is folded into W."]),
                *(["The head's bias is part of the logits."] if head.bias is not None else []),
                *([] if head.cap is None else [f"W h is the logit before the soft cap {head.cap:g}."]),
                *([f"{padded:,} rows belong to no token; they count only in the loss."] if padded > 0 else []),
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
                f"{self.folder} has no token that starts a text (bos_token), and contexts at the start of a document "
                "need one. Count without padding, and read without BOS."
            )
        found = [self._sequence(row, bos) for row in rows]
        self._require_lengths(found)
        return found

    def _sequence(self, row: tuple[int, ...], bos: bool) -> tuple[int, ...]:
        tokens = tuple(z for z in row if z != START)
        return (int(self.bos), *tokens) if self.bos is not None and (bos or START in row) else tokens

    def _require_lengths(self, found: Sequence[tuple[int, ...]]) -> None:
        lengths = [len(tokens) for tokens in found]
        if not lengths or min(lengths) == 0:
            raise CheckpointError("A model needs at least one token; got no context, or one without any token.")
        if self.positions is not None and max(lengths) > self.positions:
            raise CheckpointError(
                f"Contexts of {max(lengths):,} tokens (BOS included) are longer than the {self.positions:,} positions "
                f"of {self.folder}. Count shorter contexts."
            )

    def readout(
        self,
        contexts: NDArray[np.integer[Any]],
        *,
        bos: bool = False,
        progress: AbstractProgress | None = None,
    ) -> Factors:
        """W (V x d), H (d x m) and bias on contexts, checked to reproduce the model's own logits (before a soft cap).

        Contexts of one length are read together, so nothing is padded and no mask is needed.
        """
        found = self.sequences(contexts, bos=bos)
        H = np.empty((self.d, len(found)))
        with (progress or SilentProgress()).stage(f"Reading {self.folder.name}", len(found)) as stage:
            for batch in _batches(found, self.head.rows):
                H[:, batch] = self._read([found[j] for j in batch])
                stage.advance(len(batch))
        return Factors(self.head.W, H, self.head.bias)

    def _read(self, batch: list[tuple[int, ...]]) -> Float:
        """H of contexts of one length, d x batch, checked to reproduce the logits."""
        with head_input(self.model) as seen:
            logits = as_float64(run_model(self.model, batch)[:, -1]).T
        if len(seen) != 1:
            raise CheckpointError(
                f"The head of {type(self.model).__name__} must run once per text; it ran {len(seen)} times."
            )
        H = as_float64(seen[0][:, -1]).T
        self.head.require_logits(H, logits)
        return H


def load_checkpoint(folder: str | Path, *, device: str = "cpu", allow_pickle: bool = False) -> Checkpoint:
    """Load a causal language model from a local folder, in float32.

    Nothing is downloaded, code that comes with a model is never run, and weights are read only from safetensors;
    ``allow_pickle`` also reads ``pytorch_model.bin``, with a warning.
    """
    folder = Path(folder)
    content = require_model_folder(folder)
    require_packages()
    require_causal_model(folder, content)
    weights = find_weights(folder, allow_pickle)
    where = checked_device(import_torch(), device)
    model = load_model(folder, weights == "safetensors").to(where).eval()
    text = model.config.get_text_config()
    text.use_cache = False
    head = find_head(model, _caps(text))
    require_causal(model)
    tokenizer = _tokenizer(folder, head.rows)
    limit = getattr(text, "max_position_embeddings", None)
    positions = limit if isinstance(limit, int) and limit > 0 else None
    return Checkpoint(folder, head, tokenizer, _bos(folder, tokenizer, text), positions, training_step(folder), model)


def _caps(config: Any) -> list[float]:
    """Numbers that a config names as soft caps of the logits, without those of attention."""
    found = [v for k, v in config.to_dict().items() if "cap" in k and "soft" in k and "att" not in k]
    return [float(v) for v in found if isinstance(v, int | float) and v > 0]


def _tokenizer(folder: Path, rows: int) -> HuggingFaceTokenizer:
    tokenizer = load_huggingface(folder)
    if tokenizer.size > rows:
        raise TokenizerError(
            f"The tokenizer in {folder} has ids up to {tokenizer.size - 1:,} and the model only {rows:,} rows: they do "
            "not belong together. Was a token added without resizing the model?"
        )
    return tokenizer


def _bos(folder: Path, tokenizer: HuggingFaceTokenizer, config: Any) -> int | None:
    """Id of the BOS token from the tokenizer's settings, or from the model's config where the tokenizer has none."""
    settings = read_json(folder / "tokenizer_config.json")
    if "bos_token" in settings:
        token = settings["bos_token"]
        text = token.get("content") if isinstance(token, dict) else token
        return tokenizer.id_of(text) if isinstance(text, str) else None
    known = getattr(config, "bos_token_id", None)
    return known if isinstance(known, int) and 0 <= known < tokenizer.size else None


def _batches(found: Sequence[tuple[int, ...]], rows: int) -> Iterator[list[int]]:
    """Indices of contexts of one length, as many at once as fit in a batch."""
    by_length: dict[int, list[int]] = {}
    for place, tokens in enumerate(found):
        by_length.setdefault(len(tokens), []).append(place)
    for length, places in sorted(by_length.items()):
        most = max(1, min(256, _BATCH_ENTRIES // (rows * length)))
        yield from (places[k : k + most] for k in range(0, len(places), most))
