"""Angles between contexts and tokens: what a model found compared with what is predicted."""

from __future__ import annotations

import numpy as np

from tokengeom.core.factors import Factors, HasFactors
from tokengeom.core.numerics import Bool, Float, unit_columns
from tokengeom.figures.base import Figure, Points, ScatterPanel
from tokengeom.theory.features import FeaturePrediction

MOST_PAIRS = 400
"""Pairs of each kind in the picture; of more, this many are drawn with a fixed seed."""


def context_token_angles(prediction: FeaturePrediction, run: HasFactors | tuple[Float, Float]) -> Figure:
    """Cosine of each context with each token, predicted in the limit and found, in and off the support."""
    found = Factors.of(run)
    found.require_sizes(prediction.reduction.V, prediction.reduction.m)
    x = context_token_cosines(Factors(prediction.W, prediction.H))
    y = context_token_cosines(found)
    S = np.asarray(prediction.P.toarray() > 0)
    generator = np.random.default_rng(0)
    kinds = {"tokens that may follow": S, "other tokens": ~S}
    points = [_points(label, x, y, pairs, generator) for label, pairs in kinds.items()]
    panel = ScatterPanel("Contexts and tokens", "predicted cosine (L^mm)", "cosine found", points)
    means = "; ".join(
        f"{label}: predicted {x[pairs].mean():.3f}, found {y[pairs].mean():.3f}" for label, pairs in kinds.items()
    )
    caption = (
        "One point per pair of a context and a token: the cosine between them in the limit of training, and in the "
        f"trained model (the mean over tokens removed). Mean cosines: {means}. A context is nearer to every token that "
        f"may follow it than to all others in {_ordered(x, S):.0%} of the contexts as predicted, and in "
        f"{_ordered(y, S):.0%} as found. At most {MOST_PAIRS} pairs of each kind are shown."
    )
    return Figure("context-token-angles", "Angles between contexts and tokens", caption, [panel], columns=1)


def context_token_cosines(factors: Factors) -> Float:
    """Cosine of each token with each context, V x m; the mean over tokens is removed."""
    return np.asarray(unit_columns(factors.tokens).T @ unit_columns(factors.H))


def _ordered(C: Float, S: Bool) -> float:
    """Share of contexts whose smallest cosine in the support is above the largest off it; full supports left out."""
    some = S.any(axis=0) & ~S.all(axis=0)
    lowest, highest = np.where(S, C, np.inf).min(axis=0), np.where(S, -np.inf, C).max(axis=0)
    return float(np.mean((lowest > highest)[some])) if some.any() else float("nan")


def _points(label: str, x: Float, y: Float, pairs: Bool, generator: np.random.Generator) -> Points:
    which = np.flatnonzero(pairs)
    if which.size > MOST_PAIRS:
        which = np.sort(generator.choice(which, MOST_PAIRS, replace=False))
    return Points(label, x.ravel()[which], y.ravel()[which])
