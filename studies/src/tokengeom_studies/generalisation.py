"""Whether margin, efficiency or the explained share of a training predict its loss on contexts that were held out.

Many trainings of one text are read at the same loss on nine tenths of its contexts, so that the training loss explains
nothing. A predictor is judged by its rank correlation with the held-out loss over trainings, each the mean of its
seeds.

margin       mean over contexts of the lowest logit of a token that follows less the highest of one that does not, per
             root mean square length of token and of context
efficiency   smallest nuclear norm of logits with this loss, over that of the training
explained    square of the corrected agreement with simulated tied features, over contexts with several next tokens
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from scipy.stats import rankdata

from tokengeom import predict
from tokengeom.extending import AbstractProgress, Figure, Float, Points, ScatterPanel
from tokengeom_studies.base import Findings, Recipe, Table, table_of
from tokengeom_studies.common.held_out_text import SEVERAL, HeldOutText
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
    firsts,
    share_of,
)
from tokengeom_studies.common.on_device import LogitSpectrum
from tokengeom_studies.common.torch_runs import DeviceText, Reached
from tokengeom_studies.common.variants import FIRST_SEED, MAIN, Agreements, Geometry, Variant, add_pairs, text_named
from tokengeom_studies.one_geometry import VARIANTS

SIMULATED, CERTIFIED = "simulated", "certified"
TRAININGS: Mapping[str, Variant] = {
    **{name: variant for name, variant in VARIANTS.items() if name != "gradient descent"},
    "decay 0.3": Variant(settings={"weight_decay": 0.3}),
    "decay 3": Variant(settings={"weight_decay": 3.0}),
    "half the width, 1 layer": Variant(settings={"dim": 32, "layers": 1}),
    "no last norm, start / 3": Variant(norm="none", start=1 / 3),
    "transformer, 1 layer": Variant("transformer", {"layers": 1, "heads": 4}),
}
PREDICTORS = ("margin", "efficiency", "explained")
OTHERS = ("seeds agree", "steps")
"""Numbers of a training that no hypothesis is about."""
INEFFICIENT = 0.4
"""Mean efficiency below which a training is left out where the others are looked at alone; chosen after the runs."""
WEAK, RESAMPLES = 0.3, 1_000
TOP = 0.68
"""Share of top tokens that rules on n-grams predict on Wikipedia, 0.79 on TinyStories: arXiv 2407.12034."""
NEAR = 0.02
"""Difference of shares of top tokens that counts as none."""
_TOPS = "A cell is a text, a loss gap and a training. It holds in at least 75% of the cells: yes; in at most 25%: no."
_RULE = (
    "Rank correlation with the held-out loss within a text and a loss gap, mean over these; 95% interval by resampling "
    f"trainings. Yes: all of it is below 0. No: all of it is above 0, or within {WEAK} of 0. Otherwise undecided."
)


class Generalisation(AbstractMeasuredStudy):
    """Trainings that differ in network, size, rate, regularisation and start, at the same training loss."""

    question = "Does margin, efficiency or the explained share of a training predict its held-out loss?"
    small: ClassVar[Recipe] = {
        "text": "stories",
        "stories": 200,
        "context": 3,
        "contexts": 120,
        "vocabulary": 40,
        "seed": 0,
        "held_out": 0.1,
        "trainings": list(TRAININGS),
        "dim": 64,
        "learning_rate": 1e-3,
        "gaps": [0.4, 0.2],
        "seeds": 2,
        "replicates": 5,
        "seconds": 300,
        "device": "cpu",
    }
    paper: ClassVar[Recipe] = {**small, "text": "tinystories_1000", "seeds": 5, "device": "cuda"}
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "margin": Hypothesis("A training with a larger margin has a lower held-out loss.", _RULE),
        "efficiency": Hypothesis("A training with a higher efficiency has a lower held-out loss.", _RULE),
        "explained": Hypothesis("A training of which more is explained has a lower held-out loss.", _RULE),
        "top token": Hypothesis(
            f"Simulated tied features ({MAIN}) have the network's top token in at least {TOP:.0%} of the held-out "
            "windows.",
            _TOPS,
        ),
        "top token, certified": Hypothesis(
            "So has the prediction of smallest gamma_2 norm at the loss with the same ties, proven.", _TOPS
        ),
        "certified or simulated": Hypothesis(
            f"It has the network's top token as often as simulated tied features do, within {NEAR} of the windows.",
            _TOPS,
        ),
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Simulate and train on the recipe's text, with the numbers of each training at each loss gap."""
        name = recipe["text"]
        if rows.has(kind="finished", text=name):
            return
        text = HeldOutText.drawn(text_named(name, recipe), recipe["held_out"], recipe["device"])
        facts = {"tokens": text.stats.V, "contexts": text.stats.m, "held_out": int((~text.kept).sum())}
        rows.add(kind="text", text=name, entropy=text.entropy, windows=text.stats.n, **facts)
        norms = {}
        for gap in sorted(recipe["gaps"], reverse=True):
            solved = DeviceText(text.trained, recipe["device"]).prediction(gap, "nuclear")
            norms[gap] = solved.norm_value
            rows.add(kind="prediction", text=name, target=gap, **solved.facts())
        base, tops, found = VARIANTS["base"].simulation(), dict[float, Any](), _Found()
        for seed in range(FIRST_SEED, FIRST_SEED + recipe["replicates"]):
            for read in base.reached(text, text.stats, recipe, seed, text.kept, labels=text.labels):
                found.add(read.target, SIMULATED, text.geometry(read.W, read.H))
                tops[read.target] = tops.get(read.target, 0.0) + text.torch.softmax(read.W @ read.H, 0)
        tops = {
            gap: {SIMULATED: p.argmax(0), CERTIFIED: _certified_top(name, text, gap, rows)} for gap, p in tops.items()
        }
        with progress.stage(f"Trainings on {name}", float(len(recipe["trainings"]))) as stage:
            for training in recipe["trainings"]:
                stage.advance(1.0, training)
                for seed in range(recipe["seeds"]):
                    given = (text, text.stats, recipe, seed, text.kept)
                    for read in TRAININGS[training].reached(*given, labels=text.labels):
                        found.add(read.target, training, text.geometry(read.W, read.H))
                        run = {"text": name, "training": training, "seed": seed, "target": read.target}
                        numbers = numbers_of(text, read, norms[read.target], tops[read.target])
                        rows.add(kind="top", **run, **numbers.pop("tops"))
                        rows.add(kind="run", **run, **numbers)
        for gap, geometries in found.by_gap.items():
            several = {training: runs for training, runs in geometries.items() if len(runs) > 1}
            add_pairs(rows, {"text": name, "target": gap}, several, lambda one, _: one == SIMULATED)
        rows.add(kind="finished", text=name)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Rank correlations within each text and loss gap, and their means."""
        # Trainings that were made again, for tokens of another prediction, count as they were measured first.
        rows = firsts(rows, "kind", "text", "target", "training", "seed", "a", "b")
        tops = _tops(rows)
        cells = [_Cell(rows, *key) for key in dict.fromkeys((x["text"], x["target"]) for x in chosen(rows, kind="run"))]
        correlations = {name: _mean_rank_correlation(cells, name) for name in PREDICTORS}
        answers = {name: _decided(found) for name, found in correlations.items()}
        answers["top token"] = share_of(row["same_top"] >= TOP for cell in cells for row in cell.means)
        answers["top token, certified"] = share_of(row[CERTIFIED] >= TOP for row in tops)
        answers["certified or simulated"] = share_of(row[CERTIFIED] >= row[SIMULATED] - NEAR for row in tops)
        tables = {
            "hypotheses": self.answers(answers),
            **({"top tokens": _by_text(tops)} if tops else {}),
            "correlations": _correlations(cells),
            "predictors": _predictors(cells, correlations),
            "trainings": table_of([{"text": c.text, "loss gap": c.target, **row} for c in cells for row in c.means]),
        }
        parts = [f"{name} {found}" for name, found in correlations.items()]
        top = float(np.mean([row["same_top"] for cell in cells for row in cell.means]))
        sentence = (
            (
                f"Rank correlation with the held-out loss at equal training loss: {', '.join(parts)}. Simulated tied "
                f"features have the top token of a network in {top:.0%} of the held-out windows."
            )
            .replace("nan", "unknown")
            .replace("inf", "unbounded")
        )
        return self.findings(recipe, sentence, checks_of(rows), [_figure(cells)], tables)


def _certified_top(name: str, text: HeldOutText, gap: float, rows: Rows) -> Any:
    """Top tokens after every context of the proven prediction with ties, held-out contexts included."""
    device = {"device": text.device} if text.device != "cpu" else {}
    at = predict(text.trained, loss_gap=gap, ties=MAIN, norm="gamma2", tolerance=5e-3, **device)  # type: ignore[call-overload]
    H = np.asarray((at.features.of(np.asarray(text.stats.contexts)).T @ at.A.T).T)
    L = text.placed(at.W) @ text.placed(H)
    unseen = {name: x for name, x in text.unseen(L, {}).items() if name != "same_top"}
    rows.add(kind="certified", text=name, target=gap, relative_gap=at.relative_gap, rank=at.rank, **unseen)
    return L.argmax(0)


def _tops(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Share of held-out windows with the network's top token, of both predictions, mean over seeds."""
    own = chosen(rows, kind="top")
    keys = dict.fromkeys((row["text"], row["target"], row["training"]) for row in own)
    found = []
    for text, target, training in keys:
        some = chosen(own, text=text, target=target, training=training)
        means = {name: float(np.mean([row[name] for row in some])) for name in (SIMULATED, CERTIFIED)}
        found.append({"text": text, "loss gap": target, "training": training, "seeds": len(some), **means})
    return found


