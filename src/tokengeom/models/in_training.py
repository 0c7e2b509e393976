"""A PyTorch module during its training: found inside its wrappers, and read without any effect on the training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from tokengeom.core.errors import InputError


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
    names = {one.__name__ for one in type(model).__mro__}
    if names & {"DataParallel", "DistributedDataParallel", "DeepSpeedEngine"}:
        return model.module
    return model._orig_mod if "OptimizedModule" in names else None


def _is_sharded(module: Any) -> bool:
    sharding = {"FullyShardedDataParallel", "FSDPModule"}
    if any(sharding & {one.__name__ for one in type(part).__mro__} for part in module.modules()):
        return True
    # Parameters that are DTensors have placements; DeepSpeed marks the parameters that it has taken apart.
    return any(hasattr(one, "placements") or hasattr(one, "ds_id") for one in module.parameters())


@contextmanager
def undisturbed(module: Any) -> Iterator[None]:
    """A context in which the module is evaluated in full precision, after which training goes on as if nothing was.

    Restored are the training mode of every part (some may be frozen in evaluation mode), PyTorch's random states, and
    the mixed precision that Hugging Face's Accelerate has put around ``forward``. Compiled modules run uncompiled.
    """
    import torch

    modes = [(part, part.training) for part in module.modules()]
    gpus = sorted({one.device.index for one in module.parameters() if one.device.type == "cuda"})
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
    return all(bool(one.isfinite().all()) for one in module.parameters())
