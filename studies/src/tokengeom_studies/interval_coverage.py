"""Coverage of the intervals of the corrected agreement, and which weighting of contexts is robust.

Geometries are drawn whose truth is known. Groups have random unit vectors p (the prediction) and u (what all trainings
share beside it), and every context of every training has a random unit vector n of its own:

``x_ij = a <p_i, p_j> + b <u_i, u_j> + c <n_i, n_j>``

are a training's cosines up to a factor. Cosines of random unit vectors in d dimensions have variance 1/d, so that a, b
and c follow from the share of the reproducible geometry that p explains and from the correlation rho of two trainings.
With "popular" directions, vectors have a common part whose size differs between groups, as frequent tokens have.

Groups have one context each, three each, or sizes that fall like 1/rank. The corrected agreement and its interval are
those of `compare`, with each pair of contexts counted once, and with each pair of groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import gamma
from typing import Any, ClassVar, Literal

import numpy as np

from tokengeom.extending import (
    AbstractProgress,
    Curve,
    Figure,
    Float,
    Int,
    LinePanel,
    SimilarityNumbers,
    assess,
    unit_columns,
)
from tokengeom_studies.base import Check, Findings, Recipe, table_of
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Answer, Hypothesis, Row, Rows, chosen

WEIGHTINGS: tuple[Literal["contexts"], Literal["supports"]] = ("contexts", "supports")
LEAST_COVERAGE, MEAN_COVERAGE = 0.90, (0.94, 1.0)
LARGEST_BIAS = 0.03
DIMENSIONS, NOISE_DIMENSIONS = 12, 64
MANY_GROUPS = 40


class IntervalCoverage(AbstractMeasuredStudy):
    """Trainings with a known explained share, and how often its interval contains it."""

    question = "How often do the intervals of the corrected agreement contain the truth, and which weighting is robust?"
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "coverage": Hypothesis(
            "The 95% intervals contain the truth 95 times in 100, or more often.",
            f"With each pair of supports counted once: yes if the mean coverage over all cells lies in "
            f"[{MEAN_COVERAGE[0]}, {MEAN_COVERAGE[1]}] and no cell has less than {LEAST_COVERAGE}; no if not.",
        ),
        "bias": Hypothesis(
            f"The corrected agreement is unbiased within {LARGEST_BIAS}.",
            f"With each pair of supports counted once: yes if in every cell with {MANY_GROUPS} or more groups the mean "
            f"is within {LARGEST_BIAS} of the truth; no if not.",
        ),
        "weighting": Hypothesis(
            "With groups of unequal size, counting each pair of supports once has the smaller error.",
            f"Yes if, over the cells with {MANY_GROUPS} or more groups of unequal size, the largest root mean square "
            "error of the corrected agreement is smaller than with each pair of contexts counted once; no if not.",
        ),
    }
    small: ClassVar[Recipe] = {
        **{"seed": 0, "draws": 10, "groups": [15], "sizes": ["one", "unequal"], "popular": [False]},
        "cells": [[2, 1.0, 0.8], [2, 0.6, 0.8]],
    }
    # A cell is a number of trainings, the explained share, and the correlation of two trainings.
    paper: ClassVar[Recipe] = {
        **{"seed": 1, "draws": 100, "groups": [15, 40, 80], "sizes": ["one", "equal", "unequal"]},
        **{
            "popular": [False, True],
            "cells": [[2, 1.0, 0.8], [2, 1.0, 0.3], [2, 0.6, 0.8], [3, 0.6, 0.4], [5, 0.8, 0.5]],
        },
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """One row per cell and draw, with both weightings."""
        cells = list(product(recipe["groups"], recipe["sizes"], recipe["popular"], recipe["cells"]))
        with progress.stage("Drawing trainings", float(len(cells) * recipe["draws"])) as stage:
            for draw in range(recipe["draws"]):
                for place, (G, sizes, popular, (runs, share, rho)) in enumerate(cells):
                    cell = {"groups": G, "sizes": sizes, "popular": popular, "runs": runs, "share": share, "rho": rho}
                    if rows.in_time and not rows.has(kind="draw", draw=draw, **cell):
                        rng = np.random.default_rng([recipe["seed"], draw, place])
                        rows.add(kind="draw", draw=draw, **cell, **measured(rng, **cell))
                    stage.advance(1.0)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Coverage, bias and error of each cell."""
        table = [_cell(rows, dict(zip(CELL, key, strict=True)), weighting) for key, weighting in _keys(rows)]
        judged = [row for row in table if row["weighting"] == "supports"]
        mean, least = float(np.mean([row["coverage"] for row in judged])), min(row["coverage"] for row in judged)
        many = [row for row in table if row["groups"] >= MANY_GROUPS]
        bias = max((abs(row["mean"] - row["truth"]) for row in many if row["weighting"] == "supports"), default=0.0)
        errors = {
            w: max((row["error"] for row in many if row["weighting"] == w and row["sizes"] == "unequal"), default=0.0)
            for w in WEIGHTINGS
        }
        covers = MEAN_COVERAGE[0] <= mean <= MEAN_COVERAGE[1] and least >= LEAST_COVERAGE
        answers = {
            "coverage": _answer(covers, f"mean coverage {mean:.3f}, smallest {least:.2f}"),
            "bias": _answer(bias <= LARGEST_BIAS, f"largest difference {bias:.3f}"),
            "weighting": _answer(
                errors["supports"] < errors["contexts"],
                f"largest error {errors['supports']:.3f} against {errors['contexts']:.3f}",
            ),
        }
        sentence = (
            f"Intervals contain the truth in {mean:.1%} of the draws (nominal 95%), at least {least:.0%} in a cell."
        )
        checks = [Check("share of draws with an interval", float(np.mean([row["known"] for row in judged])), low=0.9)]
        tables = {"hypotheses": self.answers(answers), "cells": table_of(table)}
        return self.findings(recipe, sentence, checks, [_figure(table)], tables)