def _by_text(tops: Sequence[Mapping[str, Any]]) -> Table:
    """The same for each text and loss gap: means over trainings, and in how many the proven one is as often right."""
    found = []
    for text, target in dict.fromkeys((row["text"], row["loss gap"]) for row in tops):
        own = [row for row in tops if (row["text"], row["loss gap"]) == (text, target)]
        means = {name: float(np.mean([row[name] for row in own])) for name in (SIMULATED, CERTIFIED)}
        as_often = sum(row[CERTIFIED] >= row[SIMULATED] - NEAR for row in own)
        found.append({"text": text, "loss gap": target, **means, "as often": f"{as_often} of {len(own)}"})
    return table_of(found)


class _Found:
    """Geometries by loss gap and training."""

    def __init__(self) -> None:
        self.by_gap: dict[float, dict[str, list[Geometry]]] = {}

    def add(self, gap: float, training: str, geometry: Geometry) -> None:
        self.by_gap.setdefault(gap, {}).setdefault(training, []).append(geometry)


def numbers_of(text: HeldOutText, read: Reached, norm: float, tops: Mapping[str, Any]) -> dict[str, Any]:
    """Held-out loss, predictors and top tokens of a training; the latter beside those of others, by name."""
    torch = text.torch
    kept = torch.as_tensor(np.flatnonzero(text.kept), device=text.device)
    W, L = read.W - read.W.mean(0), read.W @ read.H
    unseen = text.unseen(L, tops)
    follows = text.P[:, kept] > 0
    lowest = torch.where(follows, L[:, kept], torch.inf).amin(0)
    highest = torch.where(follows, -torch.inf, L[:, kept]).amax(0)
    length = float(W.norm(dim=1).square().mean().sqrt() * read.H[:, kept].norm(dim=0).square().mean().sqrt())
    return {
        "loss_gap": read.loss_gap,
        "step": read.step,
        "held_out": unseen["loss"],
        "right": unseen["right"],
        "same_top": unseen["same_top"][SIMULATED],
        "tops": unseen["same_top"],
        "margin": float((lowest - highest).mean()) / length,
        "efficiency": norm / LogitSpectrum.of(W, read.H[:, kept]).nuclear_norm,
    }


