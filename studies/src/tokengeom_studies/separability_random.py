"""Where random data become separable as the number of contexts grows, and whether a formula gives it.

Supports are uniform of one size k, embeddings N(0, I). Each draw of supports and m x m embeddings has a smallest
dimension d such that the first d coordinates separate (`separability_threshold`). Bisection brackets it, with a proof
on both sides: a decoder with equal in-support logits and positive margins, or multipliers that refute every decoder.
The threshold ``d*``, at which half of the draws are separable, is the location of a logistic distribution, fitted to
the brackets by maximum likelihood. It is compared with the conic formula of `random_limits`; with two tokens and
k = 1 Cover's count is exact, ``d* = m/2`` [cover1965].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import ClassVar

import numpy as np

from tokengeom.extending import AbstractProgress, Curve, Figure, LinePanel, Panel, Points, ScatterPanel
from tokengeom_studies.base import Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.measured import (
    AbstractMeasuredStudy,
    Answer,
    Decision,
    Hypothesis,
    Interval,
    Row,
    Rows,
    chosen,
)
from tokengeom_studies.common.random_data import random_supports
from tokengeom_studies.common.random_limits import separability_estimate, separability_limit
from tokengeom_studies.common.separating_dimension import (
    NEAR,
    STANDARD_ERRORS,
    Slope,
    Threshold,
    bracket,
    separates,
    separates_by_linear_program,
    shift_per_token,
    slopes_of,
    thresholds,
    weighted_mean,
)

MANY, PER_TOKEN, WIDTHS = 1.10, (1 / 16, 3 / 16), (0.8, 1.25)
SLOW = 20
"""Tokens from which on half as many draws are made."""
PROVEN = 1e-9


class SeparabilityRandom(AbstractMeasuredStudy):
    """The smallest separating dimension of random data against the conic formula."""

    question: ClassVar[str] = "Which formula gives the dimension in which random data become separable?"
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "formula": Hypothesis(
            "At fixed V and k, d* grows with m at the rate of the conic formula.",
            "For every (V, k) with V > 2 that was measured at two or more m with V <= m/4, the slope of d* over m is "
            f"divided by the formula. Yes if the 95% interval of the weighted mean lies within {NEAR:.0%} of 1; no if "
            "it lies outside, or if the 99.9% interval of one ratio does; otherwise undecided.",
        ),
        "shift": Hypothesis(
            "d* exceeds m times the formula by about (V - 1)/8 dimensions, whatever m is.",
            "Over all settings with 5 <= V <= m/4: yes if the 95% interval of the weighted mean of (d* - m formula) / "
            "(V - 1) lies in [1/16, 3/16]; no if it lies outside; otherwise undecided.",
        ),
        "width": Hypothesis(
            "The spread of the smallest separating dimension is that of the cone's intrinsic volumes, of order sqrt m.",
            f"Over all settings with V <= m/4 and m >= 100: yes if the 95% interval of the mean ratio of both lies in "
            f"[{WIDTHS[0]}, {WIDTHS[1]}]; no if it lies outside; otherwise undecided.",
        ),
        "many tokens": Hypothesis(
            "With as many tokens as half of the contexts or more, the formula is too low by more than 10%.",
            f"Yes if d* / (m formula) is above {MANY} with its 95% interval in every setting with V >= m/2; no if the "
            "interval lies below in one.",
        ),
    }
    # ``draws`` belong to the entries of ``m``, and are halved from 20 tokens on, where a draw takes 10 times as long.
    # ``parts`` = [i, n] measures every n-th draw, from the i-th on.
    small: ClassVar[Recipe] = {
        "settings": [[2, 1], [5, 2], [10, 3]],
        "m": [20, 40],
        "draws": [16, 10],
        "most_pairs": 10_000,
        "max_iterations": 15_000,
        "resolution": 0.01,
        "oracle_m": 12,
        "oracle_draws": 6,
        "seed": 0,
        "parts": [0, 1],
    }
    paper: ClassVar[Recipe] = {
        "settings": [
            [2, 1], [3, 1], [5, 1], [5, 2], [5, 3], [10, 1], [10, 2], [10, 3], [10, 5],
            [20, 1], [20, 2], [20, 3], [20, 5], [20, 10], [50, 1], [50, 3], [50, 10],
        ],
        "m": [50, 100, 200, 400],
        "draws": [40, 40, 24, 16],
        "most_pairs": 10_000,
        "max_iterations": 15_000,
        "resolution": 0.01,
        "oracle_m": 14,
        "oracle_draws": 20,
        "seed": 0,
        "parts": [0, 1],
    }  # fmt: skip

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Bracket the smallest separating dimension of each draw: the first draw of all settings, then the second."""
        part, parts = recipe["parts"]
        if part == 0:
            _measure_oracle(recipe, rows)
        mine = _tasks(recipe)[part::parts]
        with progress.stage("Bracketing", float(len(mine))) as stage:
            for draw, V, k, m in mine:
                setting = {"kind": "draw", "V": V, "k": k, "m": m, "draw": draw}
                if not rows.in_time or rows.has(**setting):
                    continue
                rng = np.random.default_rng([recipe["seed"], V, k, m, draw])
                S, H = random_supports(rng, V, m, k), rng.standard_normal((m, m))
                rows.add(**setting, **bracket(S, H, k, recipe["resolution"], recipe["max_iterations"]))
                stage.advance(1.0, f"V={V}, k={k}, m={m}")

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Thresholds against the formula; the checks are about proofs, Cover's count and the linear program."""
        measured = thresholds(rows)
        slopes = slopes_of(measured)
        answers = {
            "formula": _formula(slopes),
            "shift": _shift(measured),
            "width": _width(measured),
            "many tokens": _many_tokens(measured),
        }
        checks = _checks(rows, measured)
        shown = table_of(
            [{"number": check.name, "value": float(f"{check.value:.2g}"), "at most": check.high} for check in checks]
        )
        tables = {"hypotheses": self.answers(answers), "thresholds": _table(measured), "checks": shown}
        if slopes:
            tables["slopes"] = _slope_table(slopes)
        return self.findings(recipe, _sentence(answers, measured), checks, _figures(measured), tables)


