"""Reading the weights of a saved model: all of them, from this machine, onto a device that is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokengeom.errors import CheckpointError, missing_extra


def require_packages() -> None:
    """Refuse to start without what loading needs."""
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
    # A config can be wrong in every way, and the library passes on whatever that leads to.
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{folder} cannot be loaded as a causal language model: {reason} Check that config.json and the weights "
            "belong together, and that transformers is not older than the model."
        ) from error
    _require_all_weights(folder, info)
    return model


def _require_all_weights(folder: Path, info: dict[str, Any]) -> None:
    """Weights that are not in the file would be drawn at random, and the geometry would be that of noise."""
    absent = sorted(map(str, info.get("missing_keys", ())))
    other = sorted(str(key[0] if isinstance(key, tuple) else key) for key in info.get("mismatched_keys", ()))
    if absent or other:
        named = ", ".join([*absent, *other][:3]) + (", ..." if len(absent) + len(other) > 3 else "")
        raise CheckpointError(
            f"{folder} must hold every weight of its model; {len(absent)} are missing and {len(other)} have another "
            f"shape: {named}. They would be random numbers. Likely a model saved without its head, or half a save: "
            "save it again with AutoModelForCausalLM."
        )


@contextmanager
def _silent() -> Iterator[None]:
    """No bars and no chatter of transformers while it loads: this library has its own way to show progress."""
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