class _Cell:
    """The trainings of one text at one loss gap, each with means over its seeds."""

    def __init__(self, rows: Sequence[Row], text: str, target: float) -> None:
        self.text, self.target = text, target
        runs, agreements = (
            chosen(rows, kind="run", text=text, target=target),
            Agreements(rows, text=text, target=target),
        )
        self.means: list[dict[str, Any]] = []
        for training in dict.fromkeys(run["training"] for run in runs):
            own = chosen(runs, training=training)
            names = ("held_out", "right", "same_top", "margin", "efficiency", "step")
            means = {name: float(np.mean([run[name] for run in own])) for name in names}
            means |= {"steps": means.pop("step"), "seeds agree": agreements.reproducible(training, SEVERAL)}
            means["explained"] = max(agreements.value(SIMULATED, training, SEVERAL), 0.0) ** 2
            self.means.append({"training": training, "seeds": len(own), **means})

    def column(self, name: str) -> Float:
        return np.array([row[name] for row in self.means], float)

    def rank_correlation(self, name: str, drawn: Sequence[str] | None = None) -> float:
        """Spearman's correlation of a predictor with the held-out loss, over trainings or some of them, repeated."""
        place = {row["training"]: k for k, row in enumerate(self.means)}
        used = [place[x] for x in (place if drawn is None else drawn) if x in place]
        x, y = self.column(name)[used], self.column("held_out")[used]
        known = np.isfinite(x) & np.isfinite(y)
        if len(set(x[known])) < 3:
            return float("nan")
        return float(np.corrcoef(rankdata(x[known]), rankdata(y[known]))[0, 1])


