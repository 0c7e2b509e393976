"""How many parameters per distinct context a network needs to come within a given loss gap of the entropy.

Sub-samples of one text's contexts, drawn at random and nested, have the same distribution of supports and differ in
their number m. Networks of fixed depth and growing width are trained on each with the same optimizer, rate and number
of steps. Between the two widths of the grid on either side of a loss gap, the number of parameters is interpolated: log
parameters against log loss gap. Everything is a statement about this budget of steps; a longer one is measured too.

A network has input embeddings (a row per token of the contexts), a body, and a head (a row per next token). The body is
also counted alone, because embeddings and head grow with the vocabulary rather than with the contexts. Its width also
bounds the rank of the logits: a network that needs the same width at twice the depth is limited by that rank, and not
by its number of parameters.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any, ClassVar

import numpy as np

from tokengeom import NextTokenStatistics
from tokengeom.extending import AbstractProgress, Curve, Figure, InputError, LinePanel, Network, architecture_named
from tokengeom_studies.base import Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.capacity_thresholds import ALL, BODY, WIDTH, Thresholds
from tokengeom_studies.common.measured import (
    AbstractMeasuredStudy,
    Answer,
    Decision,
    Hypothesis,
    Interval,
    Row,
    Rows,
    chosen,
    decided_together,
)
from tokengeom_studies.common.model_runs import require_device
from tokengeom_studies.common.torch_runs import DeviceText, load_text, training_settings

CONSTANT, LONGER, TENTH, DEEPER = 2.0, 1.5, 4.0, 1.2
"""Factors: over the numbers of contexts, by twice the steps, for a tenth of the loss gap, and of width over depth."""


class MemoryCapacity(AbstractMeasuredStudy):
    """Parameters per context at which networks of growing width first reach a loss gap."""

    question: ClassVar[str] = "How many parameters per distinct context does a network need to reach a small loss gap?"
    hypotheses: ClassVar[dict[str, Hypothesis]] = {
        "all": Hypothesis(
            "The number of parameters per context at the smallest loss gap is constant over the number of contexts.",
            f"For each network: the largest over the smallest, per seed, has a 95% interval below {CONSTANT:g}. No "
            "where one interval is above it.",
        ),
        "body": Hypothesis(
            "The number of parameters of the body per context, without embeddings and head, is constant.",
            f"The same, with the parameters of the body: below {CONSTANT:g}.",
        ),
        "tenth": Hypothesis(
            f"A loss gap ten times as small needs less than {TENTH:g} times as many parameters.",
            f"For each network and number of contexts: the ratio of all parameters, per seed, has a 95% interval below "
            f"{TENTH:g}. No where one interval is above it.",
        ),
        "longer": Hypothesis(
            f"Twice the steps lower the number of parameters that is needed by less than a factor of {LONGER:g}.",
            f"For each network measured with both: the ratio of all parameters at the smallest loss gap, per seed, has "
            f"a 95% interval below {LONGER:g}. No where one interval is above it.",
        ),
        "depth": Hypothesis(
            "Width is the limit, not the number of parameters: a deeper network of the same kind needs the same width.",
            f"For each pair of depths and number of contexts: the width of the less deep one over that of the deeper "
            f"one at the smallest loss gap, per seed, has a 95% interval below {DEEPER:g}. No where one is above it.",
        ),
    }
    # networks are names with a number of layers. budgets are pairs of contexts and steps; those with the fewest steps
    # are compared over the contexts.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "text": "stories",
        "stories": 600,
        "context": 3,
        "contexts": 80,
        "vocabulary": 40,
        "networks": ["mlp:1", "mlp:2"],
        "seeds": [0, 1],
        "budgets": [[30, 300], [60, 300], [30, 600]],
        "loss_gaps": [1e-1, 1e-2],
        "widths": [2, 3, 4, 6, 8, 11, 16, 22, 32],
        "heads": 2,
        "learning_rate": 1e-2,
        "device": "cpu",
    }
    paper: ClassVar[Recipe] = {
        **small,
        "text": "texts/tinystories_1000x4000.npz",
        "stories": 3_000,
        "contexts": 4_000,
        "vocabulary": 1_000,
        "networks": ["transformer:2", "mlp:2", "mlp:4"],
        "seeds": [0, 1, 2, 3, 4],
        "budgets": [[382, 2_000], [1_000, 2_000], [4_000, 2_000], [1_000, 4_000]],
        "loss_gaps": [1e-2, 1e-3],
        "widths": [8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256],
        "heads": 4,
        "device": "cuda",
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Train networks of the widths around each loss gap, one seed after the other."""
        require_device(recipe)
        stats = load_text(recipe)
        for contexts, steps in recipe["budgets"]:
            text = DeviceText(sub_sample(stats, contexts, recipe["seed"]), recipe["device"])
            for network in recipe["networks"]:
                with progress.stage(f"{network} on {contexts} contexts, {steps} steps", None):
                    for seed in recipe["seeds"]:
                        _measure_seed(text, recipe, rows, network, steps, seed)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Parameters per context at each loss gap, over the number of contexts."""
        thresholds = Thresholds(rows, sorted(recipe["loss_gaps"], reverse=True), recipe["widths"])
        answers = _answers(thresholds)
        tables = {"hypotheses": self.answers(answers), "thresholds": _table(thresholds), "runs": _runs(rows)}
        return self.findings(recipe, _sentence(thresholds, answers), _checks(thresholds), [_figure(thresholds)], tables)


def sub_sample(stats: NextTokenStatistics, contexts: int, seed: int) -> NextTokenStatistics:
    """The first contexts of a random order that the seed gives, with the tokens that follow one of them."""
    if not 1 <= contexts <= stats.m:
        raise InputError(f"The text has {stats.m} contexts; a sub-sample of {contexts} cannot be drawn.")
    columns = np.sort(np.random.default_rng(seed).permutation(stats.m)[:contexts])
    table = stats.counts[:, columns]
    rows = np.flatnonzero(np.asarray(table.sum(axis=1)).ravel())
    ids = None if stats.contexts is None else np.asarray(stats.contexts)[columns]
    return NextTokenStatistics.from_counts(table[rows], contexts=ids)


def count_parameters(network: Network) -> dict[str, int]:
    """Number of trained parameters: all of them, and those of the body without embeddings and head."""
    everything = sum(int(parameter.numel()) for parameter in network.decoder.parameters())
    embeddings = architecture_named(network.name).embedding(network.decoder.body).weight.numel()
    return {ALL: everything, BODY: everything - int(embeddings) - int(network.decoder.weight.numel())}


def _measure_seed(text: DeviceText, recipe: Recipe, rows: Rows, network: str, steps: int, seed: int) -> None:
    """Widths upwards or downwards from where the last seed ended, until the two around each loss gap are known."""
    widths = sorted(recipe["widths"])
    cell = {"network": network, "contexts": text.stats.m, "steps": steps}

    def reached(width: int) -> float:
        known = rows.where(kind="run", **cell, seed=seed, width=width)
        if not known:
            rows.add(kind="run", **cell, seed=seed, width=width, **_train(text, recipe, network, width, steps, seed))
            known = rows.where(kind="run", **cell, seed=seed, width=width)
        gap = known[0]["loss_gap"]
        return float("inf") if gap is None else float(gap)

    for wanted in sorted(recipe["loss_gaps"], reverse=True):
        place = _first_place(rows, cell, widths, wanted)
        while rows.in_time:
            below = reached(widths[place]) <= wanted
            if below and place > 0 and reached(widths[place - 1]) <= wanted:
                place -= 1
            elif below or place == len(widths) - 1:
                break
            else:
                place += 1


def _first_place(rows: Rows, cell: Mapping[str, Any], widths: Sequence[int], wanted: float) -> int:
    """Place of the smallest width that another seed reached the loss gap with; the middle where none has."""
    some = [row["width"] for row in rows.where(kind="run", **cell) if (row["loss_gap"] or np.inf) <= wanted]
    return widths.index(min(some)) if some else len(widths) // 2


def _train(text: DeviceText, recipe: Recipe, network: str, width: int, steps: int, seed: int) -> dict[str, Any]:
    """Loss gap and size of one network; the loss gap is None where training diverged."""
    began = time.monotonic()
    model, _, layers = network.partition(":")
    size: dict[str, Any] = {"dim": width, "layers": int(layers)}
    if model == "transformer":
        size["heads"] = min(recipe["heads"], width)
    settings = training_settings(recipe, model, seed, steps=steps, rate_schedule="cosine", **size)
    run = text.begin(settings)
    assert run.network is not None, "settings of a network"
    run.advance(steps)
    gap = text.loss_gap(*run.factors())
    counted = {**count_parameters(run.network), "tokens": text.stats.V}
    return {"loss_gap": gap if np.isfinite(gap) else None, "seconds": time.monotonic() - began, **counted}


def _ratios(first: Mapping[int, float], second: Mapping[int, float]) -> dict[int, float]:
    return {seed: first[seed] / second[seed] for seed in first if seed in second}


def _below(ratios: Mapping[str, Mapping[int, float]], most: float, what: str) -> Answer:
    """Whether ratios are below a bound in every case; intervals are those of logarithms."""
    decisions: list[Decision] = []
    parts, missing = [], []
    for name, values in ratios.items():
        logs = Interval.of(np.log(list(values.values())))
        if logs.count < 2:
            decisions.append("undecided")
            missing.append(name)
            continue
        decisions.append("yes" if logs.high < np.log(most) else "no" if logs.low > np.log(most) else "undecided")
        low, mean, high = np.exp([logs.low, logs.mean, logs.high])
        parts.append(f"{name} {mean:.2f} [{low:.2f}, {high:.2f}]")
    decision = decided_together(decisions)
    if not parts:
        return Answer(decision, "not measured with two seeds or more")
    rest = f". Not measured with two seeds or more: {'; '.join(missing)}" if missing else ""
    return Answer(decision, f"{what}: {'; '.join(parts)}{rest}")


def _answers(thresholds: Thresholds) -> dict[str, Answer]:
    smallest = thresholds.loss_gaps[-1]
    tenth: dict[str, dict[int, float]] = {}
    longer: dict[str, dict[int, float]] = {}
    for network in thresholds.networks:
        for budget in thresholds.compared(network):
            some, few = (thresholds.at(network, budget, gap, ALL) for gap in (thresholds.loss_gaps[0], smallest))
            tenth[f"{network}, {budget[0]:,}"] = _ratios(few, some)
        for budget in thresholds.budgets(network):
            short = min(steps for contexts, steps in thresholds.budgets(network) if contexts == budget[0])
            if budget[1] > short:
                first, two = (thresholds.at(network, (budget[0], steps), smallest, ALL) for steps in (short, budget[1]))
                longer[f"{network}, {budget[0]:,}"] = _ratios(first, two)
    deeper: dict[str, dict[int, float]] = {}
    for less, more in combinations(thresholds.networks, 2):
        if less.partition(":")[0] == more.partition(":")[0]:
            for budget in thresholds.compared(less):
                widths = [thresholds.at(name, budget, smallest, WIDTH) for name in (less, more)]
                deeper[f"{less} and {more}, {budget[0]:,}"] = _ratios(widths[0], widths[1])
    spreads = {count: {name: thresholds.spread(name, count) for name in thresholds.networks} for count in (ALL, BODY)}
    return {
        "all": _below(spreads[ALL], CONSTANT, "Largest over smallest number per context"),
        "body": _below(spreads[BODY], CONSTANT, "Largest over smallest number per context"),
        "tenth": _below(tenth, TENTH, f"Ratio of parameters at {smallest:g} and {thresholds.loss_gaps[0]:g}"),
        "longer": _below(longer, LONGER, "Parameters with the shorter over those with the longer budget"),
        "depth": _below(deeper, DEEPER, "Width of the less deep network over that of the deeper one"),
    }


def _table(thresholds: Thresholds) -> Table:
    rows = []
    for network, budget, gap in thresholds.cases():
        row: dict[str, Any] = {"network": network, "contexts": budget[0], "steps": budget[1], "loss_gap": gap}
        row |= {
            "seeds": len(thresholds.at(network, budget, gap, ALL)),
            "cut off": len(thresholds.cut_off(network, budget, gap)),
        }
        row[WIDTH] = _shown(Interval.of(thresholds.at(network, budget, gap, WIDTH).values()).mean)
        for count in (ALL, BODY):
            numbers = Interval.of(value / budget[0] for value in thresholds.at(network, budget, gap, count).values())
            row |= {f"{count} per context": _shown(numbers.mean)}
            row |= {f"{count}, {end}": _shown(getattr(numbers, end)) for end in ("low", "high")}
        rows.append(row)
    return table_of(rows)


def _shown(value: float) -> float:
    """A number, or NaN where there is none: no seed, or the interval of a single one."""
    return value if np.isfinite(value) else float("nan")


def _runs(rows: Sequence[Row]) -> Table:
    """Every width that was trained: size and loss gap, as means over seeds."""
    lines = []
    for key in sorted({tuple(row[name] for name in ("network", "contexts", "steps", "width")) for row in rows}):
        cell = dict(zip(("network", "contexts", "steps", "width"), key, strict=True))
        some = chosen(rows, **cell)
        gaps = [row["loss_gap"] for row in some if row["loss_gap"] is not None]
        sizes = {name: some[0][name] for name in (ALL, BODY, "tokens")}
        lines.append({**cell, **sizes, "runs": len(some), "loss_gap": Interval.of(gaps).mean})
    return table_of(lines)


def _checks(thresholds: Thresholds) -> list[Check]:
    known = sum(len(thresholds.at(*case, ALL)) for case in thresholds.cases())
    outside = sum(len(thresholds.outside(*case)) for case in thresholds.cases())
    diverged = sum(row["loss_gap"] is None for row in thresholds.rows)
    return [
        Check("share of thresholds that lie inside the grid of widths", known / max(known + outside, 1), low=1.0),
        Check("share of runs that diverged", diverged / max(len(thresholds.rows), 1), high=0.0),
        Check("share of neighbouring widths at which the wider one has the lower loss", _monotone(thresholds), low=0.9),
    ]


def _monotone(thresholds: Thresholds) -> float:
    """Interpolation supposes that loss falls with width."""
    falls: list[bool] = []
    keys = {(row["network"], row["contexts"], row["steps"], row["seed"]) for row in thresholds.rows}
    for network, contexts, steps, seed in sorted(keys):
        some = chosen(thresholds.rows, network=network, contexts=contexts, steps=steps, seed=seed)
        gaps = [row["loss_gap"] for row in sorted(some, key=lambda row: row["width"]) if row["loss_gap"] is not None]
        falls += [after < before for before, after in pairwise(gaps)]
    return float(np.mean(falls)) if falls else 1.0


def _sentence(thresholds: Thresholds, answers: Mapping[str, Answer]) -> str:
    smallest = thresholds.loss_gaps[-1]
    parts = []
    for network in thresholds.networks:
        for budget in thresholds.compared(network):
            numbers = [
                [value / budget[0] for value in thresholds.at(network, budget, smallest, count).values()]
                for count in (ALL, BODY)
            ]
            reached = f"{np.mean(numbers[0]):.3g} ({np.mean(numbers[1]):.3g})" if numbers[0] else "not found"
            parts.append(f"{network}, {budget[0]:,} contexts: {reached}")
    constant = {"yes": "is", "no": "is not", "undecided": "may or may not be"}[answers["all"].decision]
    steps = min(row["steps"] for row in thresholds.rows)
    return (
        f"Parameters per context (of the body alone) at which the loss gap reaches {smallest:g} nats in {steps:,} "
        f"steps: {'; '.join(parts)}. The number {constant} constant within a factor of {CONSTANT:g}."
    )


def _figure(thresholds: Thresholds) -> Figure:
    def curves(count: str) -> list[Curve]:
        made: list[Curve] = []
        for place, network in enumerate(thresholds.networks):
            for budget in thresholds.compared(network):
                keys = {"network": network, "contexts": budget[0], "steps": budget[1]}
                some = [row for row in chosen(thresholds.rows, **keys) if row["loss_gap"] is not None]
                widths = sorted({row["width"] for row in some})
                points = [chosen(some, width=width) for width in widths]
                x = np.array([rows[0][count] / budget[0] for rows in points])
                y = np.array([np.exp(np.mean(np.log([row["loss_gap"] for row in rows]))) for rows in points])
                seeds = len({row["seed"] for row in some})
                label = f"{network}, {budget[0]:,} contexts" + (" (one seed)" if seeds == 1 else "")
                made.append(Curve(label, x, y, colour=len(made), dashed=place == 1, dotted=place == 2))
        return made

    levels = [(f"{gap:g}", gap) for gap in thresholds.loss_gaps]
    panels = [
        LinePanel(title, "parameters / m", "CE - H (nats)", curves(count), "log", "log", levels)
        for title, count in (("All parameters", ALL), ("Without embeddings and head", BODY))
    ]
    caption = (
        "Loss gap after a fixed number of steps against the number of parameters per distinct context, for networks of "
        "growing width on sub-samples of the contexts of one text; geometric means over seeds. Horizontal lines: the "
        "loss gaps at which parameters are counted."
    )
    return Figure("capacity", "Loss against parameters per context", caption, panels)
