"""Which norm of the logits goes with which optimizer: trainings compared at equal loss with four predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from tokengeom.extending import GD, AbstractProgress, Adam, Figure, LinePanel, Spectral
from tokengeom_studies.base import Findings, Recipe, Table, table_of
from tokengeom_studies.common.compared_cells import (
    NOT_MEASURED,
    Cell,
    by_text,
    cell_rows,
    cells,
    first_rows,
    lead_table,
    over_texts,
    run_checks,
    shared_tables,
    without_rules,
)
from tokengeom_studies.common.compared_trainings import (
    Training,
    begin_comparing,
    known_trainings,
    measure_trainings,
)
from tokengeom_studies.common.measured import (
    AbstractMeasuredStudy,
    Answer,
    Decision,
    Hypothesis,
    Interval,
    Row,
    Rows,
    chosen,
    interval_curve,
)
from tokengeom_studies.common.on_device import ITEMS
from tokengeom_studies.common.other_norms import smallest_entries, smallest_spectral
from tokengeom_studies.common.torch_runs import DeviceText, Predicted

SMALL, LARGE = 0.45, 4.5
"""Small and large starts of unconstrained features, as multiples of the usual one."""
CANDIDATES = ("nuclear", "gamma2", "spectral", "largest entry")


def _mean_loss(optimizer: object, rate: float | None = None, **more: Any) -> dict[str, Any]:
    given = {"optimizer": optimizer, "reduction": "mean", "rate_schedule": "constant", **more}
    return given if rate is None else {**given, "learning_rate": rate}


def _adam(rate: float = 1e-3, **options: float) -> dict[str, Any]:
    return _mean_loss(Adam(**options), rate)  # type: ignore[arg-type]


_MUON = Spectral(method="newton-schulz", momentum=0.95, nesterov=True)
TRAININGS: Mapping[str, Training] = {
    "gd": Training("ufm", _mean_loss(GD(), 1.0), SMALL, adapted=True),
    "gd, momentum 0.9": Training("ufm", _mean_loss(GD(momentum=0.9), 1.0), SMALL, adapted=True),
    "gd, large start": Training("ufm", _mean_loss(GD(), 1.0), LARGE, adapted=True),
    "adam": Training("ufm", _adam(), SMALL),
    "adam, rate 3e-4": Training("ufm", _adam(3e-4), SMALL),
    "adam, rate 3e-3": Training("ufm", _adam(3e-3), SMALL),
    "adam, epsilon 1e-6": Training("ufm", _adam(eps=1e-6), SMALL),
    "adam, epsilon 1e-5": Training("ufm", _adam(eps=1e-5), SMALL),
    "adam, epsilon 1e-4": Training("ufm", _adam(eps=1e-4), SMALL),
    "adamw, decay 0.1": Training("ufm", _mean_loss("adamw", 1e-3, weight_decay=0.1), SMALL),
    "adam, large start": Training("ufm", _adam(), LARGE),
    "adam, batches of 512": Training("ufm", {**_adam(), "batch": 512}, SMALL),
    "sign descent": Training("ufm", _mean_loss("signgd", 3e-4), SMALL),
    "spectral descent": Training("ufm", _mean_loss(Spectral(method="newton-schulz"), 5e-3), SMALL),
    "muon": Training("ufm", _mean_loss(_MUON, 5e-3), SMALL),
    "mlp, gd": Training("mlp", _mean_loss(GD(momentum=0.9), 1.0), adapted=True),
    "mlp, adam": Training("mlp", _adam()),
    "mlp, sign descent": Training("mlp", _mean_loss("signgd", 1e-4)),
    "mlp, muon": Training("mlp", _mean_loss(_MUON, 5e-3)),
    "transformer, gd": Training("transformer", _mean_loss(GD(momentum=0.9), 1.0), adapted=True),
    "transformer, adam": Training("transformer", _adam()),
    "transformer, sign descent": Training("transformer", _mean_loss("signgd", 1e-4)),
    "transformer, muon": Training("transformer", _mean_loss(_MUON, 5e-3)),
}
_RULE = (
    "On a text, at a loss gap of 0.05 nats, the corrected agreement with that norm's prediction is larger than with "
    "each other norm's, for contexts and for tokens, and the 95% interval (jackknife over seeds) of the difference to "
    "the next best is above 0. No if another norm is ahead in this sense; otherwise undecided. Over texts: what holds "
    "on three quarters of them."
)


class OptimizerNorms(AbstractMeasuredStudy):
    """Unconstrained features and networks, trained with many optimizers, at equal loss."""

    question = "Of all logits with the loss that a model has reached, which ones does each optimizer find?"
    small: ClassVar[Recipe] = {
        "text": "stories",
        "stories": 200,
        "context": 3,
        "contexts": 60,
        "vocabulary": 40,
        "seed": 0,
        "trainings": ["gd", "adam", "muon", "mlp, adam"],
        "dim": 32,
        "gaps": [0.2, 0.05],
        "norms_at": [0.05],
        "seeds": 2,
        "seconds": 120,
        "device": "cpu",
        "cache": "",
    }
    paper: ClassVar[Recipe] = {
        **small,
        "text": "texts/tinystories_1000x4000.npz",
        "trainings": list(TRAININGS),
        "dim": 384,
        "seeds": 5,
        "device": "cuda",
        "cache": "predictions",
    }
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "gd": Hypothesis("Gradient descent from a small start goes with the nuclear norm.", _RULE),
        "gd, momentum 0.9": Hypothesis("Momentum does not change that.", _RULE),
        "adam": Hypothesis("Adam goes with the gamma_2 norm, or with the largest entry.", _RULE),
        "sign descent": Hypothesis("Sign descent goes with the largest entry of W and H.", _RULE),
        "spectral descent": Hypothesis("Spectral descent goes with the spectral norm.", _RULE),
        "muon": Hypothesis("Muon (spectral descent with momentum) goes with the spectral norm.", _RULE),
        "epsilon": Hypothesis(
            "Adam's epsilon moves it from gamma_2 to the nuclear norm.",
            "On a text, the corrected lead of gamma_2 over the nuclear norm for contexts falls from epsilon 1e-8 to "
            "1e-6, 1e-5 and 1e-4, and is below 0 at 1e-4. Over texts as above.",
        ),
        "large start": Hypothesis(
            "From a large start no norm agrees as well: the geometry is more the start's than the optimizer's.",
            "On a text, for gradient descent and for Adam, the best norm's corrected agreement of contexts is lower by "
            "at least 0.1. Over texts as above.",
        ),
        "networks": Hypothesis(
            "Networks follow their optimizer: the norm with the best mean agreement of contexts is that of "
            "unconstrained features under the same optimizer.",
            "On a text, it is the same norm for gd, adam, sign descent and muon, in the MLP and in the transformer (of "
            "those that reach the loss): in at least 6 of 8 pairs, or three quarters of those measured: yes; at most "
            "half: no. Over texts as above.",
        ),
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Train, and solve in every norm when the first runs are compared."""
        trainings = known_trainings(recipe["trainings"], TRAININGS)
        others: dict[tuple[str, float], Callable[[DeviceText], Predicted]] = {}
        for gap in recipe["norms_at"]:
            others["spectral", gap] = partial(_spectral, gap=gap)
            others["largest entry", gap] = partial(_entries, gap=gap, dim=recipe["dim"])
        measure_trainings(begin_comparing(recipe, rows, others), trainings, range(recipe["seeds"]), progress)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """The norm of each optimizer on each text, by the rule."""
        gaps = recipe["norms_at"]
        ordered = sorted(cells(cell_rows(rows)), key=lambda cell: list(TRAININGS).index(cell.training))
        texts = _at_loss(ordered, gaps)
        answers = _answers(texts)
        # The figure is of the largest text.
        main = max(texts, key=lambda text: max(cell.row.get("dim", 0) for cell in texts[text].values()))
        tables = {
            "hypotheses": self.answers(answers),
            "winners": _winner_table(texts),
            "leads": lead_table([cell for at in texts.values() for cell in at.values() if cell.is_network], "gamma2"),
            **shared_tables(rows, ordered, {name: name for name in CANDIDATES}),
        }
        if before := chosen(rows, kind="run"):
            tables["first"] = without_rules(self.answers(_answers(_at_loss(cells(first_rows(before)), gaps))))
        decided = "; ".join(f"{name}: {answer.decision}" for name, answer in answers.items())
        count = len({cell.training for cell in ordered})
        sentence = f"{count} trainings on {len(texts)} texts at equal loss. {decided}."
        return self.findings(recipe, sentence, run_checks(rows), [_figure(texts[main], main)], tables)


