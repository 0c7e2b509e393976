"""The head of a causal language model: W, bias and what the model applies to their output.

::

    logits = c (W_0 h + b_0) + a        or        logits = cap tanh((W_0 h + b_0) / cap)

where
    W_0, b_0   weight and bias of the module that ``get_output_embeddings`` names
    c          a constant scale of some model families (Granite divides, Cohere multiplies)
    a          a bias added after the head, V
    cap        soft cap of some model families (Gemma 2, xLSTM)

The names of these constants in a config differ between families. Therefore the head's output is replaced by known
numbers once, and the resulting logits show c, a and cap whatever they are called; a map of any other form is refused.
Then ``W = c W_0`` and ``bias = c b_0 + a``; with a cap, W h + bias is what goes into the cap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokengeom.errors import CheckpointError, ResourceError
from tokengeom.factors import Factors, require_equal_logits
from tokengeom.numerics import Float

_LARGEST = 40.0
"""Largest of the known numbers: large enough to see a cap, which is usually 15 to 50."""
_TOLERANCE = 1e-5
"""Relative tolerance: float32 rounds at 6e-8, and a scale or a tanh adds a few roundings."""


@dataclass(frozen=True)
class Head:
    """W and bias with all constants folded in, and the soft cap applied after them.

    where
        W      one row per token, V x d
        bias   V, or None
        scale  the constant c that is folded into W and bias
        cap    soft cap applied to ``W h + bias``, or None
        tied   whether W is also the matrix of input embeddings
    """

    W: Float
    bias: Float | None
    scale: float
    cap: float | None
    tied: bool

    @property
    def rows(self) -> int:
        """Number of rows of W, including those that belong to no token."""
        return int(self.W.shape[0])

    def capped(self, L: Float) -> Float:
        """The logits that the model's softmax sees, from ``W h + bias``."""
        return L if self.cap is None else np.asarray(self.cap * np.tanh(L / self.cap))

    def require_logits(self, H: Float, logits: Float) -> None:
        """Refuse hidden states H (d x m) that do not reproduce the model's own logits (V x m)."""
        if not (np.isfinite(H).all() and np.isfinite(logits).all()):
            raise CheckpointError(
                "Hidden states and logits of the model must be finite, and some are not. Likely the weights are broken "
                "or overflow in float32: load the model elsewhere and look at its logits."
            )
        require_equal_logits(self.capped(Factors(self.W, H, self.bias).logits), logits)


def find_head(model: Any, caps: list[float]) -> Head:
    """The head of a loaded model; ``caps`` are the soft caps that its config names."""
    module = model.get_output_embeddings()
    weight = getattr(module, "weight", None)
    if weight is None or weight.ndim != 2:
        raise CheckpointError(
            f"{type(model).__name__} has no head with a weight matrix (get_output_embeddings returns "
            f"{type(module).__name__}), so there is no W to read. Give a causal language model with a linear head."
        )
    given, made, zero = _logits_of_known_outputs(model, module)
    scale, cap = _scale_and_cap(given, made, zero, caps, type(model).__name__)
    own = getattr(module, "bias", None)
    bias = zero if own is None else zero + scale * as_float64(own)
    tied = getattr(model.get_input_embeddings(), "weight", None) is weight
    return Head(scale * as_float64(weight), bias if own is not None or zero.any() else None, scale, cap, tied)


def as_float64(tensor: Any) -> Float:
    """A tensor on any device as a float64 array; converted on the CPU, since not every device has float64."""
    return np.asarray(tensor.detach().cpu().numpy(), dtype=np.float64)


def run_model(model: Any, batch: Sequence[tuple[int, ...]]) -> Any:
    """Logits of texts of one length, batch x length x V, without gradients."""
    import torch

    try:
        with torch.inference_mode():
            return model(input_ids=torch.tensor(batch, dtype=torch.long, device=model.device)).logits
    except torch.OutOfMemoryError as error:
        raise ResourceError(f"The model does not fit on the device '{model.device}'. Use --device cpu.") from error
    # A model that cannot read a text may raise anything.
    except Exception as error:
        raise CheckpointError(
            f"{type(model).__name__} cannot read a text of {len(batch[0])} tokens: {type(error).__name__}: {error} "
            "Check that config.json is the one that the model was trained with, and that transformers is new enough."
        ) from error


def require_causal(model: Any) -> None:
    """Refuse a model whose logits at one position depend on later tokens."""
    first, second = (as_float64(run_model(model, [text])[0, 0]) for text in ((0, 0), (0, 1)))
    if np.max(np.abs(first - second)) > 1e-4 * max(1.0, float(np.max(np.abs(first)))):
        raise CheckpointError(
            f"The logits of {type(model).__name__} depend on later tokens, so it is not a model of the next token: "
            "likely a masked language model, or is_decoder is not set in config.json. Give a causal language model."
        )


@contextmanager
def head_input(model: Any) -> Iterator[list[Any]]:
    """A list that collects what goes into the head while the model runs."""
    seen: list[Any] = []
    handle = model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        yield seen
    finally:
        handle.remove()


def _logits_of_known_outputs(model: Any, module: Any) -> tuple[Float, Float, Float]:
    """Known numbers in place of the head's output, the logits made of them (both V x 2), and those of zeros (V)."""
    import torch

    rows = int(module.weight.shape[0])
    rng = np.random.default_rng(0)
    given = rng.uniform(-_LARGEST, _LARGEST, size=(rows, 2))
    made = []
    for column in (given[:, 0], given[:, 1], np.zeros(rows)):
        known = torch.as_tensor(column, dtype=torch.float32, device=module.weight.device)
        called: list[bool] = []

        def replace(_: Any, __: Any, output: Any, known: Any = known, called: list[bool] = called) -> Any:
            called.append(True)
            return known.expand_as(output).clone()

        handle = module.register_forward_hook(replace)
        try:
            logits = run_model(model, [(0, 0)])
        finally:
            handle.remove()
        if len(called) != 1 or logits.shape[-1] != rows:
            raise CheckpointError(
                f"{type(model).__name__} does not compute its logits by calling its head once ({rows:,} rows of W, "
                f"{logits.shape[-1]:,} logits), so W and h cannot be separated. Give W and H as arrays (--arrays)."
            )
        made.append(as_float64(logits[0, -1]))
    return given.astype(np.float32).astype(np.float64), np.stack(made[:2], axis=1), np.asarray(made[2])


def _scale_and_cap(given: Float, made: Float, zero: Float, caps: list[float], name: str) -> tuple[float, float | None]:
    """Scale and soft cap that are applied after the head."""
    shifted = made - zero[:, None]
    with np.errstate(invalid="ignore"):
        scale = float(np.vdot(given, shifted) / np.vdot(given, given))
        if scale > 0 and np.max(np.abs(scale * given - shifted)) <= _TOLERANCE * _LARGEST * scale:
            # An estimate of 1 is off by rounding in float32; without a scale, W is the model's own to the last bit.
            return (1.0 if abs(scale - 1) < _TOLERANCE else scale), None
        for cap in caps:
            if np.max(np.abs(cap * np.tanh(given / cap) - made)) <= _TOLERANCE * _LARGEST:
                return 1.0, cap
    raise CheckpointError(
        f"The output of the head of {name} must be scaled by a constant, or soft-capped by a number in the config; "
        "this model does something else with it, so its logits are not W h + bias. Give W and H as arrays (--arrays)."
    )
