"""The head of a causal language model: W, bias and what the model applies to their output; found in any PyTorch module.

::

    logits = c (W_0 h + b_0) + a        or        logits = cap tanh((W_0 h + b_0) / cap)

where
    W_0, b_0   weight and bias of the head, which ``get_output_embeddings`` names in Hugging Face models
    c          a constant scale of some model families (Granite divides, Cohere multiplies)
    a          a bias added after the head, V
    cap        soft cap of some model families (Gemma 2, xLSTM)

The names of these constants in a config differ between families. Therefore the head's output is replaced by known
numbers once, and the resulting logits show c, a and cap whatever they are called; a map of any other form is refused.
Then ``W = c W_0`` and ``bias = c b_0 + a``; with a cap, W h + bias is what goes into the cap.

Arithmetic with unit roundoff u (2^-24 in float32, 2^-8 in bfloat16) rounds a logit up to `ROUNDINGS` times, so

``|W h + bias - logit| <= 4 u |logit|``   and   ``||W H + bias - logits||_F <= 4 u ||logits||_F``

where h is exact: it is read as it goes into the head. Errors of rounding are independent, so half of the second bound
is required: it detects a norm gain that is off by 1% in bfloat16. Float32 has `_TOLERANCE` for both, far above 4 u.

A module that is being trained is found inside its wrappers (`unwrapped`), and read without any effect on the training
(`undisturbed`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np

from tokengeom.core.errors import CheckpointError, InputError, ResourceError
from tokengeom.core.numerics import Float, Int
from tokengeom.models.networks.base import threads_for

_LARGEST = 40.0
"""Largest of the known numbers: large enough to see a cap, which is usually 15 to 50."""
_KNOWN_TOLERANCE = 1e-5
"""Relative tolerance of known numbers: float32 rounds at 6e-8, and a scale or a tanh adds a few roundings."""
_TOLERANCE = 1e-4
"""Relative tolerance of logits in float32, whose sums of d products may be added up in any order."""
ROUNDINGS = 4
"""Roundings of a logit after the head's sum: the sum itself, scale, bias and cap."""


@dataclass(frozen=True)
class Head:
    """W and bias with all constants folded in, and the soft cap applied after them.

    where
        W         one row per token, V x d; in float32 where the model has no more digits than that
        bias      V, or None
        scale     the constant c that is folded into W and bias
        cap       soft cap applied to ``W h + bias``, or None
        tied      whether W is also the matrix of input embeddings
        roundoff  unit roundoff u of the model's arithmetic
    """

    W: Float
    bias: Float | None
    scale: float
    cap: float | None
    tied: bool
    roundoff: float = 2.0**-24

    @property
    def rows(self) -> int:
        """Number of rows of W, including those that belong to no token."""
        return int(self.W.shape[0])

    @property
    def tolerance(self) -> float:
        """Largest relative difference between ``W h + bias`` and a logit of the model."""
        return max(_TOLERANCE, ROUNDINGS * self.roundoff)

    def capped(self, L: Float) -> Float:
        """The logits that the model's softmax sees, from ``W h + bias``."""
        return L if self.cap is None else np.asarray(self.cap * np.tanh(L / self.cap))

    def require_logits(self, H: Float, logits: Float, name: str = "the model", rows: Int | None = None) -> None:
        """Refuse hidden states H (d x m) that do not reproduce the model's own logits (V x m).

        ``name``  How the error calls the model.
        ``rows``  Tokens whose logits were given; None for all.
        """
        if not (np.isfinite(H).all() and np.isfinite(logits).all()):
            raise CheckpointError(
                f"Hidden states and logits of {name} must be finite, and some are not. Likely the weights are broken, "
                "or numbers overflow: load the model elsewhere and look at its logits."
            )
        W, bias = (
            (self.W, self.bias) if rows is None else (self.W[rows], None if self.bias is None else self.bias[rows])
        )
        computed = self.capped(W @ H if bias is None else W @ H + bias[:, None])
        difference = computed - logits
        largest, size = float(np.max(np.abs(difference), initial=0.0)), float(np.max(np.abs(logits), initial=0.0))
        typical = float(np.linalg.norm(difference)) / max(float(np.linalg.norm(logits)), np.sqrt(logits.size))
        # Not <=: a comparison with NaN is False, and then nothing was proven.
        if not (largest <= self.tolerance * max(1.0, size) and typical <= max(_TOLERANCE, self.tolerance / 2)):
            raise CheckpointError(
                f"W h (+ bias) must equal the logits of {name}; the largest difference is {largest:.3g} at a scale of "
                f"{size:.3g}. Likely causes: a final norm whose gain was not folded, a bias, or a padded vocabulary. "
                "Give W and H as arrays (--arrays)."
            )


