"""Architectures, one file each. A new file with a final subclass of ``AbstractArchitecture`` is found by its name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from tokengeom.errors import ProblemError
from tokengeom.models.networks.base import AbstractArchitecture, NetworkShape

__all__ = ["AbstractArchitecture", "NetworkShape", "architecture_named", "discover"]


def discover() -> dict[str, AbstractArchitecture]:
    """Every architecture in this room, by name."""
    found: dict[str, AbstractArchitecture] = {}
    for module in pkgutil.iter_modules(__path__):
        members = vars(importlib.import_module(f"{__name__}.{module.name}"))
        for member in members.values():
            if inspect.isclass(member) and issubclass(member, AbstractArchitecture) and "name" in vars(member):
                found[member.name] = member()
    return dict(sorted(found.items()))


def architecture_named(name: str) -> AbstractArchitecture:
    """Return the architecture of that name."""
    known = discover()
    if name not in known:
        raise ProblemError(f"a network must be one of {', '.join(known)}; got {name!r}.")
    return known[name]
