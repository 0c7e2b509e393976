"""The papers' run on natural TinyStories: 100 stories, 64 tokens, contexts of 6, a transformer of 12 layers.

[zhao2024] trains a network of this size on such a text and shows cosines between 10 contexts of each of 10 supports.
The same is measured here: cosines within and between supports, agreement with predictions and with simpler
explanations, the papers' SIM, and angles between contexts and tokens. Batches are windows with one-hot labels, and an
epoch shows every window once.

Trainings for longer than these, with ``whole`` in the recipe, are measured on the way and kept apart.

Most contexts of 6 tokens are followed by a single token, so contexts with several next tokens are measured separately.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tokengeom.extending import AbstractProgress, Curve, Figure, HeatmapPanel, LinePanel, SoftLabels, cosines
from tokengeom_studies.base import Findings, Recipe, Table, table_of
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Answer, Hypothesis, Row, Rows, chosen
from tokengeom_studies.common.model_runs import require_device
from tokengeom_studies.common.stepped_training import SteppedTraining
from tokengeom_studies.common.support_directions import (
    GAMMA2,
    LIMIT,
    NUCLEAR,
    SUPPORTS,
    DirectionFindings,
    Directions,
    GroupedText,
)
from tokengeom_studies.common.torch_runs import training_settings

TOKENS = (
    "\n|!|\"|'|,|-|.|3|:|;|?|a|b|c|d|e|f|g|h|i|j|k|l|m|n|o|p|q|r|s|t|u|v|w|x|y|z|\u2013|\u2019|\u201c|\u201d"
    "| | t|he| a| the| s| w|nd| b|ed| to| and| h| f|in|it| l|ou|re| he| wa| d| p"
)
"""Tokens of the paper recipe: byte-pair encoding of 100 stories in lower case, 42 characters and 22 merges."""


_LONGER = (
    "The mean over the seeds that were trained so long decides, however few: after 60 epochs six seeds differ by 0.02."
)
FIRST, LAST = 60, 600
"""Epochs of a longer training that are compared."""


class PapersTinyStories(AbstractMeasuredStudy):
    """Natural TinyStories in the papers' size."""

    question: ClassVar[str] = "Does a transformer trained on natural stories show the geometry that the papers show?"
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "entropy": Hypothesis(
            "The network comes near the entropy of the text.",
            "The loss gap at the end is below 0.05 nats: the 95% interval over seeds lies below.",
        ),
        "blocks": Hypothesis(
            "Contexts that the same tokens follow point in similar directions, as in the papers' heat-map.",
            "Over 10 supports with 10 contexts each, the mean cosine within supports exceeds that between supports by "
            "more than 0.5: the interval lies above.",
        ),
        "collapse": Hypothesis(
            "Contexts that the same tokens follow share one direction.",
            "The mean cosine within supports is above 0.9: the interval lies above.",
        ),
        "loss": Hypothesis(
            "The prediction at the loss reached (gamma_2 norm, for AdamW) is nearer to the contexts than L_mm.",
            "Paired difference of agreement on contexts with several next tokens: the interval lies above 0.",
        ),
        "supports": Hypothesis(
            "The same prediction is nearer to the contexts than plain cosines of centred supports.",
            "Paired difference of agreement on contexts with several next tokens: the interval lies above 0.",
        ),
        "ceiling": Hypothesis(
            "It explains nine tenths of what two trainings have in common.",
            "Its agreement, divided by the agreement between seeds, is above 0.9: the interval lies above.",
        ),
        "proxy": Hypothesis(
            "Support overlaps are already a good proxy, as the papers and the talk say.",
            "SIM of the contexts of the heat-map with S~ is above 0.8: the interval lies above.",
        ),
        "angles": Hypothesis(
            "A context forms smaller angles with all tokens that may follow it than with any other token.",
            "This holds for more than 95% of the contexts with several next tokens: the interval lies above.",
        ),
        "longer, collapse": Hypothesis(
            "After 600 epochs contexts that the same tokens follow share one direction.",
            f"The mean cosine within supports is above 0.9. {_LONGER}",
        ),
        "longer, agreement": Hypothesis(
            "From epoch 60 to epoch 600 of one training, agreement with the prediction at the loss reached (gamma_2 "
            "norm) changes by at most 0.05.",
            f"Over contexts with several next tokens. {_LONGER}",
        ),
        "longer, limit": Hypothesis(
            "Agreement with L_mm is higher at epoch 600 than at epoch 60 of the same training.",
            f"Over contexts with several next tokens. {_LONGER}",
        ),
    }
    # The sources give layers, dimension, epochs, tokens and context length of this run, and not its heads, optimizer,
    # rate, schedule or batch; those are AdamW with the papers' weight decay, and what suits a run of this length.
    small: ClassVar[Recipe] = {
        "seeds": [0, 1],
        "seed": 0,
        "text": "stories",
        "tokens": [],
        "stories": 60,
        "context": 3,
        "contexts": 200,
        "vocabulary": 60,
        "supports": 10,
        "each": 10,
        "layers": 2,
        "heads": 4,
        "dim": 64,
        "epochs": 40,
        "batch": 256,
        "learning_rate": 2e-3,
        "weight_decay": 1e-6,
        "warmup": 10,
        "records": [1, 3, 10, 20, 40],
        "whole": [],
        "compiled": False,
        "precision": "float32",
        "device": "cpu",
    }
    paper: ClassVar[Recipe] = {
        **small,
        "seeds": [0, 1, 2, 3, 4],
        "text": "texts/papers_tinystories.npz",
        "tokens": TOKENS.split("|"),
        "stories": 100,
        "context": 6,
        "contexts": 0,
        "vocabulary": 64,
        "layers": 12,
        "heads": 8,
        "dim": 512,
        "epochs": 60,
        "batch": 2048,
        "learning_rate": 5e-4,
        "warmup": 50,
        "records": [1, 3, 10, 30, 60, 100, 300, 600],
        "precision": "bfloat16",
        "device": "cuda",
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Train one network per seed, and compare each with predictions, explanations and the other seeds."""
        require_device(recipe)
        text = GroupedText(recipe)
        if not rows.has(kind="text"):
            rows.add(kind="text", **text.facts())
        finished: dict[int, Directions] = {}
        with progress.stage("Training", len(recipe["seeds"])) as stage:
            for seed in recipe["seeds"]:
                if not rows.has(kind="run", seed=seed):
                    run = _trained(text, recipe, seed, rows)
                    if run is None or recipe["whole"]:
                        return
                    rows.add(kind="run", seed=seed, **_measured(text, run, picture=seed == recipe["seeds"][0]))
                    for other, before in finished.items():
                        rows.add(kind="ceiling", seeds=[other, seed], **before.agreement(run, text))
                    finished[seed] = run
                stage.advance(1.0)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Decide the hypotheses from the last epoch of every seed."""
        runs, (text, *_) = chosen(rows, kind="run"), chosen(rows, kind="text")
        judged = DirectionFindings(runs, chosen(rows, kind="ceiling"))
        # A training that was cut off has epochs and no end.
        finished = {row["seed"] for row in runs}
        epochs = [row for row in chosen(rows, kind="epoch") if row["seed"] in finished]
        longer = _Longer(rows)
        tables = {
            "hypotheses": self.answers(judged.answers() | longer.answers()),
            **longer.tables(),
            "training": _training_table(epochs),
            "agreement": judged.agreement_table(),
            "corrected": judged.corrected_table(),
            "angles": judged.angle_table(),
            "blocks": judged.block_table(),
            "text": table_of([{name: text[name] for name in text if name not in ("kind", "names")}]),
        }
        figures = [_heatmaps(runs[0], text), _training_figure(epochs)]
        return self.findings(recipe, judged.sentence(text), judged.checks(), figures, tables)


def _trained(text: GroupedText, recipe: Recipe, seed: int, rows: Rows) -> Directions | None:
    """Train a network and add a row per recorded epoch; None where the time was over before the last epoch."""
    labels, batch = SoftLabels.from_statistics(text.stats), recipe["batch"]
    counts = np.rint(labels.share * labels.weight[labels.context] * labels.windows).astype(np.int64)
    windows = np.repeat(np.arange(counts.size), counts)
    steps = max(windows.size // batch, 1)
    plan = {name: recipe[name] for name in ("weight_decay", "precision", "device")}
    plan |= {"steps": steps * recipe["epochs"], "batch": batch, "reduction": "mean"}
    plan |= {"compiled": recipe["compiled"], "rate_schedule": {"name": "cosine", "warmup": recipe["warmup"]}}
    settings = training_settings(recipe, "transformer", seed, **plan)
    run, shuffled, began = text.device.begin(settings), np.random.default_rng(seed), time.monotonic()
    cut = _Cut(rows, seed)
    first = cut.resume(run) // steps + 1 if recipe["whole"] else 1
    for epoch in range(1, recipe["epochs"] + 1):
        order = shuffled.permutation(windows)[: steps * batch]
        if epoch < first:
            continue
        run.advance(steps, windows=order.reshape(steps, -1))
        last = epoch == recipe["epochs"]
        if recipe["whole"]:
            if epoch in recipe["whole"]:
                where = {"seed": seed, "epoch": epoch, "epochs": recipe["epochs"]}
                _add_whole(text, _read(text, run), rows, **where, seconds=time.monotonic() - began)
            if not rows.in_time and not last:
                cut.keep(run)
        elif last or epoch in recipe["records"]:
            read = _read(text, run)
            facts = {"epoch": epoch, "loss_gap": read.loss_gap, "seconds": time.monotonic() - began}
            agreed = {name: target.agreement(read, text)["several"] for name, target in _limits(text).items()}
            rows.add(kind="epoch", seed=seed, **facts, **read.blocks(text), agreement=agreed)
            if last:
                return read
        if not rows.in_time:
            return None
    return None


class _Cut:
    """The state of a longer training that ran out of time, in a file beside the rows, from which it goes on."""

    def __init__(self, rows: Rows, seed: int) -> None:
        self.path = rows.path.with_suffix(f".{seed}.npz") if rows.path is not None else None

    def keep(self, run: SteppedTraining) -> None:
        """Write the state."""
        if self.path is not None:
            state: dict[str, Any] = {"step": run.step, **run.engine.state()}
            np.savez(self.path, **state)

    def resume(self, run: SteppedTraining) -> int:
        """Load the state, if there is one; the steps that were made."""
        if self.path is not None and self.path.exists():
            with np.load(self.path) as file:
                run.engine.load({name: file[name] for name in file.files if name != "step"})
                run.step = int(file["step"])
        return run.step


def _add_whole(text: GroupedText, read: Directions, rows: Rows, **where: Any) -> None:
    """Everything of a longer training at an epoch; what needs no solver first, since a run may be cut off."""
    targets = _limits(text)
    facts = {"loss_gap": read.loss_gap, **read.blocks(text), "angles": read.angles(text)}
    rows.add(kind="longer", **where, **facts, agreement={name: x.agreement(read, text) for name, x in targets.items()})
    for name, norm in ((GAMMA2, "gamma2"), (NUCLEAR, "nuclear")):
        at = text.device.prediction(read.loss_gap, norm)
        agreed = Directions.of(text, at.W, at.H).agreement(read, text)
        rows.add(kind="longer, predicted", **where, explanation=name, agreement=agreed, **at.facts())


class _Longer:
    """Rows of trainings that are longer than those of the other hypotheses."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = [
            {**row, "agreement": row["agreement"] | self._predicted(rows, row)} for row in chosen(rows, kind="longer")
        ]

    @staticmethod
    def _predicted(rows: Sequence[Row], row: Row) -> dict[str, Any]:
        where = {name: row[name] for name in ("seed", "epoch", "epochs")}
        return {x["explanation"]: x["agreement"] for x in chosen(rows, kind="longer, predicted", **where)}

    def _values(self, epoch: int, name: str) -> dict[int, float]:
        """Seed -> a number, or agreement of contexts with several next tokens, at an epoch of the longest training."""
        found = chosen(self.rows, epoch=epoch, epochs=LAST)
        of = {row["seed"]: row[name] if name in row else row["agreement"].get(name, {}).get("several") for row in found}
        return {seed: float(x) for seed, x in of.items() if x is not None}

    def _change(self, name: str) -> list[float]:
        first, last = self._values(FIRST, name), self._values(LAST, name)
        return [last[seed] - first[seed] for seed in last if seed in first]

    def answers(self) -> dict[str, Answer]:
        """One answer per hypothesis on longer trainings."""
        within = list(self._values(LAST, "within").values())
        return {
            "longer, collapse": _by_mean(within, lambda x: x > 0.9, "mean cosine within"),
            "longer, agreement": _by_mean(self._change(GAMMA2), lambda x: abs(x) <= 0.05, "change"),
            "longer, limit": _by_mean(self._change(LIMIT), lambda x: x > 0, "change"),
        }

    def tables(self) -> dict[str, Table]:
        """One line per seed and epoch, if there are any."""
        names = ("seed", "epochs", "epoch", "loss_gap", "within", "between", "collapse")
        found = [
            {name: row[name] for name in names}
            | {
                name: row["agreement"].get(name, {}).get("several", np.nan)
                for name in (GAMMA2, NUCLEAR, LIMIT, SUPPORTS)
            }
            | {"ordered": row["angles"]["ordered"]}
            for row in self.rows
        ]
        return {"longer": table_of(found)} if found else {}


def _by_mean(values: Sequence[float], holds: Callable[[float], bool], what: str) -> Answer:
    if not values:
        return Answer("undecided", "not measured")
    mean = float(np.mean(values))
    return Answer("yes" if holds(mean) else "no", f"{what} {mean:.3f} ({len(values)} seeds)")


def _limits(text: GroupedText) -> dict[str, Directions]:
    return {LIMIT: text.limit, SUPPORTS: text.simple[SUPPORTS]}


def _read(text: GroupedText, run: SteppedTraining) -> Directions:
    W, H = run.factors()
    gap = text.device.loss_gap(W, H)
    return Directions.of(text, W.cpu().numpy(), H.cpu().numpy(), gap)


def _measured(text: GroupedText, run: Directions, *, picture: bool) -> dict[str, Any]:
    """Everything that is measured at the end of a training."""
    at_loss = {
        name: text.device.prediction(run.loss_gap, norm) for name, norm in ((NUCLEAR, "nuclear"), (GAMMA2, "gamma2"))
    }
    targets = {
        **{name: Directions.of(text, target.W, target.H) for name, target in at_loss.items()},
        LIMIT: text.limit,
        **text.simple,
    }
    facts: dict[str, Any] = {
        "loss_gap": run.loss_gap,
        **run.blocks(text),
        "agreement": {name: target.agreement(run, text) for name, target in targets.items()},
        "similarity": {name: target.similarity(run) for name, target in targets.items()},
        "angles": run.angles(text),
        "predicted_angles": {name: targets[name].angles(text) for name in (GAMMA2, LIMIT)},
        "predicted_blocks": {name: targets[name].blocks(text) for name in (GAMMA2, LIMIT)},
        "proven": {
            **{name: target.relative_gap for name, target in at_loss.items()},
            LIMIT: text.device.limit.relative_gap,
        },
    }
    if picture:
        shown = {"network": run, GAMMA2: targets[GAMMA2], LIMIT: text.limit}
        facts["heatmaps"] = {name: np.round(cosines(target.pictured), 2) for name, target in shown.items()}
    return facts


def _training_table(epochs: Sequence[Row]) -> Table:
    """One row per seed and recorded epoch."""
    names = ("seed", "epoch", "loss_gap", "within", "between", "collapse", "seconds")
    return table_of([{**{name: row[name] for name in names}, **row["agreement"]} for row in epochs])


def _heatmaps(run: Row, text: Row) -> Figure:
    names = text["names"]
    breaks = [k for k in range(1, len(names)) if names[k] != names[k - 1]]
    panels = [
        HeatmapPanel(
            f"Contexts: {source}", np.asarray(values, np.float64), "contexts, by support",
            "contexts, by support", names, names, breaks, breaks, -1.0, 1.0, "cosine",
        )
        for source, values in run["heatmaps"].items()
    ]  # fmt: skip
    supports = ", ".join(dict.fromkeys(names))
    caption = (
        f"Cosines between {len(names)} contexts of {len(breaks) + 1} supports with several tokens, one block per "
        "support: in the trained network, as predicted at its loss in the gamma_2 norm, and as predicted in the limit "
        "of training. In the limit, contexts of one support share one direction. White is a right angle. Mean cosine "
        f"in the network: {run['within']:.3f} within supports, {run['between']:.3f} between them; loss gap "
        f"{run['loss_gap']:.3g} nats. Supports, from the top: {supports}."
    )
    return Figure("heatmaps", "Contexts grouped by support", caption, panels, columns=len(panels))


def _training_figure(epochs: Sequence[Row]) -> Figure:
    seeds = sorted({row["seed"] for row in epochs})

    def curves(name: str, label: str, colour: int, *, dashed: bool = False) -> list[Curve]:
        drawn = []
        for number, seed in enumerate(seeds):
            of_seed = sorted(chosen(epochs, seed=seed), key=lambda row: int(row["epoch"]))
            x = np.array([row["epoch"] for row in of_seed], np.float64)
            y = np.array([row[name] if name in row else row["agreement"][name] for row in of_seed], np.float64)
            drawn.append(Curve(label, x, y, colour=colour, dashed=dashed, in_legend=number == 0))
        return drawn

    cosine = [*curves("within", "within supports", 0), *curves("between", "between supports", 1)]
    agreed = [*curves(LIMIT, "with L_mm", 0), *curves(SUPPORTS, "with cosines of centred supports", 1)]
    panels = [
        LinePanel("Loss gap", "epoch", "CE - H, nats", curves("loss_gap", "loss gap", 0), "log", "log"),
        LinePanel("Cosines between contexts", "epoch", "mean cosine", cosine, "log"),
        LinePanel("Agreement of contexts", "epoch", "correlation of cosines", agreed, "log"),
    ]
    caption = (
        f"{len(seeds)} trainings, one line per seed. Left: loss above the entropy. Middle: mean cosine of the contexts "
        "of the heat-map, within and between supports. Right: agreement of contexts with several next tokens with two "
        "explanations that do not depend on the loss."
    )
    return Figure("training", "Geometry over epochs", caption, panels, columns=3)