def find_head(module: Any, head: Any, caps: list[float]) -> Head:
    """The head of a module.

    ``head``  The layer that makes the logits.
    ``caps``  Soft caps that the module's config names.
    """
    weight, name = getattr(head, "weight", None), type(module).__name__
    if weight is None or weight.ndim != 2:
        raise CheckpointError(
            f"{name} has no head with a weight matrix (got {type(head).__name__}), so there is no W to read. Give a "
            "causal language model with a linear head."
        )
    given, made, zero, tolerance = _logits_of_known_outputs(module, head)
    scale, cap = _scale_and_cap(given, made, zero, caps, name, tolerance)
    own = getattr(head, "bias", None)
    bias = zero if own is None else zero + scale * as_float64(own)
    others = (part for part in module.modules() if part is not head)
    tied = any(getattr(part, "weight", None) is weight for part in others)
    # A copy: training may go on after this.
    W = np.array(as_array(weight))
    if scale != 1:
        W *= W.dtype.type(scale)
    return Head(W, bias if own is not None or zero.any() else None, scale, cap, tied, unit_roundoff(weight.dtype))


def find_head_layer(module: Any) -> Any:
    """The one linear layer of a PyTorch module that is called last and has one output per logit."""
    import torch

    called: list[Any] = []
    handles = [
        layer.register_forward_hook(lambda layer, _, __: called.append(layer))
        for layer in module.modules()
        if isinstance(layer, torch.nn.Linear)
    ]
    try:
        logits = last_logits(module, [(0, 0)])
    finally:
        for handle in handles:
            handle.remove()
    fitting = [layer for layer in called if layer.weight.shape[0] == logits.shape[-1]]
    if not fitting:
        raise CheckpointError(
            f"No linear layer of {type(module).__name__} has {logits.shape[-1]:,} outputs, one per logit. Name the "
            "head: head=module.NAME; or give a function that returns hidden states, and head=W."
        )
    return fitting[-1]


def unit_roundoff(dtype: Any) -> float:
    """Largest relative error of rounding to a floating-point type of torch."""
    import torch

    return float(torch.finfo(dtype).eps) / 2 if dtype.is_floating_point else 0.0


def as_array(tensor: Any) -> Float:
    """A tensor on any device as an array with the same numbers: in float64 if the tensor is, else in float32."""
    import torch

    plain = tensor.detach().cpu()
    return np.asarray((plain if plain.dtype == torch.float64 else plain.float()).numpy())


def as_float64(tensor: Any) -> Float:
    """A tensor on any device as a float64 array; converted on the CPU, since not every device has float64."""
    return np.asarray(tensor.detach().cpu().double().numpy())


