"""Concepts: the contrasts between tokens and contexts that the supports draw, the most important first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tokengeom.figures.base import LinePanel
from tokengeom.figures.concepts import concepts as concepts_figure
from tokengeom.numerics import Float
from tokengeom.page.contents import Contents
from tokengeom.page.formatting import listed
from tokengeom.page.sections.base import Reading, Section, picture

COUNT = 8
TOKENS = 7
CONTEXTS = 5
EQUAL = 1e-3
"""Relative difference of strengths below which the contrasts of two concepts can be mixed at will."""
CAPTION = (
    "Left: the importance of each concept, its singular value. Right: the order in which they are learned, as theory "
    "predicts for a square-loss surrogate from a small start: the more important, the earlier. Time is that of the "
    "surrogate, not steps of a run."
)


def section(reading: Reading) -> Section:
    """Make the section."""
    contents = reading.contents
    found = contents.concepts
    count = min(COUNT, len(found))
    energy = float((found.singular_values**2).sum())
    view = {
        "concepts": [_concept(contents, k, energy) for k in range(count)],
        "total": len(found),
        "equal": equally_strong(found.singular_values, count),
        "curves": _curves(contents, count) if count else None,
    }
    return Section("concepts", "Concepts", view)


def equally_strong(strengths: Float, count: int) -> str:
    """A sentence on shown concepts as strong as another one; empty where there are none."""
    near = np.isclose(strengths[1:], strengths[:-1], rtol=EQUAL)
    tied = [k + 1 for k in range(count) if (k and near[k - 1]) or (k < near.size and near[k])]
    if not tied:
        return ""
    which = f"Concept {tied[0]} is" if len(tied) == 1 else f"Concepts {listed(map(str, tied))} are"
    return f"{which} as strong as another one: what they span together is determined, and not how it is split up."


def _curves(contents: Contents, count: int) -> Any:
    figure = concepts_figure(contents.concepts, contents.stats, count=min(count, 6))
    panels = [panel for panel in figure.panels if isinstance(panel, LinePanel)]
    return picture(replace(figure, panels=panels, title="Importance and order of learning"), caption=CAPTION)


def _concept(contents: Contents, k: int, energy: float) -> dict[str, Any]:
    stats, concept = contents.stats, contents.concepts.concept(k, typical=max(TOKENS, CONTEXTS))
    sides = [
        {
            "tokens": [stats.vocabulary[int(z)] for z in tokens[:TOKENS]],
            "contexts": [stats.context_text(int(j)) for j in contexts[:CONTEXTS]],
        }
        for tokens, contexts in zip(concept.tokens, concept.contexts, strict=True)
    ]
    return {
        "number": k + 1,
        "importance": concept.importance,
        "share": concept.importance**2 / energy if energy > 0 else 0.0,
        "sides": sides,
    }
