"""Concepts: typical tokens and contexts, importance, and the order in which they are learned [zhao2025]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float, Int
from tokengeom.figures.base import Curve, Figure, HeatmapPanel, LinePanel, Panel
from tokengeom.figures.ordering import names_of
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.concepts import Concepts


@dataclass(frozen=True, eq=False)
class LearnedConcepts:
    """Measured strength of concepts during training: ``strength`` is concepts x steps, e.g. ``u_k^T L v_k``."""

    steps: Float
    strength: Float


def concepts(
    vectors: Concepts,
    stats: NextTokenStatistics | None = None,
    *,
    count: int = 6,
    typical: int = 5,
    learned: LearnedConcepts | None = None,
) -> Figure:
    """Typical tokens and contexts of the leading concepts, their importance, and predicted (or measured) learning."""
    k = min(count, len(vectors))
    if k < 1:
        raise InputError(
            f"A figure of concepts needs at least one; {count} were requested and the matrix has {len(vectors)}. "
            "Likely every support is the whole vocabulary, so that there is no geometry."
        )
    titles = [f"concept {i + 1}" for i in range(k)]
    tokens = _most_typical(vectors.U[:, :k], typical)
    contexts = _most_typical(vectors.Vt[:k].T, typical)
    names = names_of(stats, "tokens", vectors.U.shape[0])
    texts, s = names_of(stats, "contexts", vectors.Vt.shape[1]), vectors.singular_values
    panels: list[Panel] = [
        _heat("Typical tokens", vectors.U[tokens, :k], titles, [names[int(z)] for z in tokens], "tokens"),
        _heat("Typical contexts", vectors.Vt[:k].T[contexts], titles, [texts[int(j)] for j in contexts], "contexts"),
        LinePanel(
            "Importance of each concept", "concept", "singular value", [Curve("", np.arange(1.0, s.size + 1.0), s)]
        ),
        _learning(vectors, titles, learned),
    ]
    typical_tokens = [vectors.concept(i, typical=3).token_texts(names) for i in range(k)]
    sides = "; ".join(f"{i}: {', '.join(red)} | {', '.join(blue)}" for i, (red, blue) in enumerate(typical_tokens, 1))
    measured = "predicted by the square-loss surrogate" if learned is None else "measured during training"
    caption = (
        "Concepts are the singular vectors of the geometry: each contrasts two sides (red and blue) of tokens and of "
        "contexts, and a stronger colour is more typical. A larger singular value means a more important concept, "
        f"which is predicted to be learned earlier. Lower right: order of learning, {measured}. Most typical tokens, "
        f"red | blue: {sides}."
    )
    return Figure("concepts", "Concepts in the support geometry", caption, panels, columns=2)


def _most_typical(columns: Float, typical: int) -> Int:
    """Rows that are among the most typical of either side of some column: by column, from positive to negative."""
    chosen: list[int] = []
    for column in columns.T:
        order = np.argsort(-column, kind="stable")
        positive = [int(i) for i in order[:typical] if column[i] > 0]
        negative = [int(i) for i in order[::-1][:typical][::-1] if column[i] < 0]
        chosen += [i for i in (*positive, *negative) if i not in chosen]
    return np.asarray(chosen, dtype=np.int64)


def _heat(title: str, values: Float, across: list[str], down: list[str], label: str) -> HeatmapPanel:
    return HeatmapPanel(title, values, "concepts, most important first", label, across, down, colour_label="typicality")


def _learning(vectors: Concepts, names: list[str], learned: LearnedConcepts | None) -> LinePanel:
    k = len(names)
    if learned is not None:
        rows = learned.strength[:k]
        largest = np.abs(rows).max(axis=1, initial=0.0)
        curves = [
            Curve(n, learned.steps, row / (top or 1.0)) for n, row, top in zip(names, rows, largest, strict=False)
        ]
        return LinePanel("Order of learning, measured", "step", "share of its largest value", curves, "log")
    times = np.linspace(0.0, 2.0 * float(vectors.half_times()[:k].max(initial=0.5)), 120)
    shares = vectors.learning_curve(times)[:k] / vectors.singular_values[:k, None]
    curves = [Curve(n, times, row, dashed=True) for n, row in zip(names, shares, strict=True)]
    return LinePanel("Order of learning, predicted", "time of the surrogate model", "share learned", curves)
