"""Optimizers, one file each. A new file with a final subclass of ``AbstractOptimizer`` is found by its name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from tokengeom.errors import ProblemError
from tokengeom.training.optimizers.base import AbstractOptimizer

__all__ = ["AbstractOptimizer", "discover", "optimizer_named"]


def discover() -> dict[str, type[AbstractOptimizer]]:
    """Every optimizer in this room, by name."""
    found: dict[str, type[AbstractOptimizer]] = {}
    for module in pkgutil.iter_modules(__path__):
        members = vars(importlib.import_module(f"{__name__}.{module.name}"))
        for member in members.values():
            if inspect.isclass(member) and issubclass(member, AbstractOptimizer) and "name" in vars(member):
                found[member.name] = member
    return dict(sorted(found.items()))


def optimizer_named(given: str | AbstractOptimizer) -> AbstractOptimizer:
    """Return the settings as they are, or the default settings of the optimizer of that name."""
    if isinstance(given, AbstractOptimizer):
        return given
    known = discover()
    if given not in known:
        raise ProblemError(f"optimizer must be one of {', '.join(known)}, or settings of one; got {given!r}.")
    return known[given]()
