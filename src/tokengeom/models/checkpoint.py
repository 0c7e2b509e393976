"""Trained causal language models from local folders (Hugging Face format)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokengeom.core.errors import CheckpointError, InputError, TokenizerError, missing_extra
from tokengeom.corpus.huggingface_tokenizer import HuggingFaceTokenizer, load_huggingface
from tokengeom.models.checkpoint_folder import (
    find_weights,
    read_json,
    require_causal_model,
    require_enough_weights,
    require_model_folder,
    training_step,
)
from tokengeom.models.devices import checked_device
from tokengeom.models.language_model import ModuleModel, language_model
from tokengeom.models.networks.base import import_torch

PRECISIONS = ("auto", "float32", "bfloat16")


def require_packages() -> None:
    """Refuse to start without the packages that loading needs."""
    for package in ("torch", "transformers"):
        try:
            __import__(package)
        except ModuleNotFoundError:
            missing_extra(package, "networks", "Loading a trained model")


def load_model(folder: Path, safetensors: bool, precision: str = "auto") -> Any:
    """The model with every weight from the folder, as stored or in a type of torch by name."""
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with _silent():
            model, info = AutoModelForCausalLM.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=safetensors,
                dtype="auto" if precision == "auto" else getattr(torch, precision),
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


def load_checkpoint(
    folder: str | Path, *, device: str = "cpu", allow_pickle: bool = False, precision: str = "auto"
) -> ModuleModel:
    """Load a causal language model from a local folder.

    Nothing is downloaded, and code that comes with a model is never run.

    Parameters
    ----------
    folder
        Folder of a model in the format of Hugging Face, with its tokenizer.
    device
        Device to read the model on: cpu, cuda, or one of several such as cuda:1.
    allow_pickle
        Also read weights from ``pytorch_model.bin``, a format that can run code, with a warning; by default weights are
        read from safetensors only.
    precision
        Type of weights and arithmetic: "float32", "bfloat16", or "auto" for the type that the weights are stored in
        (float16 becomes float32 on a CPU, where its range is too small for some operations).
    """
    folder = Path(folder)
    content = require_model_folder(folder)
    if precision not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}; got {precision!r}.")
    require_packages()
    require_causal_model(folder, content)
    weights = find_weights(folder, allow_pickle)
    require_enough_weights(folder, content)
    torch = import_torch()
    where = checked_device(torch, device)
    model = load_model(folder, weights == "safetensors", precision).to(where).eval()
    if precision == "auto" and where.type == "cpu" and model.dtype == torch.float16:
        model = model.float()
    text = model.config.get_text_config()
    text.use_cache = False
    found = language_model(model, name=folder.resolve().name)
    assert isinstance(found, ModuleModel)
    tokenizer = _tokenizer(folder, found.head.rows)
    return replace(found, tokenizer=tokenizer, bos=_bos(folder, tokenizer, text), step=training_step(folder))


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
        # Half of a surrogate pair, which JSON can hold, is not part of any token.
        with suppress(UnicodeEncodeError):
            return tokenizer.id_of(text) if isinstance(text, str) else None
        return None
    known = getattr(config, "bos_token_id", None)
    return known if isinstance(known, int) and 0 <= known < tokenizer.size else None
