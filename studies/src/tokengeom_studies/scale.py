"""How the explained share of an MLP's geometry changes with the number of contexts, the width, the loss, and the depth.

And which ties explain it: how the best weight of the context itself, w in ``positions+pairs+w*self``, changes with the
same, and whether the kernel of the MLP at its start is as good. Depth was added later: its statements are about the
shallowest and the deepest network, all others about networks of two layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np

from tokengeom.extending import AbstractProgress, Curve, Figure, LinePanel
from tokengeom_studies.base import Findings, Recipe, Table, table_of
from tokengeom_studies.common.measured import (
    AbstractMeasuredStudy,
    Hypothesis,
    Row,
    Rows,
    checks_of,
    chosen,
    ranks,
    share_of,
)
from tokengeom_studies.common.variants import MAIN, MLP_NAME, Agreements, compare_ties

ITEMS = ("contexts", "tokens")
TIED, KERNEL, FREE, NORM = f"simulated, {MAIN}", "simulated, kernel", "simulated, self", "gamma2"
SHOWN = (TIED, KERNEL, FREE, NORM)
WEIGHTS = {0.0: "positions+pairs", 0.3: "positions+pairs+0.3*self", 1.0: MAIN, 3.0: "positions+pairs+3*self"}
"""Weight of the context itself -> ties."""
LAYERS = 2
"""Hidden layers of the networks of all statements but those on depth, and of rows that do not say it."""
NEAR = 0.02
"""Difference of corrected agreement that counts as none."""
_RULE = (
    "A cell is a kind of text and an item, {} The statement is judged by corrected agreement with the network; it "
    "holds in at least 75% of the cells: yes; in at most 25%: no."
)
Cell = Mapping[str, Any]


class Scale(AbstractMeasuredStudy):
    """MLPs on the most frequent contexts of a text, beside simulations with and without ties and the gamma_2 norm."""

    question = "How does the explained share change with the number of contexts, the width and the loss?"
    small: ClassVar[Recipe] = {
        "text": "stories",
        "stories": 200,
        "context": 3,
        "contexts": 100,
        "vocabulary": 40,
        "seed": 0,
        "dims": [64],
        "layers": [LAYERS],
        "ties": [*WEIGHTS.values(), "self", "kernel"],
        "norms": ["gamma2"],
        "learning_rate": 1e-3,
        "gaps": [0.4, 0.2, 0.1],
        "seeds": 3,
        "replicates": 3,
        "seconds": 600,
        "device": "cpu",
    }
    paper: ClassVar[Recipe] = {**small, "text": "tinystories_1000", "seeds": 5, "device": "cuda"}
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "contexts": Hypothesis(
            f"With more contexts less is explained by tied features trained alike ({MAIN}).",
            _RULE.format("a width and a loss gap with several numbers of contexts: the most against the fewest."),
        ),
        "ties": Hypothesis(
            "The lead of tied over untied features trained alike grows with the number of contexts.",
            _RULE.format("a width and a loss gap with several numbers of contexts: the most against the fewest."),
        ),
        "loss": Hypothesis(
            "The higher the loss, the more is explained by tied features trained alike.",
            _RULE.format("a width and a number of contexts with several loss gaps: the largest against the smallest."),
        ),
        "width": Hypothesis(
            "The wider the network, the more is explained by tied features trained alike.",
            _RULE.format("a number of contexts and a loss gap with several widths: the widest against the narrowest."),
        ),
        "itself, contexts": Hypothesis(
            "The best weight of the context itself is not larger with more contexts.",
            _RULE.format("a width and a loss gap, contexts alone; the best of 0, 0.3, 1 and 3 by agreement."),
        ),
        "itself, loss": Hypothesis(
            "The best weight of the context itself is not smaller at a lower loss.",
            _RULE.format("a width and a number of contexts; the best weight as before."),
        ),
        "kernel": Hypothesis(
            f"The ties of the MLP's own kernel are as good as the best of these weights, within {NEAR}.",
            _RULE.format("a width, a number of contexts and a loss gap."),
        ),
        "depth": Hypothesis(
            "The deeper the network, the less is explained by tied features trained alike.",
            _RULE.format("a width, contexts and a loss gap with several depths: the deepest against the shallowest."),
        ),
        "depth, ties": Hypothesis(
            "The deeper the network, the smaller is the lead of tied over untied features trained alike.",
            _RULE.format("a width, contexts and a loss gap with several depths: the deepest against the shallowest."),
        ),
        "depth, kernel": Hypothesis(
            f"The ties of the kernel of as many layers as the network has are as good as {MAIN}, within {NEAR}.",
            _RULE.format(f"a depth other than {LAYERS} layers, a number of contexts and a loss gap."),
        ),
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Train, simulate and solve on the recipe's text, at each of its widths."""
        compare_ties(recipe, rows, progress)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Corrected agreement of each explanation in each cell, and the ends that each statement compares."""
        rows = [{"layers": LAYERS, **row} for row in rows]
        every = _cells(rows)
        cells = chosen(every, layers=LAYERS)
        held = {item: _held(every, (item,)) for item in ITEMS}
        answers = {key: share_of(x for item in ITEMS for x in held[item][key]) for key in held[ITEMS[0]]}
        solved = chosen(rows, kind="prediction")
        values = [_value(cell, "contexts") for cell in cells]
        sentence = (
            "Tied features trained alike agree with contexts of the network, corrected, between "
            f"{np.nanmin(values):.2f} and {np.nanmax(values):.2f} in {len(cells)} cells of "
            f"{min(c['contexts'] for c in cells)} to {max(c['contexts'] for c in cells)} contexts."
        )
        dim, target = (_most_common(cells, along) for along in ("dim", "target"))
        usual = chosen(cells, dim=dim, target=target)
        tables = {
            "hypotheses": self.answers(answers),
            "contexts": _table(usual),
            "widths": _table([cell for cell in cells if cell["target"] == target and cell not in usual])
            or _table(usual),
            "depths": _table(_of_several_depths(every) or usual, "layers"),
            "weights": _weights_table(usual),
            "by item": _by_item(held, cells),
            "by width": _by_width(cells),
            "ranks": ranks(
                ((f"{row['norm']}, loss gap {row['target']:g}", row) for row in chosen(solved, layers=LAYERS)),
                max((row["dim"] for row in solved), default=0),
            ),
            "all cells": _table(every, "layers"),
            "all weights": _weights_table(cells),
        }
        return self.findings(recipe, sentence, checks_of(rows), [_figure(cells)], tables)


def _cells(rows: Sequence[Row]) -> list[Cell]:
    """Kind of text, number of contexts, width, depth and loss gap, with the agreements measured there."""
    found = []
    for done in chosen(rows, kind="finished"):
        where = {"text": done["text"], "dim": done["dim"], "layers": done["layers"]}
        for target in dict.fromkeys(row["target"] for row in chosen(rows, kind="pair", **where)):
            cell = {"of": done["text"].rsplit("_", 1)[0], "contexts": done["contexts"], **where, "target": target}
            found.append({**cell, "agreements": Agreements(rows, **where, target=target)})
    return sorted(found, key=lambda cell: tuple(cell[name] for name in ("of", "dim", "target", "contexts", "layers")))


def _of_several_depths(cells: Sequence[Cell]) -> list[Cell]:
    """The cells whose text, width and loss gap were measured at several depths."""
    same = [chosen(cells, **{name: cell[name] for name in ("text", "dim", "target")}) for cell in cells]
    return [cell for cell, others in zip(cells, same, strict=True) if len(others) > 1]


def _most_common(cells: Sequence[Cell], along: str) -> Any:
    """The width or loss gap of most cells."""
    values = [cell[along] for cell in cells]
    return max(sorted(set(values)), key=values.count)


def _value(cell: Cell, item: str, explanation: str = TIED) -> float:
    return float(cell["agreements"].value(explanation, MLP_NAME, item))


def _lead(cell: Cell, item: str) -> float:
    return _value(cell, item) - _value(cell, item, FREE)


def _of_weights(cell: Cell, item: str) -> dict[float, float]:
    """Corrected agreement by the weight of the context itself."""
    known = {weight: _value(cell, item, f"simulated, {ties}") for weight, ties in WEIGHTS.items()}
    return {weight: x for weight, x in known.items() if np.isfinite(x)}


def _best_weight(cell: Cell, item: str) -> float:
    known = _of_weights(cell, item)
    whole = item == "contexts" and len(known) == len(WEIGHTS)
    return max(known, key=known.__getitem__) if whole else float("nan")


def _kernel_leads(cells: Sequence[Cell], items: Sequence[str]) -> Iterator[float]:
    for cell, item in product(cells, items):
        lead = _value(cell, item, KERNEL) - max(_of_weights(cell, item).values(), default=float("nan"))
        if np.isfinite(lead):
            yield lead


def _held(every: Sequence[Cell], items: Sequence[str]) -> dict[str, list[bool]]:
    """The cells of some items in which each statement holds."""
    cells, others = chosen(every, layers=LAYERS), [cell for cell in every if cell["layers"] != LAYERS]
    grow, smallest, widest = (partial(_ends, cells, along, items=items) for along in ("contexts", "target", "dim"))
    deepest = partial(_ends, every, "layers", items=items)
    kernels = [_value(cell, item, KERNEL) - _value(cell, item) for cell, item in product(others, items)]
    return {
        "contexts": [high < low for low, high in grow(_value)],
        "ties": [high > low for low, high in grow(_lead)],
        "loss": [high > low for low, high in smallest(_value)],
        "width": [high > low for low, high in widest(_value)],
        "itself, contexts": [high <= low for low, high in grow(_best_weight)],
        "itself, loss": [high <= low for low, high in smallest(_best_weight)],
        "kernel": [x >= -NEAR for x in _kernel_leads(cells, items)],
        "depth": [high < low for low, high in deepest(_value)],
        "depth, ties": [high < low for low, high in deepest(_lead)],
        "depth, kernel": [x >= -NEAR for x in kernels if np.isfinite(x)],
    }


def _by_item(held: Mapping[str, Mapping[str, list[bool]]], cells: Sequence[Cell]) -> Table:
    """Cells in which each statement holds, by item, and in how many a best weight is the same at both ends."""
    equal = {
        name: sum(low == high for low, high in _ends(cells, along, _best_weight))
        for name, along in (("itself, contexts", "contexts"), ("itself, loss", "target"))
    }
    return table_of(
        [
            {"hypothesis": Scale.hypotheses[name].statement}
            | {item: f"{sum(held[item][name])} of {len(held[item][name])}" for item in ITEMS}
            | {"the same at both ends": str(equal.get(name, ""))}
            for name in Scale.hypotheses
        ]
    )


def _by_width(cells: Sequence[Cell]) -> Table:
    """Cells in which less of the most contexts than of the fewest is explained, and the best weights, by width."""
    found = []
    for dim in sorted({cell["dim"] for cell in cells}):
        some = chosen(cells, dim=dim)
        row: dict[str, object] = {"width": dim}
        for item in ITEMS:
            falls = [high < low for low, high in _ends(some, "contexts", _value, (item,))]
            row[f"{item}: less with more contexts"] = f"{sum(falls)} of {len(falls)}"
        best = [x for x in (_best_weight(cell, "contexts") for cell in some) if np.isfinite(x)]
        found.append(row | {f"best at w = {weight:g}": best.count(weight) for weight in WEIGHTS})
    return table_of(found)


def _ends(
    cells: Sequence[Cell], along: str, value: Callable[[Cell, str], float], items: Sequence[str] = ITEMS
) -> Iterator[tuple[float, float]]:
    """A number at the smallest and at the largest of what varies, for each choice of the rest."""
    rest = [name for name in ("of", "contexts", "dim", "layers", "target") if name != along]
    for key in dict.fromkeys(tuple(cell[name] for name in rest) for cell in cells):
        same = [cell for cell in cells if tuple(cell[name] for name in rest) == key]
        low, high = min(same, key=lambda cell: cell[along]), max(same, key=lambda cell: cell[along])
        for item in items if low is not high else ():
            ends = value(low, item), value(high, item)
            if np.isfinite(ends).all():
                yield ends


def _table(cells: Sequence[Cell], *more: str) -> Table:
    found = []
    for cell, item in product(cells, ITEMS):
        agreements: Agreements = cell["agreements"]
        row = {"text": cell["of"], "contexts": cell["contexts"], "width": cell["dim"], "loss gap": cell["target"]}
        row |= {name: cell[name] for name in more}
        values = {name: str(agreements.corrected(name, MLP_NAME, item)) for name in SHOWN}
        found.append({**row, "item": item, "seeds agree": agreements.reproducible(MLP_NAME, item), **values})
    return table_of(found)


def _weights_table(cells: Sequence[Cell]) -> Table:
    """Corrected agreement of contexts by the weight of the context itself, and without anything shared."""
    found = []
    for cell in cells:
        row = {"text": cell["of"], "contexts": cell["contexts"], "width": cell["dim"], "loss gap": cell["target"]}
        known = _of_weights(cell, "contexts")
        row |= {f"w = {weight:g}": known.get(weight, float("nan")) for weight in WEIGHTS}
        row |= {"itself alone": _value(cell, "contexts", FREE), "kernel": _value(cell, "contexts", KERNEL)}
        found.append(row)
    return table_of(found)


def _figure(cells: Sequence[Cell]) -> Figure:
    """Explained share against the number of contexts, by kind of text, item and explanation."""
    panels = []
    for of, item in product(dict.fromkeys(cell["of"] for cell in cells), ITEMS):
        targets = sorted({cell["target"] for cell in cells if cell["of"] == of})
        middle = targets[len(targets) // 2]
        line = chosen(cells, of=of, dim=_most_common(cells, "dim"), target=middle)
        m = np.array([cell["contexts"] for cell in line], float)
        curves = [
            Curve(name, m, np.array([max(_value(cell, item, name), 0.0) ** 2 for cell in line])) for name in SHOWN
        ]
        title = f"{of}, {item}, loss gap {middle:g}"
        if any(np.isfinite(curve.y).any() for curve in curves):
            panels.append(LinePanel(title, "contexts", "explained share", curves, x_scale="log"))
    caption = "Square of the corrected agreement with an MLP, against the number of contexts of the text."
    return Figure("scale", "Explained share against the size of the text", caption, panels, columns=2)