def _spectral(text: DeviceText, gap: float) -> Predicted:
    return text.kept_prediction(f"spectral-{gap:g}", partial(smallest_spectral, text, gap))


def _entries(text: DeviceText, gap: float, dim: int) -> Predicted:
    return text.kept_prediction(f"entries-{dim}-{gap:g}", partial(smallest_entries, text, gap, dim))


def _at_loss(measured: Sequence[Cell], gaps: Sequence[float]) -> dict[str, dict[str, Cell]]:
    """Text -> training -> cell, at the loss gaps for which all norms are known."""
    known = by_text([cell for cell in measured if cell.target in gaps])
    return {text: {cell.training: cell for cell in some} for text, some in known.items()}


def _answers(texts: Mapping[str, Mapping[str, Cell]]) -> dict[str, Answer]:
    def of(answer: Callable[[Mapping[str, Cell]], Answer]) -> Answer:
        return over_texts({text: answer(at) for text, at in texts.items()})

    expected = {name: of(partial(_goes_with, name=name, wanted=wanted)) for name, wanted in _EXPECTED.items()}
    return {**expected, "epsilon": of(_epsilon), "large start": of(_large_start), "networks": of(_networks)}


_EXPECTED: Mapping[str, tuple[str, ...]] = {
    "gd": ("nuclear",),
    "gd, momentum 0.9": ("nuclear",),
    "adam": ("gamma2", "largest entry"),
    "sign descent": ("largest entry",),
    "spectral descent": ("spectral",),
    "muon": ("spectral",),
}
"""Hypothesis -> norms that would make it true."""


