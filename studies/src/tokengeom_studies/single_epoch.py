"""One pass over the windows of a text with hard labels, compared with exact soft labels at the same loss.

The predictions are about the loss on soft labels, ``CE(L) - H`` over distinct contexts. Language models are trained on
windows, each with one next token, and often only once on each. Three kinds of training with the same start are read at
the same loss gap:

one pass    every window once, in random order, in batches; the learning rate falls to 0 over the pass (cosine)
sampled     batches drawn with replacement, for several passes, with the same schedule over all of them
exact       the gradient of the loss on all distinct contexts, at a constant rate

The first is read after fractions of the pass. The others are read where their loss gap first falls below the one that
the first has there, with the same seed. Windows that do not fill a last batch are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tokengeom import NextTokenStatistics, TrainingSettings
from tokengeom.extending import AbstractProgress, Figure, InputError, Int, LinePanel
from tokengeom_studies.base import Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.corrected import shown
from tokengeom_studies.common.measured import (
    AbstractMeasuredStudy,
    Answer,
    Hypothesis,
    Interval,
    Row,
    Rows,
    chosen,
    decided,
    interval_curve,
)
from tokengeom_studies.common.model_runs import require_device
from tokengeom_studies.common.on_device import PairGeometry
from tokengeom_studies.common.same_geometry import (
    ITEMS,
    NORMS,
    NOT_MEASURED,
    SUPPORTS,
    Cell,
    Compared,
    add_comparisons,
    answer_for_all,
    each_item,
    largest_relative_gap,
    mean_of,
    paired,
    predicted_geometries,
    within,
)
from tokengeom_studies.common.torch_runs import DeviceText, first_below, load_text, training_settings

ONE_PASS, SAMPLED, EXACT = "one pass", "sampled", "exact"
SEEDS, PREDICTED = 0.02, 0.03
"""Differences of agreement that count as none: from the lower agreement of seeds, and between two trainings."""
ATTENUATED = 0.95
"""Least correlation, corrected for attenuation, of two geometries whose common part is called the same."""
NEAREST = 0.8
"""Least ratio of the loss gap at which a run is read to that at which it should be."""
LONGEST = 300.0
"""Seconds after which a run is given up."""
PROVEN = 1e-2
"""Largest relative duality gap of a prediction."""


class SingleEpoch(AbstractMeasuredStudy):
    """Training once over a text with hard labels, and training on exact soft labels to the same loss."""

    question: ClassVar[str] = (
        "Does one pass over a text with hard labels give the same geometry as exact soft labels at the same loss?"
    )
    hypotheses: ClassVar[dict[str, Hypothesis]] = {
        "one pass": Hypothesis(
            "After one pass, the geometry is that of exact soft labels at the same loss.",
            f"In every text and network, for contexts and tokens: agreement across minus the lower ceiling, paired by "
            f"seed, has a 95% interval above -{SEEDS}. No where one interval is below it.",
        ),
        "common part": Hypothesis(
            "What seeds have in common is the same after one pass and with exact soft labels.",
            f"In every text and network, for contexts and tokens: agreement across, divided by the geometric mean of "
            f"both ceilings, is at least {ATTENUATED}; a mean over seeds, without an interval.",
        ),
        "sampled": Hypothesis(
            "Several passes of sampled batches give the geometry of exact soft labels at the same loss.",
            f"As for one pass, with sampled batches: the interval is above -{SEEDS} everywhere.",
        ),
        "prediction": Hypothesis(
            "The prediction at the loss reached (gamma_2) agrees with one pass as well as with exact soft labels.",
            f"In every text and network, for contexts and tokens: the difference of the two agreements, paired by "
            f"seed, has a 95% interval within {PREDICTED} of 0. No where one interval is outside.",
        ),
        "ahead": Hypothesis(
            "After one pass, the prediction at the loss reached (gamma_2) is ahead of centred supports.",
            "In every text and network, for contexts and tokens: its agreement minus that of centred supports, paired "
            "by seed, has a 95% interval above 0. No where one interval is below it.",
        ),
    }
    # texts are "stories" (built in) or files of counts; epoch_steps is the number of batches in a pass, which sets
    # their size; most_steps limits the run with exact soft labels.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "texts": ["stories"],
        "stories": 600,
        "context": 3,
        "contexts": 120,
        "vocabulary": 40,
        "networks": ["mlp", "ufm"],
        "seeds": [0, 1, 2],
        "fractions": [0.25, 1.0],
        "epoch_steps": 200,
        "epochs": 4,
        "layers": 2,
        "heads": 4,
        "dim": 32,
        "ufm_dim": 64,
        "learning_rate": 3e-3,
        "ufm_learning_rate": 5e-3,
        "most_steps": 1_000,
        "device": "cpu",
    }
    paper: ClassVar[Recipe] = {
        **small,
        "texts": ["texts/tinystories_1000x4000.npz", "texts/stories_104x382.npz"],
        "stories": 3_000,
        "contexts": 382,
        "vocabulary": 104,
        "networks": ["transformer", "mlp", "ufm"],
        "seeds": [0, 1, 2, 3, 4],
        "epoch_steps": 800,
        "layers": 4,
        "heads": 8,
        "dim": 256,
        "ufm_dim": 512,
        "learning_rate": 1e-3,
        "most_steps": 3_000,
        "device": "cuda",
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Train all seeds of each text and network, and compare them; the rows of a pair are added together."""
        require_device(recipe)
        for path in recipe["texts"]:
            text: DeviceText | None = None
            for network in recipe["networks"]:
                cell = {"text": Path(path).stem, "network": network}
                if rows.has(kind="compared", **cell) or not rows.in_time:
                    continue
                text = text or DeviceText(load_text({**recipe, "text": path}), recipe["device"])
                with progress.stage(f"{network} on {Path(path).stem}", None):
                    _measure_cell(text, recipe, cell, rows)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Agreement across and within kinds of training and with predictions, over texts and networks."""
        cells = _cells(rows)
        if not cells:
            raise InputError(
                f"The study '{self.name}' has no comparisons yet; measure a text and a network to the end."
            )
        ends = [cell for cell in cells if cell["fraction"] == max(other["fraction"] for other in cells)]
        answers = _answers(rows, ends)
        tables = {
            "hypotheses": self.answers(answers),
            "seeds": _seed_table(rows, cells),
            "predictions": _prediction_table(rows, cells),
            "corrected": _corrected_table(rows, cells),
            "runs": _runs(rows),
        }
        sentence = _sentence(answers, rows, ends)
        return self.findings(recipe, sentence, _checks(rows, cells), [_figure(rows, ends)], tables)


def one_pass_windows(stats: NextTokenStatistics, steps: int, seed: int) -> Int:
    """Every window once in random order, as pairs (context, next token), steps x batch; the rest are left out."""
    pairs = np.repeat(np.arange(stats.counts.nnz), stats.counts.data)
    batch = max(1, pairs.size // steps)
    order = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3,))).permutation(pairs)
    steps = min(steps, pairs.size // batch)
    return order[: steps * batch].reshape(steps, batch)


def _settings(recipe: Recipe, network: str, seed: int, **changes: Any) -> TrainingSettings:
    if network == "ufm":
        changes |= {"dim": recipe["ufm_dim"], "learning_rate": recipe["ufm_learning_rate"]}
    return training_settings(recipe, network, seed, **changes)


def _measure_cell(text: DeviceText, recipe: Recipe, cell: dict[str, Any], rows: Rows) -> None:
    runs: dict[float, dict[tuple[str, int], PairGeometry]] = {share: {} for share in recipe["fractions"]}
    gaps: dict[float, list[float]] = {share: [] for share in recipe["fractions"]}
    for seed in recipe["seeds"]:
        targets: dict[float, float] = {}
        for fraction, row, geometry in _one_pass(text, recipe, cell["network"], seed):
            targets[fraction] = row["loss_gap"]
            gaps[fraction].append(row["loss_gap"])
            runs[fraction][ONE_PASS, seed] = geometry
            rows.add(kind="run", **cell, fraction=fraction, training=ONE_PASS, seed=seed, reached=True, **row)
        for training in (SAMPLED, EXACT):
            for fraction, row, reached in _to_targets(text, recipe, cell["network"], seed, training, targets):
                if reached is not None:
                    runs[fraction][training, seed] = reached
                rows.add(kind="run", **cell, fraction=fraction, training=training, seed=seed, **row)
    for fraction, some in runs.items():
        predicted, facts = predicted_geometries(text, float(np.exp(np.mean(np.log(gaps[fraction])))))
        rows.add(kind="prediction", **cell, fraction=fraction, **facts)
        add_comparisons(rows, {**cell, "fraction": fraction}, some, predicted)
    rows.add(kind="compared", **cell)


def _one_pass(
    text: DeviceText, recipe: Recipe, network: str, seed: int
) -> Iterator[tuple[float, dict[str, Any], PairGeometry]]:
    """The run after each fraction of the pass."""
    windows = one_pass_windows(text.stats, recipe["epoch_steps"], seed)
    steps, batch = windows.shape
    uses = np.bincount(windows.ravel(), minlength=text.stats.counts.nnz)
    settings = _settings(recipe, network, seed, steps=steps, batch=batch, rate_schedule="cosine")
    began, run = time.monotonic(), text.begin(settings)
    facts = {"batch": batch, "windows": text.stats.n, "repeated": int((uses > text.stats.counts.data).sum())}
    for fraction in sorted(recipe["fractions"]):
        until = max(1, round(fraction * steps))
        run.advance(until - run.step, windows=windows[run.step : until])
        W, H = run.factors()
        gap = text.loss_gap(W, H)
        row = {"loss_gap": gap, "target": gap, "step": until, "seconds": time.monotonic() - began, **facts}
        yield fraction, row, text.geometry(W, H)


def _to_targets(
    text: DeviceText, recipe: Recipe, network: str, seed: int, training: str, targets: dict[float, float]
) -> Iterator[tuple[float, dict[str, Any], PairGeometry | None]]:
    """The run where its loss gap first falls below each target."""
    most = recipe["most_steps"] if training == EXACT else recipe["epochs"] * recipe["epoch_steps"]
    changes: dict[str, Any] = {"steps": most, "rate_schedule": "constant" if training == EXACT else "cosine"}
    if training == SAMPLED:
        changes["batch"] = max(1, text.stats.n // recipe["epoch_steps"])
    run = text.begin(_settings(recipe, network, seed, **changes))
    remaining = dict(targets)
    for reached in first_below(
        run, text, list(targets.values()), every=1 if training == EXACT else 5, most_steps=most, seconds=LONGEST
    ):
        fraction = next(name for name, gap in remaining.items() if gap == reached.target)
        del remaining[fraction]
        row = {"reached": True, "loss_gap": reached.loss_gap, "target": reached.target, "step": reached.step}
        row["seconds"] = reached.seconds
        yield fraction, row, text.geometry(reached.W, reached.H)
    for fraction, gap in remaining.items():
        yield fraction, {"reached": False, "target": gap, "step": run.step}, None


def _cells(rows: Sequence[Row]) -> list[Cell]:
    """Text, network and fraction of every prediction."""
    keys = ("text", "network", "fraction")
    return [{name: row[name] for name in keys} for row in chosen(rows, kind="prediction")]


def _label(cell: Cell, item: str = "") -> str:
    return ", ".join(filter(None, (cell["text"], cell["network"], item)))


def _answers(rows: Sequence[Row], cells: Sequence[Cell]) -> dict[str, Answer]:
    def across(training: str) -> Answer:
        cases = {}
        for cell, item in each_item(cells):
            difference = Compared(rows, cell).less_than_seeds(training, EXACT, item)
            cases[_label(cell, item)] = (decided(difference, -SEEDS), difference)
        return answer_for_all(cases, "Agreement across minus the lower ceiling")

    corrected = {
        _label(cell, item): Compared(rows, cell).corrected(ONE_PASS, EXACT, item).mean
        for cell, item in each_item(cells)
    }
    lowest = min(corrected, key=lambda name: corrected[name], default=None)
    changes, ahead = {}, {}
    for cell, item in each_item(cells):
        here = Compared(rows, cell)
        change = here.prediction_changes(ONE_PASS, EXACT, "gamma2", item)
        changes[_label(cell, item)] = (within(change, PREDICTED), change)
        lead = paired(*(here.with_prediction(ONE_PASS, name, item) for name in ("gamma2", SUPPORTS)))
        ahead[_label(cell, item)] = (decided(lead), lead)
    common = Answer("undecided", NOT_MEASURED)
    if lowest is not None:
        fine = all(correlation >= ATTENUATED for correlation in corrected.values())
        common = Answer("yes" if fine else "no", f"Lowest of {len(corrected)}: {lowest} {corrected[lowest]:.3f}")
    return {
        "one pass": across(ONE_PASS),
        "common part": common,
        "sampled": across(SAMPLED),
        "prediction": answer_for_all(changes, "Agreement with one pass minus that with exact soft labels"),
        "ahead": answer_for_all(ahead, "gamma_2 minus centred supports"),
    }


def _pair(values: Sequence[float]) -> str:
    """The numbers of contexts and of tokens."""
    return " / ".join(f"{value:.3f}" for value in values)


def _seed_table(rows: Sequence[Row], cells: Sequence[Cell]) -> Table:
    """Agreement between runs of other seeds, contexts / tokens."""
    lines = []
    for cell in cells:
        here = Compared(rows, cell)
        row: dict[str, Any] = {**cell, "loss_gap": chosen(rows, kind="prediction", **cell)[0]["loss_gap"]}
        for training in (ONE_PASS, SAMPLED, EXACT):
            row[training] = _pair([mean_of(here.across(training, training, item)) for item in ITEMS])
        for training in (ONE_PASS, SAMPLED):
            row[f"{training} and exact"] = _pair([mean_of(here.across(training, EXACT, item)) for item in ITEMS])
        lines.append(row)
    return table_of(lines)


def _prediction_table(rows: Sequence[Row], cells: Sequence[Cell]) -> Table:
    """Agreement with predictions, contexts / tokens."""
    lines = []
    for cell in cells:
        here = Compared(rows, cell)
        row: dict[str, Any] = {**cell, "loss_gap": chosen(rows, kind="prediction", **cell)[0]["loss_gap"]}
        for name in (*NORMS, SUPPORTS):
            for training in (ONE_PASS, SAMPLED, EXACT):
                values = [mean_of(here.with_prediction(training, name, item)) for item in ITEMS]
                row[f"{name}, {training}"] = _pair(values)
        lines.append(row)
    return table_of(lines)


def _corrected_table(rows: Sequence[Row], cells: Sequence[Cell]) -> Table:
    """Agreement with exact soft labels and with gamma_2, corrected for the differences between seeds."""
    lines = []
    for cell, item in each_item(cells):
        here = Compared(rows, cell)
        line: dict[str, Any] = {**cell, "item": item}
        line |= {f"{kind} and exact": shown(here.corrected(kind, EXACT, item)) for kind in (ONE_PASS, SAMPLED)}
        for training in (ONE_PASS, SAMPLED, EXACT):
            line[f"gamma2, {training}"] = shown(here.corrected_prediction(training, "gamma2", item))
        line["gamma2, one pass less exact"] = shown(here.corrected_change(ONE_PASS, EXACT, "gamma2", item))
        lines.append(line)
    return table_of(lines)


def _runs(rows: Sequence[Row]) -> Table:
    """Steps and loss gap of each kind of training, as means over seeds."""
    lines = []
    for cell in _cells(rows):
        for training in (ONE_PASS, SAMPLED, EXACT):
            some = chosen(rows, kind="run", **cell, training=training)
            reached = [row for row in some if row["reached"]]
            lines.append({
                **cell,
                "training": training,
                "runs": len(some),
                "reached": len(reached),
                "step": Interval.of(row["step"] for row in reached).mean,
                "loss_gap": Interval.of(row["loss_gap"] for row in reached).mean,
            })  # fmt: skip
    return table_of(lines)


def _checks(rows: Sequence[Row], cells: Sequence[Cell]) -> list[Check]:
    # A text and network that were cut off have runs, and no comparisons to rely on.
    runs = [row for cell in cells for row in chosen(rows, kind="run", **cell)]
    ratios = [row["loss_gap"] / row["target"] for row in runs if row["reached"]]
    seeds = min((len({r["seed"] for r in chosen(runs, **c, training=EXACT, reached=True)}) for c in cells), default=0)
    return [
        Check("share of runs that reached the loss", float(np.mean([row["reached"] for row in runs])), low=1.0),
        Check("smallest ratio of the loss gap read to that wanted", min(ratios, default=float("nan")), low=NEAREST),
        Check("windows used more than once in a pass", float(sum(row.get("repeated", 0) for row in runs)), high=0.0),
        Check("largest relative duality gap of a prediction", largest_relative_gap(rows), high=PROVEN),
        Check("seeds of each kind of training", float(seeds), low=2.0),
    ]


def _sentence(answers: dict[str, Answer], rows: Sequence[Row], ends: Sequence[Cell]) -> str:
    said = {
        "yes": "Yes: after one pass with hard labels the geometry is that of exact soft labels at the same loss",
        "no": "No: after one pass with hard labels the geometry is not everywhere that of exact soft labels",
        "undecided": "Not decided: whether one pass with hard labels gives the geometry of exact soft labels",
    }[answers["one pass"].decision]
    parts = []
    for cell in ends:
        here = Compared(rows, cell)
        (at,) = chosen(rows, kind="prediction", **cell)
        across, first, second = (
            _pair([mean_of(here.across(*pair, item)) for item in ITEMS])
            for pair in ((ONE_PASS, EXACT), (ONE_PASS, ONE_PASS), (EXACT, EXACT))
        )
        parts.append(
            f"{_label(cell)} (loss gap {at['loss_gap']:.2g}): {across} across, {first} and {second} between seeds"
        )
    return (
        f"{said}. Agreement of contexts / tokens: {'; '.join(parts)}. The prediction agrees with one pass as well as "
        f"with exact soft labels: {answers['prediction'].decision}; it is ahead of centred supports: "
        f"{answers['ahead'].decision}."
    )


def _figure(rows: Sequence[Row], cells: Sequence[Cell]) -> Figure:
    def panel(text: str, item: str) -> LinePanel:
        some = [cell for cell in cells if cell["text"] == text]
        x, here = np.arange(1.0, len(some) + 1.0), [Compared(rows, cell) for cell in some]
        across = [compared.corrected(ONE_PASS, EXACT, item) for compared in here]
        curves = [interval_curve("one pass and exact soft labels", x, across)]
        for training in (ONE_PASS, EXACT):
            values = [compared.corrected_prediction(training, "gamma2", item) for compared in here]
            curves.append(interval_curve(f"gamma_2 and {training}", x, values))
        names = [cell["network"] for cell in some]
        return LinePanel(f"{item.capitalize()}, {text}", "network", "corrected agreement", curves, x_names=names)

    caption = (
        "Corrected agreement at the loss that one pass has reached: correlation of cosines over pairs of contexts with "
        "different supports, and of different tokens, without the differences between seeds; across the two kinds of "
        "training, and with the prediction at that loss in the gamma_2 norm. Bands are 95% intervals over seeds."
    )
    panels = [panel(text, item) for text in dict.fromkeys(cell["text"] for cell in cells) for item in ITEMS]
    return Figure("agreement", "One pass with hard labels and exact soft labels", caption, panels, columns=2)
