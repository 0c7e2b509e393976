"""Which part of "Adam goes with the gamma_2 norm" is the optimizer's, and which comes from vectors of equal length.

Unconstrained features are trained with each optimizer, once free, and with contexts, tokens or both on a sphere: after
every step all vectors of that side are given their mean length. Trainings are compared at the same loss with four
certified norms, which differ in where the longest vector counts and where the mean square does:

nuclear: neither longest, ``longest context``: contexts alone, ``longest token``: tokens alone, gamma_2: both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np

from tokengeom import NextTokenStatistics, TrainingSettings
from tokengeom.extending import AbstractProgress, Figure, HeatmapPanel
from tokengeom_studies.base import Findings, Recipe, Table, table_of
from tokengeom_studies.common.compared_trainings import adapted_below
from tokengeom_studies.common.corrected import jackknifed
from tokengeom_studies.common.measured import (
    AbstractMeasuredStudy,
    Answer,
    Decision,
    Hypothesis,
    Interval,
    Row,
    Rows,
    checks_of,
    chosen,
    decided_together,
    share_of,
)
from tokengeom_studies.common.other_norms import smallest_one_sided
from tokengeom_studies.common.stepped_training import SteppedTraining
from tokengeom_studies.common.torch_runs import DeviceText, Predicted, Reached, first_below
from tokengeom_studies.common.variants import Agreements, Geometry, add_pairs, as_geometry, text_named
from tokengeom_studies.optimizer_norms import TRAININGS

ITEMS = ("contexts", "tokens")
SPHERES: Mapping[str, tuple[str, ...]] = {
    "free": (),
    "contexts": ("contexts",),
    "tokens": ("tokens",),
    "both": ("contexts", "tokens"),
}
NORMS = {"free": "nuclear", "contexts": "longest context", "tokens": "longest token", "both": "gamma_2"}
"""Which vectors have equal lengths -> the norm in which the longest of these counts, and the mean square otherwise."""
DIM = 128
"""Dimensions of the trainings of all statements but that on more of them."""
_ALL_TEXTS = "Yes where it is so on every text (95% interval over seeds), no where the opposite is so on one."


class OnSpheres(SteppedTraining):
    """Unconstrained features of which the vectors of some sides have equal length after every step."""

    equal: tuple[str, ...] = ()

    def advance(self, steps: int, *, rate: float = 1.0, windows: Any = None) -> None:
        """Make steps, and replace each length by the mean length of its side."""
        for _ in range(steps):
            super().advance(1, rate=rate, windows=windows)
            W, H = self.factors()
            for side, rows in (("tokens", W), ("contexts", H.mT)):
                if side in self.equal:
                    lengths = rows.norm(dim=1, keepdim=True)
                    rows.mul_(lengths.mean() / lengths)


class EqualLengths(AbstractMeasuredStudy):
    """Four optimizers, with and without equal lengths of contexts and of tokens, beside four norms at the same loss."""

    question = "Is it the optimizer or the equal length of vectors that goes with the gamma_2 norm?"
    small: ClassVar[Recipe] = {
        "text": "stories",
        "stories": 200,
        "context": 3,
        "contexts": 60,
        "vocabulary": 40,
        "seed": 0,
        "optimizers": ["gd", "adam", "sign descent", "muon"],
        "dim": DIM,
        "gap": 0.05,
        "seeds": 3,
        "seconds": 300,
        "device": "cpu",
    }
    paper: ClassVar[Recipe] = {**small, "text": "tinystories_400", "seeds": 5, "device": "cuda"}
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "free": Hypothesis(
            "Free features: contexts under gradient descent agree better with the nuclear norm than with gamma_2, and "
            "under Adam the other way round.",
            "Yes where it is so on every text (95% interval over seeds), no where one of the two is not on one.",
        ),
        "lengths": Hypothesis(
            "With contexts and tokens on spheres, contexts under gradient descent agree better with gamma_2 than with "
            "the nuclear norm.",
            _ALL_TEXTS,
        ),
        "more than half": Hypothesis(
            "Equal lengths account for at least half of what separates Adam from gradient descent. With l the "
            "corrected agreement of contexts with gamma_2 less that with the nuclear norm, (l(descent on both spheres) "
            "- l(descent free)) / (l(Adam free) - l(descent free)) is at least 1/2.",
            _ALL_TEXTS,
        ),
        "one side": Hypothesis(
            "Under gradient descent each choice of spheres goes with the norm in which the same sides count by their "
            "longest vector: it agrees best of the four.",
            "A cell is a text, a choice of spheres and an item. It holds in at least 75% of the cells: yes; in at most "
            "25%: no.",
        ),
        "every optimizer": Hypothesis(
            "For each optimizer, the lead of gamma_2 over the nuclear norm is larger on both spheres than free.",
            "A cell is a text, an optimizer and an item. The same shares decide.",
        ),
        "more dimensions": Hypothesis(
            f"It is not because of too few dimensions: with more of them than the rank of every prediction, and more "
            f"than {DIM}, equal lengths account for at least half as well.",
            _ALL_TEXTS,
        ),
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Solve in four norms, train every optimizer with every choice of spheres, then compare."""
        name, stats, gap = _named(recipe), text_named(recipe["text"], recipe), recipe["gap"]
        if rows.has(kind="finished", text=name):
            return
        text, found = DeviceText(stats, recipe["device"]), dict[str, list[Geometry]]()
        rows.add(kind="text", text=name, tokens=stats.V, contexts=stats.m, windows=stats.n, entropy=stats.entropy)
        solvers: Mapping[str, Callable[[], Predicted]] = {
            "nuclear": lambda: text.prediction(gap, "nuclear"),
            "longest context": lambda: smallest_one_sided(text, gap, "contexts"),
            "longest token": lambda: smallest_one_sided(text, gap, "tokens"),
            "gamma_2": lambda: text.prediction(gap, "gamma2"),
        }
        for norm, solve in solvers.items():
            solved = solve()
            rows.add(kind="prediction", text=name, norm=norm, target=gap, **solved.facts())
            found[norm] = [as_geometry(text.geometry(solved.W, solved.H))]
        cells = list(product(recipe["optimizers"], SPHERES))
        with progress.stage(f"Trainings on {name}", float(len(cells))) as stage:
            for optimizer, spheres in cells:
                stage.advance(1.0, f"{optimizer}, {spheres}")
                for seed in range(recipe["seeds"]):
                    for read in _reached(text, stats, recipe, optimizer, spheres, seed):
                        found.setdefault(f"{optimizer}, {spheres}", []).append(
                            as_geometry(text.geometry(read.W, read.H))
                        )
                        lengths = {"tokens": read.W.norm(dim=1), "contexts": read.H.norm(dim=0)}
                        spread = {f"spread of {side}": float(x.std() / x.mean()) for side, x in lengths.items()}
                        facts = {"seed": seed, "loss_gap": read.loss_gap, "step": read.step, **spread}
                        rows.add(kind="run", text=name, optimizer=optimizer, spheres=spheres, target=gap, **facts)
        several = {key: runs for key, runs in found.items() if len(runs) > 1 or key in solvers}
        add_pairs(rows, {"text": name}, several, lambda one, _: one in solvers)
        rows.add(kind="finished", text=name)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Corrected agreement of each training with each norm, and what follows for each statement."""
        every = {row["text"]: Agreements(rows, text=row["text"]) for row in chosen(rows, kind="text")}
        of = {text: agreements for text, agreements in every.items() if _MORE not in text}
        descent, adam = ([_lead(a, name, sign) for a in of.values()] for name, sign in _FREE.items())
        answers = {
            "free": _together([*descent, *adam]),
            "lengths": _together([_lead(a, "gd, both") for a in of.values()]),
            "more than half": _together([_share(a) for a in of.values()], least=0.5),
            "one side": share_of(_own_norm_is_best(of)),
            "every optimizer": share_of(_leads_rise(of, recipe["optimizers"])),
            "more dimensions": _together([_share(a) for text, a in every.items() if _MORE in text], least=0.5),
        }
        tables = {
            "hypotheses": self.answers(answers),
            "leads": _leads_table(of, recipe),
            "cells": _cells_table(of, recipe),
            "norms": _table(every, rows),
            "certificates": table_of(
                [
                    {key: row[key] for key in ("text", "norm", "loss_gap", "norm_value", "relative_gap", "rank")}
                    for row in chosen(rows, kind="prediction")
                ]
            ),
        }
        parts = [f"{_share(a).mean:.2f} on {text}" for text, a in of.items() if np.isfinite(_share(a).mean)]
        sentence = (
            "Part of the lead of gamma_2 that separates Adam from gradient descent, and that equal lengths alone give "
            f"to gradient descent: {', '.join(parts) or 'not measured'}; {len(chosen(rows, kind='run'))} trainings."
        )
        return self.findings(recipe, sentence, checks_of(rows), [_figure(of)], tables)


_MORE = ", d = "


def _named(recipe: Recipe) -> str:
    """The text, with the dimensions where there are more than the usual ones."""
    return str(recipe["text"]) + (f"{_MORE}{recipe['dim']}" if recipe["dim"] > DIM else "")


def _reached(
    text: DeviceText, stats: NextTokenStatistics, recipe: Recipe, optimizer: str, spheres: str, seed: int
) -> Iterator[Reached]:
    training = TRAININGS[optimizer]
    settings = TrainingSettings(**{"model": "ufm", "dim": recipe["dim"], "seed": seed, **training.settings})
    run = OnSpheres(stats, settings, start_scale=training.start_scale, device=text.device)
    run.equal = SPHERES[spheres]
    below: Callable[..., Iterator[Reached]] = adapted_below if training.adapted else first_below
    return below(run, text, [recipe["gap"]], seconds=recipe["seconds"])


def _lead_of(agreements: Agreements, training: str, item: str, left: int | None = None) -> float:
    both = [agreements.value(norm, training, item, left) for norm in ("gamma_2", "nuclear")]
    return both[0] - both[1]


def _lead(agreements: Agreements, training: str, sign: float = 1.0) -> Interval:
    """Lead of gamma_2 over the nuclear norm for contexts, or of the nuclear norm with sign -1."""
    return jackknifed(agreements.seeds(training), lambda left: sign * _lead_of(agreements, training, "contexts", left))


def _share(agreements: Agreements) -> Interval:
    """Part of the difference of leads between free Adam and free descent that descent on both spheres has."""

    def share(left: int | None) -> float:
        on, free, adam = (
            _lead_of(agreements, name, "contexts", left) for name in ("gd, both", "gd, free", "adam, free")
        )
        return (on - free) / (adam - free)

    return jackknifed(agreements.seeds("gd, free"), share)


def _together(intervals: Sequence[Interval], least: float = 0.0) -> Answer:
    """Yes where every interval is above ``least``, no where one is below."""
    known = [x for x in intervals if np.isfinite(x.mean)]
    decisions: list[Decision] = ["yes" if x.low > least else "no" if x.high < least else "undecided" for x in known]
    return Answer(decided_together(decisions), "; ".join(map(str, known)) or "not measured")


def _own_norm_is_best(of: Mapping[str, Agreements]) -> Iterator[bool]:
    for spheres, own in NORMS.items():
        yield from (best == own for best in _best_norms(of, f"gd, {spheres}") if best)


def _cells_table(of: Mapping[str, Agreements], recipe: Recipe) -> Table:
    """Cells behind the last two hypotheses, by choice of spheres and by optimizer."""
    best = {spheres: [x for x in _best_norms(of, f"gd, {spheres}") if x] for spheres in NORMS}
    found = [
        {"statement": f"gd, {spheres}: {own} is best", "cells": f"{best[spheres].count(own)} of {len(best[spheres])}"}
        for spheres, own in NORMS.items()
    ]
    for optimizer in recipe["optimizers"]:
        rises = list(_leads_rise(of, [optimizer]))
        statement = f"{optimizer}: gamma_2 leads by more on both spheres than free"
        found.append({"statement": statement, "cells": f"{sum(rises)} of {len(rises)}"})
    return table_of(found)


def _leads_rise(of: Mapping[str, Agreements], optimizers: Sequence[str]) -> Iterator[bool]:
    for agreements, optimizer, item in product(of.values(), optimizers, ITEMS):
        free, both = (_lead_of(agreements, f"{optimizer}, {spheres}", item) for spheres in ("free", "both"))
        if np.isfinite(free) and np.isfinite(both):
            yield both > free


_FREE = {"gd, free": -1.0, "adam, free": 1.0}
"""Free trainings -> sign of the lead of gamma_2 that is expected."""


def _trainings(agreements: Agreements) -> list[str]:
    return [name for name in agreements.names if name not in NORMS.values()]


def _leads_table(of: Mapping[str, Agreements], recipe: Recipe) -> Table:
    """Lead of gamma_2 over the nuclear norm, mean over texts (lowest to highest), and how often each norm is best."""
    found = []
    for optimizer, spheres in product(recipe["optimizers"], SPHERES):
        name = f"{optimizer}, {spheres}"
        row: dict[str, object] = {"optimizer": optimizer, "on a sphere": spheres}
        for item in ITEMS:
            leads = [x for x in (_lead_of(a, name, item) for a in of.values()) if np.isfinite(x)]
            row[f"gamma_2 less nuclear, {item}"] = (
                f"{np.mean(leads):.3f} ({min(leads):.3f} to {max(leads):.3f})" if leads else "-"
            )
        best = [norm for norm in _best_norms(of, name) if norm]
        row["best norm"] = ", ".join(f"{norm} {best.count(norm)}" for norm in NORMS.values() if norm in best)
        found.append(row)
    return table_of(found)


def _best_norms(of: Mapping[str, Agreements], training: str) -> Iterator[str]:
    """The norm that agrees best with a training, per text and item; empty where one is not known."""
    for agreements, item in product(of.values(), ITEMS):
        values = {norm: agreements.value(norm, training, item) for norm in NORMS.values()}
        yield max(values, key=values.__getitem__) if np.isfinite(list(values.values())).all() else ""


def _table(of: Mapping[str, Agreements], rows: Sequence[Row]) -> Table:
    """Corrected agreement of each training with each norm, contexts / tokens, and how unequal its lengths are."""
    found = []
    for text, agreements in of.items():
        for name in _trainings(agreements):
            optimizer, spheres = name.rsplit(", ", 1)
            runs = chosen(rows, kind="run", text=text, optimizer=optimizer, spheres=spheres)
            row: dict[str, object] = {"text": text, "optimizer": optimizer, "on a sphere": spheres, "seeds": len(runs)}
            for norm in NORMS.values():
                row[norm] = " / ".join(f"{agreements.value(norm, name, item):.3f}" for item in ITEMS)
            row["gamma_2 less nuclear, contexts"] = str(_lead(agreements, name))
            spreads = [float(np.mean([run[f"spread of {side}"] for run in runs])) for side in ITEMS]
            row["spread of lengths"] = " / ".join(f"{x:.2f}" for x in spreads)
            found.append(row)
    return table_of(found)


def _figure(of: Mapping[str, Agreements]) -> Figure:
    """How far each norm is behind the best of the four, mean over texts, one panel per item."""
    trainings = list(dict.fromkeys(name for agreements in of.values() for name in _trainings(agreements)))
    breaks = list(range(len(SPHERES), len(trainings), len(SPHERES)))

    def behind(training: str, item: str) -> list[float]:
        values = np.array([[a.value(norm, training, item) for norm in NORMS.values()] for a in of.values()])
        known = values[np.isfinite(values).all(axis=1)]
        best = known.max(axis=1, keepdims=True)
        return [float(x) for x in (known - best).mean(axis=0)] if known.size else [float("nan")] * len(NORMS)

    panels = [
        HeatmapPanel(
            item.capitalize(), np.array([behind(training, item) for training in trainings]), "norm",
            "optimizer, on a sphere", list(NORMS.values()), trainings, [], breaks,
            None, 0.0, "agreement less the best",
        )
        for item in ITEMS
    ]  # fmt: skip
    caption = (
        "Corrected agreement of unconstrained features with the logits of smallest norm at the same loss, less that of "
        "the norm that agrees best; mean over texts."
    )
    return Figure("lengths", "Optimizers, equal lengths and norms", caption, panels, columns=2)
