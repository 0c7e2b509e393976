"""Trained causal language models from local folders in the format of Hugging Face.

A folder is checked before any weight is read: that it holds a whole, causal model with plain weights, which needs no
code of its own.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from tokengeom.core.errors import CheckpointError, InputError, TokenizerError
from tokengeom.core.settings import takes
from tokengeom.core.system import is_plain_name, require_regular
from tokengeom.corpus.huggingface_tokenizer import HuggingFaceTokenizer, load_huggingface
from tokengeom.models.language_model import ModuleModel, language_model
from tokengeom.models.networks.base import checked_device, import_torch, import_transformers

Weights = Literal["safetensors", "pickle"]

_logger = logging.getLogger(__name__)
_STEP_NAME = re.compile(r"(?:checkpoint|step)[-_]?([0-9]{1,15})")
_LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
_MANY_LAYERS = 1000
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} cannot be read as JSON: {error}. Is it truncated? Save the model again."
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must have a JSON object; it has a {type(content).__name__}.")
    return content


def require_model_folder(folder: Path) -> dict[str, Any]:
    """The content of config.json, or an error where the folder does not hold a whole model with plain weights."""
    if not folder.is_dir():
        problem = "is a file" if folder.is_file() else "does not exist"
        raise CheckpointError(
            f"A model must be a folder with config.json and model.safetensors, as save_pretrained writes it; {folder} "
            f"{problem}. Models are never downloaded: give the path of a local folder."
        )
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(
            f"{folder} holds an adapter, not a whole model. Merge it into its base model (merge_and_unload) and save "
            "the result."
        )
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            f"{folder} has no config.json, so it is not a Hugging Face model. Give the folder that save_pretrained "
            "wrote; for a model of another framework, give W and H themselves (--arrays)."
        )
    config = read_json(folder / "config.json")
    if "quantization_config" in config:
        raise CheckpointError(
            f"{folder} holds quantised weights, and W is read as plain numbers. Dequantise the model and save it again."
        )
    return config


def require_causal_model(folder: Path, config: dict[str, Any]) -> None:
    """Refuse a model that is not causal, that the installed transformers does not have, or that needs its own code."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    kind, architectures = config.get("model_type"), config.get("architectures") or []
    if not isinstance(kind, str | None) or not _are_texts(architectures):
        raise CheckpointError(
            f"{folder / 'config.json'} is damaged: model_type must be a string and architectures a list of strings. "
            "Save the model again."
        )
    known = {name for names in CAUSAL.values() for name in ([names] if isinstance(names, str) else names)}
    fits = known.intersection(architectures) if architectures else {kind}.intersection(CAUSAL)
    if fits and kind in CAUSAL:
        return
    named = ", ".join(map(str, architectures)) or f"model_type {kind!r}"
    if "auto_map" in config:
        raise CheckpointError(
            f"{folder} ({named}) needs Python code that comes with the model (auto_map in config.json), and such code "
            "is never run. Save W and H with your own script and give them as arrays (--arrays)."
        )
    if config.get("is_encoder_decoder"):
        raise CheckpointError(
            f"{folder} ({named}) is an encoder-decoder: its next token depends on two texts, so a context does not "
            "have a single h. Give a causal language model."
        )
    raise CheckpointError(
        f"{folder} ({named}) is not a causal language model that the installed transformers has: a masked model or one "
        "without a head has no next-token W. Save it with AutoModelForCausalLM, or update transformers."
    )


def find_weights(folder: Path, allow_pickle: bool) -> Weights:
    """The kind of weights to read: safetensors, or pickles where they are allowed."""
    tensors = sorted(folder.glob("*.safetensors"))
    if tensors:
        for path in tensors:
            require_regular(path)
        _require_own_shards(folder)
        return "safetensors"
    pickles = [name for name in _PICKLES if (folder / name).is_file()]
    if not pickles:
        raise CheckpointError(
            f"{folder} has a config.json and no weights: neither *.safetensors nor pytorch_model.bin. Was the download "
            "or the save interrupted?"
        )
    if not allow_pickle:
        raise CheckpointError(
            f"{folder} holds its weights as a pickle ({pickles[0]}), which can run code when it is read. Save the "
            "model again with save_pretrained (safetensors), or, if you trust its source, pass "
            "--allow-pickle."
        )
    _logger.warning("Reading the pickle %s: only do so with files whose source you trust.", folder / pickles[0])
    return "pickle"


def _require_own_shards(folder: Path) -> None:
    """Refuse an index whose shards are not files of the folder."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file() or not index.is_file():
        return
    shards = read_json(index).get("weight_map")
    names = list(shards.values()) if isinstance(shards, dict) else []
    if not names or not _are_texts(names):
        raise CheckpointError(f"{index} must name a file per weight under weight_map. Save the model again.")
    for name in sorted(set(names)):
        if not is_plain_name(name):
            raise CheckpointError(
                f"{index} names {name!r}, which is not a file of the folder. Weights are read from the folder alone: "
                "save the model again."
            )
        if not (folder / name).is_file():
            raise CheckpointError(
                f"{folder} has no {name}, which its index names. Was the download or the save interrupted?"
            )


def require_enough_weights(folder: Path, config: dict[str, Any]) -> None:
    """Refuse a config with many more layers than there are tensors in safetensors: building millions takes hours."""
    from safetensors import SafetensorError, safe_open

    tensors = 0
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, "np") as file:
                tensors += len(file.keys())
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path} cannot be read as safetensors: {error}. Was the download or the save interrupted?"
            ) from error
    inner = config.get("text_config")
    for name, value in {**config, **(inner if isinstance(inner, dict) else {})}.items():
        if name in _LAYERS and isinstance(value, int | float) and value > max(tensors, _MANY_LAYERS):
            raise CheckpointError(
                f"{folder / 'config.json'} has {name} = {value:,}, and the weights are {tensors:,} tensors: they "
                "do not belong together. Save the model again."
            )


def _are_texts(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(item, str) for item in given)


def training_step(folder: Path) -> int | None:
    """Step at which a checkpoint was saved, from trainer_state.json or from a name such as checkpoint-500."""
    state = read_json(folder / "trainer_state.json")
    if isinstance(state.get("global_step"), int):
        return int(state["global_step"])
    named = _STEP_NAME.fullmatch(folder.resolve().name)
    return None if named is None else int(named[1])


def checkpoint_folders(folder: Path) -> list[Path]:
    """The folder itself, or the ``checkpoint-*`` folders inside it in the order of their steps."""
    if not folder.is_dir() or (folder / "config.json").is_file():
        return [folder]
    inside = [path for path in folder.glob("checkpoint-*") if (path / "config.json").is_file()]
    return sorted(inside, key=lambda path: (training_step(path) or 0, path.name)) or [folder]


PRECISIONS = ("auto", "float32", "bfloat16")


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
        if isinstance(error, MemoryError):
            raise
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if not safetensors and re.search(r"weights.only|pickle", f"{type(error).__name__} {error}", re.IGNORECASE):
            # What PyTorch advises, weights_only=False, would run whatever code is in the file.
            raise CheckpointError(
                f"{folder} holds its weights as a pickle that is damaged, or that has more in it than tensors, which "
                "is not read. Save the model again with save_pretrained (safetensors)."
            ) from error
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


@takes()
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
    import_transformers("Loading a trained model")
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
    reader = language_model(model, name=folder.resolve().name)
    assert isinstance(reader, ModuleModel)
    tokenizer = _tokenizer(folder, reader.head.rows)
    return replace(reader, tokenizer=tokenizer, bos=_bos(folder, tokenizer, text), step=training_step(folder))


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