def all_logits(module: Any, batch: Sequence[tuple[int, ...]], **how: Any) -> Any:
    """What a module makes of texts of one length, batch x length x V or batch x V, without gradients."""
    import torch

    parameters = list(module.parameters())
    device = parameters[0].device if parameters else torch.device("cpu")
    work = float(sum(parameter.numel() for parameter in parameters)) * len(batch) * len(batch[0])
    was_training = bool(module.training)
    module.eval()
    try:
        with torch.no_grad(), threads_for(torch, work):
            output = module(torch.tensor(batch, dtype=torch.long, device=device), **how)
    except torch.OutOfMemoryError as error:
        raise ResourceError(
            f"{type(module).__name__} does not fit on the device '{device}'. Use --device cpu."
        ) from error
    # A model that cannot read a text may raise anything.
    except Exception as error:
        raise CheckpointError(
            f"{type(module).__name__} cannot read a text of {len(batch[0])} tokens: {type(error).__name__}: {error} "
            "Check that config.json is the one that the model was trained with, and that transformers is new enough."
        ) from error
    finally:
        module.train(was_training)
    logits: Any = getattr(output, "logits", output[0] if isinstance(output, tuple) else output)
    if getattr(logits, "ndim", 0) not in (2, 3) or logits.shape[0] != len(batch):
        raise CheckpointError(
            f"{type(module).__name__} must make logits, batch x V or batch x length x V, of token ids, batch x length; "
            f"it made {tuple(getattr(logits, 'shape', ())) or type(logits).__name__} of {len(batch)} x {len(batch[0])}."
        )
    return logits


def keeps_last(module: Any) -> bool:
    """Whether a module can apply its head to the last position alone, so that logits take no memory elsewhere."""
    return bool(_last_only(type(module)))


def last_logits(module: Any, batch: Sequence[tuple[int, ...]]) -> Any:
    """Logits of the token after each text of one length, batch x V."""
    return last_position(all_logits(module, batch, **_last_only(type(module))))


def last_position(values: Any) -> Any:
    """The last position of batch x length x n; batch x n as it is."""
    return values if values.ndim == 2 else values[:, -1]


def _last_only(kind: Any) -> dict[str, int]:
    """Arguments that let a Hugging Face model apply its head to the last position alone, where it can."""
    return {"logits_to_keep": 1} if "logits_to_keep" in signature(kind.forward).parameters else {}


def require_causal(module: Any) -> None:
    """Refuse a model whose logits at one position depend on later tokens."""
    first, second = (all_logits(module, [text]) for text in ((0, 0), (0, 1)))
    if first.ndim == 2:
        return
    tolerance = max(_TOLERANCE, 2 * ROUNDINGS * unit_roundoff(first.dtype))
    first, second = as_float64(first[0, 0]), as_float64(second[0, 0])
    if np.max(np.abs(first - second)) > tolerance * max(1.0, float(np.max(np.abs(first)))):
        raise CheckpointError(
            f"The logits of {type(module).__name__} depend on later tokens, so it is not a model of the next token: "
            "likely a masked language model, or is_decoder is not set in config.json. Give a causal language model."
        )


@contextmanager
def head_input(head: Any) -> Iterator[list[Any]]:
    """A list that collects what goes into the head while the model runs."""
    seen: list[Any] = []
    handle = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        yield seen
    finally:
        handle.remove()


def _logits_of_known_outputs(module: Any, head: Any) -> tuple[Float, Float, Float, float]:
    """Known numbers in place of the head's output, the logits made of them (both V x 2), and those of zeros (V).

    The last number is the relative tolerance that the type of the logits needs.
    """
    import torch

    rows = int(head.weight.shape[0])
    rng = np.random.default_rng(0)
    given = rng.uniform(-_LARGEST, _LARGEST, size=(rows, 2))
    made, tolerance = [], _KNOWN_TOLERANCE
    for column in (given[:, 0], given[:, 1], np.zeros(rows)):
        known = torch.as_tensor(column, dtype=torch.float32, device=head.weight.device)
        called: list[bool] = []

        def replace(_: Any, __: Any, output: Any, known: Any = known, called: list[bool] = called) -> Any:
            called.append(True)
            return known.expand_as(output).clone()

        handle = head.register_forward_hook(replace)
        try:
            logits = last_logits(module, [(0, 0)])
        finally:
            handle.remove()
        if len(called) != 1 or logits.shape[-1] != rows:
            raise CheckpointError(
                f"{type(module).__name__} does not compute its logits by calling its head once ({rows:,} rows of W, "
                f"{logits.shape[-1]:,} logits), so W and h cannot be separated. Give W and H as arrays (--arrays)."
            )
        made.append(as_float64(logits[0]))
        tolerance = max(tolerance, ROUNDINGS * unit_roundoff(logits.dtype))
    return given.astype(np.float32).astype(np.float64), np.stack(made[:2], axis=1), np.asarray(made[2]), tolerance


