"""The head of a causal language model: how its logits come from W and h, found by feeding it known numbers.

::

    logits = c (W_0 h + b_0) + a        or        logits = cap tanh((W_0 h + b_0) / cap)

where
    W_0, b_0   weight and bias of the module that ``get_output_embeddings`` names
    c          a constant scale that some families apply (Granite divides, Cohere multiplies)
    a          a bias added behind the head, V
    cap        soft cap of some families (Gemma 2, xLSTM)

Names in a config differ from family to family. So the head's output is replaced by known numbers, once, and what the
model makes of them shows c, a and cap whatever they are called; a map of any other form is refused. ``W = c W_0`` and
``bias = c b_0 + a``; under a cap, W h + bias is what goes into the cap.
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
"""Known numbers reach this far, so that a cap, usually 15 to 50, is seen."""
_TOLERANCE = 1e-5
"""Relative: float32 rounds at 6e-8, and a scale or a tanh adds a few roundings."""


@dataclass(frozen=True)
class Head:
    """W and bias with all constants folded in, and the soft cap behind them.

    where
        W      one row a token, V x d
        bias   V, or None
        scale  the constant c that is folded into W and bias
        cap    soft cap, or None: what comes behind ``W h + bias``
        tied   whether W is also the matrix of input embeddings
    """

    W: Float
    bias: Float | None
    scale: float
    cap: float | None
    tied: bool

    @property
    def rows(self) -> int:
        """Number of rows of W, those that belong to no token included."""
        return int(self.W.shape[0])

    def capped(self, L: Float) -> Float:
        """The logits that the model's softmax sees, from ``W h + bias``."""
        return L if self.cap is None else np.asarray(self.cap * np.tanh(L / self.cap))

    def prove(self, H: Float, logits: Float) -> None:
        """Refuse unless W and H (d x m) give the model's own logits (V x m)."""
        if not (np.isfinite(H).all() and np.isfinite(logits).all()):
            raise CheckpointError(
                "The model must give finite numbers; some of its hidden states or logits are not. Likely broken "
                "weights, or weights that overflow: load the model elsewhere and look at its logits."
            )
        require_equal_logits(self.capped(Factors(self.W, H, self.bias).logits), logits)


def find_head(model: Any, caps: list[float]) -> Head:
    """Take W and bias of a loaded model; ``caps`` are the soft caps that its config names."""
    module = model.get_output_embeddings()
    weight = getattr(module, "weight", None)
    if weight is None or weight.ndim != 2:
        raise CheckpointError(
            f"{type(model).__name__} names no head with a weight matrix (get_output_embeddings gives "
            f"{type(module).__name__}): there is no W to take. Give a causal language model with a linear head."
        )
    given, made, zero = _feed(model, module)
    scale, cap = _recognise(given, made, zero, caps, type(model).__name__)
    own = getattr(module, "bias", None)
    bias = zero if own is None else zero + scale * as_float64(own)
    tied = getattr(model.get_input_embeddings(), "weight", None) is weight
    return Head(scale * as_float64(weight), bias if own is not None or zero.any() else None, scale, cap, tied)


def as_float64(tensor: Any) -> Float:
    """A tensor of any device as an array; widened here, since not every device knows float64."""
    return np.asarray(tensor.detach().cpu().numpy(), dtype=np.float64)


def run_model(model: Any, batch: Sequence[tuple[int, ...]]) -> Any:
    """Logits of texts of one length, batch x length x V, without gradients."""
    import torch

    try:
        with torch.inference_mode():
            return model(input_ids=torch.tensor(batch, dtype=torch.long, device=model.device)).logits
    except torch.OutOfMemoryError as error:
        raise ResourceError(f"The model does not fit on the device '{model.device}'. Use --device cpu.") from error
    # What a model of any family raises on a text that it cannot read is not ours to know.
    except Exception as error:
        raise CheckpointError(
            f"{type(model).__name__} cannot read a text of {len(batch[0])} tokens: {type(error).__name__}: {error} "
            "Check that config.json is the one that the model was trained with, and that transformers is new enough."
        ) from error


def require_causal(model: Any) -> None:
    """Refuse a model whose answer at one place depends on what comes behind it: it has not learned to predict that."""
    first, second = (as_float64(run_model(model, [text])[0, 0]) for text in ((0, 0), (0, 1)))
    if np.max(np.abs(first - second)) > 1e-4 * max(1.0, float(np.max(np.abs(first)))):
        raise CheckpointError(
            f"{type(model).__name__} looks at tokens behind the one that it predicts, so that it is no model of the "
            "next token: likely a masked language model (or is_decoder is not set in config.json). Give a causal one."
        )


@contextmanager
def head_input(model: Any) -> Iterator[list[Any]]:
    """Collect what goes into the head while the model runs."""
    seen: list[Any] = []
    handle = model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        yield seen
    finally:
        handle.remove()


def _feed(model: Any, module: Any) -> tuple[Float, Float, Float]:
    """Known numbers in place of the head's output, what the model makes of them (both V x 2), and of zeros (V)."""
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
                f"{type(model).__name__} does not make its logits by calling its head once ({rows:,} rows of W, "
                f"{logits.shape[-1]:,} logits): W and h cannot be taken apart. Give W and H as arrays (--arrays)."
            )
        made.append(as_float64(logits[0, -1]))
    return given.astype(np.float32).astype(np.float64), np.stack(made[:2], axis=1), np.asarray(made[2])


def _recognise(given: Float, made: Float, zero: Float, caps: list[float], name: str) -> tuple[float, float | None]:
    """Scale and cap behind the head."""
    shifted = made - zero[:, None]
    with np.errstate(invalid="ignore"):
        scale = float(np.vdot(given, shifted) / np.vdot(given, given))
        if scale > 0 and np.max(np.abs(scale * given - shifted)) <= _TOLERANCE * _LARGEST * scale:
            # The estimate of 1 is off by float32's roundings; without a scale W is the model's own to the last bit.
            return (1.0 if abs(scale - 1) < _TOLERANCE else scale), None
        for cap in caps:
            if np.max(np.abs(cap * np.tanh(given / cap) - made)) <= _TOLERANCE * _LARGEST:
                return 1.0, cap
    raise CheckpointError(
        f"Behind the head of {name} the logits must be scaled by a constant, or soft-capped by a number in the config; "
        "what this model does to them is neither, so that no W and h give its logits. Give W and H as arrays "
        "(--arrays)."
    )
