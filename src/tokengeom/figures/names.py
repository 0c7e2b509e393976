"""Names of contexts and tokens, from statistics where there are any."""

from __future__ import annotations

from typing import Any


def context_names(stats: Any, m: int) -> list[str]:
    """What a person calls each context: its text, or its number where there is none."""
    if stats is not None and hasattr(stats, "context_text"):
        return [str(stats.context_text(j)) for j in range(m)]
    given = getattr(stats, "context_names", None)
    return [str(name) for name in given] if given is not None else [f"context {j}" for j in range(m)]


def token_names(stats: Any, V: int) -> list[str]:
    """What a person calls each token: its text, or its number where there is none."""
    given = getattr(stats, "vocabulary", None)
    given = getattr(stats, "token_names", None) if given is None else given
    return [str(name) for name in given] if given is not None else [f"token {z}" for z in range(V)]