def _scale_and_cap(
    given: Float, made: Float, zero: Float, caps: list[float], name: str, tolerance: float
) -> tuple[float, float | None]:
    """Scale and soft cap that are applied after the head."""
    shifted = made - zero[:, None]
    with np.errstate(invalid="ignore"):
        scale = float(np.vdot(given, shifted) / np.vdot(given, given))
        if scale > 0 and np.max(np.abs(scale * given - shifted)) <= tolerance * _LARGEST * scale:
            # An estimate of 1 is off by rounding in float32; without a scale, W is the model's own to the last bit.
            return (1.0 if abs(scale - 1) < tolerance else scale), None
        for cap in caps:
            if np.max(np.abs(cap * np.tanh(given / cap) - made)) <= tolerance * _LARGEST:
                return 1.0, cap
    raise CheckpointError(
        f"The output of the head of {name} must be scaled by a constant, or soft-capped by a number in the config; "
        "this model does something else with it, so its logits are not W h + bias. Give W and H as arrays (--arrays)."
    )


def unwrapped(model: Any) -> Any:
    """The module inside DataParallel, DistributedDataParallel, a DeepSpeed engine or torch.compile.

    A module whose parameters are sharded over processes is refused: no process has all of W.
    """
    while (inner := _inner(model)) is not None:
        model = inner
    if _is_sharded(model):
        raise InputError(
            f"All parameters of a model must be in one process to be read; those of {type(model).__name__} are sharded "
            "over several (FSDP, tensor parallelism or ZeRO stage 3). Compare the checkpoints that training saves "
            "instead: tokengeom compare --model CHECKPOINT."
        )
    return model


def _inner(model: Any) -> Any:
    names = {kind.__name__ for kind in type(model).__mro__}
    if names & {"DataParallel", "DistributedDataParallel", "DeepSpeedEngine"}:
        return model.module
    return model._orig_mod if "OptimizedModule" in names else None


def _is_sharded(module: Any) -> bool:
    sharding = {"FullyShardedDataParallel", "FSDPModule"}
    if any(sharding & {kind.__name__ for kind in type(part).__mro__} for part in module.modules()):
        return True
    # Parameters that are DTensors have placements; DeepSpeed marks the parameters that it has taken apart.
    return any(hasattr(each, "placements") or hasattr(each, "ds_id") for each in module.parameters())


@contextmanager
def undisturbed(module: Any) -> Iterator[None]:
    """A context in which the module is evaluated in full precision, after which training goes on as if nothing was.

    Restored are the training mode of every part (some may be frozen in evaluation mode), PyTorch's random states, and
    the mixed precision that Hugging Face's Accelerate has put around ``forward``. Compiled modules run uncompiled.
    """
    import torch

    modes = [(part, part.training) for part in module.modules()]
    gpus = sorted({each.device.index for each in module.parameters() if each.device.type == "cuda"})
    mixed, plain = (module.__dict__.get(name) for name in ("forward", "_original_forward"))
    with torch.random.fork_rng(devices=gpus), _uncompiled(module):
        module.eval()
        if mixed is not None and plain is not None:
            module.forward = plain
        try:
            yield
        finally:
            if mixed is not None and plain is not None:
                module.forward = mixed
            for part, training in modes:
                part.training = training


def _uncompiled(module: Any) -> AbstractContextManager[object]:
    """A context in which modules that were compiled in place run as they were written."""
    if all(getattr(part, "_compiled_call_impl", None) is None for part in module.modules()):
        return nullcontext()
    import torch

    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance


def is_finite(module: Any) -> bool:
    """Whether all parameters are finite; they are not after a training that diverged."""
    return all(bool(parameter.isfinite().all()) for parameter in module.parameters())