def _tasks(recipe: Recipe) -> list[tuple[int, int, int, int]]:
    """Draw, V, k and m of everything to be measured, draw by draw."""
    settings = [
        (m, draws // 2 if V >= SLOW else draws, V, k)
        for m, draws in zip(recipe["m"], recipe["draws"], strict=True)
        for V, k in recipe["settings"]
        if V * m <= recipe["most_pairs"]
    ]
    most = max((draws for _, draws, _, _ in settings), default=0)
    return [(draw, V, k, m) for draw in range(most) for m, draws, V, k in settings if draw < draws]


def _measure_oracle(recipe: Recipe, rows: Rows) -> None:
    m = recipe["oracle_m"]
    for V, k in recipe["settings"]:
        for draw in range(recipe["oracle_draws"] if V <= 10 else 0):
            setting = {"kind": "oracle", "V": V, "k": k, "m": m, "draw": draw}
            if not rows.in_time or rows.has(**setting):
                continue
            rng = np.random.default_rng([recipe["seed"], V, k, m, draw, 1])
            d = min(max(round(separability_limit(V, k).ratio * m) + draw % 3, 1), m - 1)
            S, H = random_supports(rng, V, m, k), rng.standard_normal((d, m))
            answer, _ = separates(S, H, recipe["max_iterations"])
            rows.add(**setting, d=d, separable=answer, by_program=separates_by_linear_program(S, H))


def _formula(slopes: Sequence[Slope]) -> Answer:
    slopes = [slope for slope in slopes if slope.V > 2]
    if not slopes:
        return Answer("undecided", "No setting with V > 2 was measured at two numbers of contexts.")
    mean = weighted_mean([slope.relative for slope in slopes], [slope.error for slope in slopes])
    worst = max(slopes, key=lambda slope: abs(slope.relative - 1.0) / slope.error)
    refuted = sum(slope.refuted for slope in slopes)
    decision = _inside(mean, 1.0 - NEAR, 1.0 + NEAR)
    text = (
        f"Mean ratio of slope and formula over {len(slopes)} settings: {mean}; {refuted} ratios "
        f"contradict the formula; most standard errors away: {worst.relative:.3f} at V={worst.V}, k={worst.k}."
    )
    return Answer("no" if refuted else decision, text)


def _inside(interval: Interval, low: float, high: float) -> Decision:
    if low <= interval.low and interval.high <= high:
        return "yes"
    return "no" if interval.high < low or interval.low > high else "undecided"


def _shift(measured: Sequence[Threshold]) -> Answer:
    kept = [threshold for threshold in measured if threshold.few_tokens and threshold.V >= 5]
    if len(kept) < 2:
        return Answer("undecided", "Fewer than two settings have 5 <= V <= m/4.")
    mean = shift_per_token(kept)
    text = f"Weighted mean of the shift per V - 1 over {mean.count} settings: {mean}."
    return Answer(_inside(mean, *PER_TOKEN), text)


def _width(measured: Sequence[Threshold]) -> Answer:
    kept = [threshold for threshold in measured if threshold.few_tokens and threshold.m >= 100]
    if len(kept) < 2:
        return Answer("undecided", "Fewer than two settings have m >= 100.")
    ratios = Interval.of(
        threshold.deviation / (separability_limit(threshold.V, threshold.k).width * sqrt(threshold.m))
        for threshold in kept
    )
    return Answer(_inside(ratios, *WIDTHS), f"Mean ratio of measured and conic width over {ratios.count}: {ratios}.")


def _many_tokens(measured: Sequence[Threshold]) -> Answer:
    kept = [threshold for threshold in measured if threshold.m <= 2 * threshold.V]
    if not kept:
        return Answer("undecided", "No setting has V >= m/2.")
    low = [(threshold.location - 1.96 * threshold.error) / threshold.expected for threshold in kept]
    high = [(threshold.location + 1.96 * threshold.error) / threshold.expected for threshold in kept]
    decision: Decision = "yes" if min(low) > MANY else "no" if min(high) < MANY else "undecided"
    ratios = ", ".join(
        f"V={threshold.V}, k={threshold.k}, m={threshold.m}: {threshold.location / threshold.expected:.2f}"
        for threshold in kept
    )
    return Answer(decision, f"Ratio of d* and the formula: {ratios}.")


def _checks(rows: Sequence[Row], measured: Sequence[Threshold]) -> list[Check]:
    draws, oracle = chosen(rows, kind="draw"), chosen(rows, kind="oracle")
    differ = sum(row["separable"] is not None and row["separable"] != row["by_program"] for row in oracle)
    checks = [
        Check("largest residual of a refutation", max(row["refutation_residual"] for row in draws), high=PROVEN),
        Check("share of draws that end undecided", float(np.mean([row["undecided"] for row in draws])), high=0.5),
    ]
    if oracle:
        checks.append(Check(f"of {len(oracle)} answers, those that HiGHS contradicts", float(differ), high=0.0))
    for threshold in measured:
        if threshold.V == 2:
            away = abs(threshold.location - threshold.m / 2) / threshold.error
            checks.append(Check(f"m={threshold.m}: standard errors from Cover's count", away, high=STANDARD_ERRORS))
    return checks


def _sentence(answers: Mapping[str, Answer], measured: Sequence[Threshold]) -> str:
    decisions = ", ".join(f"{name}: {answer.decision}" for name, answer in answers.items())
    draws = sum(threshold.draws for threshold in measured)
    return f"{draws} draws in {len(measured)} settings. Hypotheses ({decisions}). " + " ".join(
        answers[name].because for name in ("formula", "shift", "width")
    )


def _table(measured: Sequence[Threshold]) -> Table:
    return table_of(
        [
            {
                "V": threshold.V,
                "k": threshold.k,
                "m": threshold.m,
                "draws": threshold.draws,
                "undecided": threshold.undecided,
                "d*": f"{threshold.location:.1f} +- {1.96 * threshold.error:.1f}",
                "d*/m": round(threshold.location / threshold.m, 4),
                "formula": round(threshold.expected / threshold.m, 4),
                "formula without draws": round(separability_estimate(threshold.V, threshold.k), 4),
                "d* - m formula": round(threshold.shift, 2),
                "(V - 1)/8": (threshold.V - 1) / 8,
                "deviation": round(threshold.deviation, 2),
                "conic deviation": round(separability_limit(threshold.V, threshold.k).width * sqrt(threshold.m), 2),
            }
            for threshold in measured
        ]
    )


def _slope_table(slopes: Sequence[Slope]) -> Table:
    return table_of(
        [
            {
                "V": slope.V,
                "k": slope.k,
                "formula": round(separability_limit(slope.V, slope.k).ratio, 4),
                "slope / formula": f"{slope.relative:.3f} +- {1.96 * slope.error:.3f}",
                "shift / (V - 1)": f"{slope.shift.mean:.3f} +- {slope.shift.half:.3f}",
                "contradicts the formula": "yes" if slope.refuted else "no",
            }
            for slope in slopes
        ]
    )


def _figures(measured: Sequence[Threshold]) -> list[Figure]:
    curves = []
    colours = {V: place for place, V in enumerate(dict.fromkeys(threshold.V for threshold in measured))}
    named: set[int] = set()
    for V, k in dict.fromkeys((threshold.V, threshold.k) for threshold in measured):
        mine = [threshold for threshold in measured if (threshold.V, threshold.k) == (V, k)]
        expected = np.array([threshold.expected for threshold in mine])
        y = np.array([threshold.location for threshold in mine]) / expected
        half = 1.96 * np.array([threshold.error for threshold in mine]) / expected
        per_token = np.array([threshold.m / V for threshold in mine])
        label = f"V={V}"
        curves.append(Curve(label, per_token, y, y - half, y + half, colour=colours[V], in_legend=V not in named))
        named.add(V)
    largest = {(threshold.V, threshold.k): threshold for threshold in measured}
    points = [
        Points(
            "largest m measured",
            np.array([threshold.expected / threshold.m for threshold in largest.values()]),
            np.array([threshold.location / threshold.m for threshold in largest.values()]),
            [f"{threshold.V}, {threshold.k}" for threshold in largest.values()],
        ),
    ]
    caption = (
        "Left: the dimension d* in which half of the random draws are separable, divided by that of the conic formula, "
        "with 95% intervals; one line per support size k, against contexts per token. Right: d*/m at the largest m "
        "against the formula; points are named V, k."
    )
    panels: list[Panel] = [
        LinePanel(
            "Threshold divided by the formula",
            "contexts per token, m / V",
            "ratio",
            curves,
            "log",
            levels=[("formula", 1.0)],
        ),
        ScatterPanel("Threshold and formula", "formula", "d* / m", points),
    ]
    return [Figure("threshold", "Dimensions that random data need to be separable", caption, panels)]