CELL = ("groups", "sizes", "popular", "runs", "share", "rho")


def _answer(holds: bool, because: str) -> Answer:
    return Answer("yes" if holds else "no", because)


def _keys(rows: Sequence[Row]) -> list[tuple[tuple[object, ...], str]]:
    return list(product(dict.fromkeys(tuple(row[name] for name in CELL) for row in rows), WEIGHTINGS))


def _cell(rows: Sequence[Row], cell: Mapping[str, object], weighting: str) -> dict[str, Any]:
    """Mean, error, coverage and width of one cell in one weighting."""
    own = chosen(rows, **cell)
    value, low, high = (
        np.array([row[f"{weighting}_{end}"] if row[f"{weighting}_{end}"] is not None else np.nan for row in own])
        for end in ("corrected", "low", "high")
    )
    truth, known = own[0]["truth"], np.isfinite(low)
    covered = (low[known] <= truth) & (truth <= high[known])
    return dict(cell) | {
        "weighting": weighting,
        "draws": len(own),
        "truth": truth,
        "mean": float(np.nanmean(value)),
        "error": float(np.sqrt(np.nanmean((value - truth) ** 2))),
        "known": float(known.mean()),
        "coverage": float(covered.mean()) if known.any() else float("nan"),
        "width": float(np.nanmedian(high - low)),
    }


def _figure(table: Sequence[Mapping[str, Any]]) -> Figure:
    curves = []
    for weighting in WEIGHTINGS:
        values = np.sort(
            np.array([row["coverage"] for row in table if row["weighting"] == weighting], dtype=np.float64)
        )
        curves.append(Curve(weighting, np.arange(1.0, values.size + 1), values))
    panel = LinePanel("Coverage of 95% intervals", "cell, in order of coverage", "share of draws", curves)
    caption = "Share of draws whose interval contains the known truth, in each cell."
    return Figure("coverage", "Coverage of the intervals of the corrected agreement", caption, [panel])


def measured(
    rng: np.random.Generator, groups: int, sizes: str, popular: bool, runs: int, share: float, rho: float
) -> dict[str, float]:
    """The corrected agreement of drawn trainings with its interval, in both weightings, and the truth."""
    unit = group_of_each(groups, sizes)
    drawn = (_vectors(rng, DIMENSIONS, groups, popular) for _ in range(2))
    (P, spread_p), (U, spread_u) = ((M, _spread(M, popular)) for M in drawn)
    a, b = np.sqrt(share) / spread_p, np.sqrt(1.0 - share) / spread_u
    c = np.sqrt(1.0 / rho - 1.0) * np.sqrt(NOISE_DIMENSIONS)
    trainings = [
        np.vstack(
            [
                np.sqrt(a) * P[:, unit],
                np.sqrt(b) * U[:, unit],
                np.sqrt(c) * _vectors(rng, NOISE_DIMENSIONS, unit.size, popular=False),
            ]
        )
        for _ in range(runs)
    ]
    result = {"truth": float(np.sqrt(share))}
    for weighting in WEIGHTINGS:
        numbers = SimilarityNumbers.of(weighting, trainings, {"": P[:, unit]}, unit)
        agreement = assess(numbers, permutations=0, seed=0).agreements()["", numbers.number("agreement")]
        result[f"{weighting}_corrected"] = agreement.corrected
        result[f"{weighting}_low"], result[f"{weighting}_high"] = agreement.corrected_low, agreement.corrected_high
    return result


def group_of_each(groups: int, sizes: str) -> Int:
    """Group of each context: one per group, three per group, or sizes that fall like 1/rank."""
    rank = np.arange(1, groups + 1)
    n = {
        "one": np.ones(groups, dtype=np.int64),
        "equal": np.full(groups, 3),
        "unequal": np.maximum(1, (4 * groups / np.log(groups) / rank).astype(np.int64)),
    }[sizes]
    return np.repeat(np.arange(groups), n)


def _vectors(rng: np.random.Generator, d: int, n: int, popular: bool) -> Float:
    """Random unit vectors as columns; where directions are popular, with a common part of random size."""
    X = unit_columns(rng.standard_normal((d, n)))
    if popular:
        common = np.sqrt(rng.beta(2.0, 4.0, n))
        X = np.vstack([np.sqrt(1.0 - common**2) * X, common])
    return X


def _spread(X: Float, popular: bool) -> float:
    """Standard deviation of the cosines, in the population that the vectors come from."""
    d = X.shape[0] - int(popular)
    if not popular:
        return float(1.0 / np.sqrt(d))
    # The common parts s, t are independent with s^2 from Beta(2, 4): the cosine is s t + sqrt((1 - s^2)(1 - t^2)) y,
    # with y of variance 1/d.
    mean, mean_root = 2.0 / 6.0, gamma(2.5) * gamma(6.0) / (gamma(2.0) * gamma(6.5))
    return float(np.sqrt(mean**2 - mean_root**4 + (1.0 - mean) ** 2 / d))