def _mean_rank_correlation(cells: Sequence[_Cell], name: str, left_out: Sequence[str] = ()) -> Interval:
    """Mean over cells, with the interval from resampling trainings, the same ones in each cell."""
    trainings = [name for name in _trainings(cells) if name not in left_out]
    random = np.random.default_rng(0)
    if not trainings:
        return Interval.of([])

    def mean(drawn: Sequence[str]) -> float:
        known = [x for x in (cell.rank_correlation(name, drawn) for cell in cells) if np.isfinite(x)]
        return float(np.mean(known)) if known else float("nan")

    drawn = [mean([str(x) for x in random.choice(trainings, len(trainings))]) for _ in range(RESAMPLES)]
    known = [x for x in drawn if np.isfinite(x)]
    low, high = np.quantile(known, [0.025, 0.975]) if known else (-np.inf, np.inf)
    return Interval(mean(trainings), float(low), float(high), len(trainings))


def _trainings(cells: Sequence[_Cell]) -> list[str]:
    return list(dict.fromkeys(row["training"] for cell in cells for row in cell.means))


def _predictors(cells: Sequence[_Cell], correlations: Mapping[str, Interval]) -> Table:
    """Rank correlations of all predictors, over all trainings and without the inefficient ones."""
    efficiency = {
        name: np.mean([row["efficiency"] for cell in cells for row in cell.means if row["training"] == name])
        for name in _trainings(cells)
    }
    left_out = [name for name, value in efficiency.items() if value < INEFFICIENT]
    column = f"without {', '.join(left_out) or 'none'}"
    found = []
    for name in (*PREDICTORS, *OTHERS):
        every = correlations[name] if name in correlations else _mean_rank_correlation(cells, name)
        found.append(
            {
                "predictor": name,
                "stated before": "yes" if name in PREDICTORS else "no",
                "all trainings": str(every),
                column: str(_mean_rank_correlation(cells, name, left_out)),
            }
        )
    return table_of(found)


def _decided(found: Interval) -> Answer:
    decision: Decision = "undecided"
    if found.high < 0:
        decision = "yes"
    elif found.low > 0 or (found.low > -WEAK and found.high < WEAK):
        decision = "no"
    return Answer(decision, f"rank correlation {found} over {found.count} trainings")


def _correlations(cells: Sequence[_Cell]) -> Table:
    found = []
    for cell in cells:
        known = {name: cell.rank_correlation(name) for name in PREDICTORS}
        found.append({"text": cell.text, "loss gap": cell.target, "trainings": len(cell.means), **known})
    return table_of(found)


def _points(cell: _Cell, name: str) -> Iterator[tuple[float, float]]:
    for x, y in zip(cell.column(name), cell.column("held_out") - cell.column("held_out").mean(), strict=True):
        if np.isfinite(x):
            yield float(x), float(y)


def _figure(cells: Sequence[_Cell]) -> Figure:
    """Held-out loss against each predictor, one point per training."""
    panels = []
    for name in PREDICTORS:
        points = []
        for kind in dict.fromkeys(cell.text.rsplit("_", 1)[0] for cell in cells):
            given = [xy for cell in cells if cell.text.rsplit("_", 1)[0] == kind for xy in _points(cell, name)]
            points.append(Points(kind, *np.array(given).reshape(-1, 2).T))
        panels.append(ScatterPanel(name.capitalize(), name, "held-out loss less its mean, nats", points))
    caption = "Loss on held-out contexts, less its mean over trainings, for trainings with the same training loss."
    return Figure("predictors", "What predicts the held-out loss", caption, panels, columns=3)