def winner(cell: Cell, item: str) -> tuple[str, Interval]:
    """The norm with the best mean agreement, and its lead over the next."""
    known = [name for name in CANDIDATES if name in cell.row["agreement"]]
    first, second = sorted(known, key=lambda name: cell.agreed(name, item), reverse=True)[:2]
    return first, cell.lead(first, second, item)


def _goes_with(at: Mapping[str, Cell], name: str, wanted: tuple[str, ...]) -> Answer:
    if name not in at:
        return Answer("undecided", NOT_MEASURED)
    best = {item: winner(at[name], item) for item in ITEMS}
    because = ", ".join(f"{item}: {norm} by {lead.mean:.3f}" for item, (norm, lead) in best.items())
    sure = all(lead.low > 0 for _, lead in best.values())
    names = {norm for norm, _ in best.values()}
    # Two candidates of one hypothesis may share contexts and tokens between them.
    decision: Decision = "undecided"
    if sure and names <= set(wanted):
        decision = "yes"
    elif sure and not names & set(wanted):
        decision = "no"
    return Answer(decision, because)


def _epsilon(at: Mapping[str, Cell]) -> Answer:
    names = ("adam", "adam, epsilon 1e-6", "adam, epsilon 1e-5", "adam, epsilon 1e-4")
    if not set(names) <= set(at):
        return Answer("undecided", NOT_MEASURED)
    leads = [at[name].lead("gamma2", "nuclear", "contexts").mean for name in names]
    falls = all(a > b for a, b in pairwise(leads))
    return Answer("yes" if falls and leads[-1] < 0 else "no", "leads " + ", ".join(f"{lead:+.3f}" for lead in leads))


def _large_start(at: Mapping[str, Cell]) -> Answer:
    pairs = [("gd", "gd, large start"), ("adam", "adam, large start")]
    if not {name for pair in pairs for name in pair} <= set(at):
        return Answer("undecided", NOT_MEASURED)
    best = [[at[n].corrected(winner(at[n], "contexts")[0], "contexts").mean for n in pair] for pair in pairs]
    if not np.isfinite(best).all():
        return Answer("undecided", NOT_MEASURED)
    because = ", ".join(f"{p[0]} {a:.3f} and {b:.3f}" for p, (a, b) in zip(pairs, best, strict=True))
    return Answer("yes" if all(a - b >= 0.1 for a, b in best) else "no", because)


def _networks(at: Mapping[str, Cell]) -> Answer:
    same, parts = [], []
    for network in ("mlp", "transformer"):
        for optimizer in ("gd", "adam", "sign descent", "muon"):
            name = f"{network}, {optimizer}"
            if name in at and optimizer in at:
                mine, theirs = winner(at[name], "contexts")[0], winner(at[optimizer], "contexts")[0]
                same.append(mine == theirs)
                parts.append(f"{name}: {mine}")
    if not same:
        return Answer("undecided", NOT_MEASURED)
    share = sum(same) / len(same)
    decision: Decision = "yes" if share >= 0.75 else "no" if share <= 0.5 else "undecided"
    return Answer(decision, f"{sum(same)} of {len(same)} pairs; " + ", ".join(parts))


def _winner_table(texts: Mapping[str, Mapping[str, Cell]]) -> Table:
    """For each training and text, the norm that is ahead: contexts / tokens, in brackets where that is not sure."""

    def named(cell: Cell, item: str) -> str:
        norm, lead = winner(cell, item)
        return norm if lead.low > 0 else f"({norm})"

    rows = []
    for name in TRAININGS:
        known = {text: at.get(name) for text, at in texts.items()}
        row: dict[str, object] = {"training": name}
        row |= {text: " / ".join(named(cell, item) for item in ITEMS) if cell else "-" for text, cell in known.items()}
        if any(known.values()):
            rows.append(row)
    return table_of(rows)


def _figure(at: Mapping[str, Cell], text: str) -> Figure:
    """Corrected agreement with each norm, one position per training."""
    panels, x = [], np.arange(1.0, len(at) + 1.0)
    for item in ITEMS:
        curves = [interval_curve(name, x, [cell.corrected(name, item) for cell in at.values()]) for name in CANDIDATES]
        rivals = [cell.corrected(cell.best_rival(item), item) for cell in at.values()]
        curves.append(interval_curve("best rival", x, rivals, dashed=True))
        label = f"corrected agreement of {item}"
        panels.append(LinePanel(f"Agreement of {item}, {text}", "training", label, curves, x_names=list(at)))
    return Figure(
        "norms",
        "Agreement with the prediction in each norm at equal loss",
        "Correlation of cosines with the logits of smallest norm at a loss gap of 0.05 nats, corrected for what seeds "
        "agree to: 1 is all that is reproducible. Lines join the points of one norm to make it easy to follow; the "
        "order of trainings has no meaning.",
        panels,
        columns=1,
    )
