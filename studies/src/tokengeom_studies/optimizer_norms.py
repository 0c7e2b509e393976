"""Which norm of the logits goes with which optimizer: trainings compared at equal loss with four predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from tokengeom.extending import GD, AbstractProgress, Adam, Curve, Figure, LinePanel, Spectral
from tokengeom_studies.base import Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.compared_trainings import (
    ITEMS,
    Cell,
    Training,
    begin_comparing,
    both,
    cells,
    edge_table,
    farthest,
    known_trainings,
    measure_trainings,
    not_reached,
)
from tokengeom_studies.common.corrected import explained, shown
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
from tokengeom_studies.common.other_norms import smallest_entries, smallest_spectral

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
    "At a loss gap of 0.05 nats the agreement with that norm's prediction is larger than with each other norm's, for "
    "contexts and for tokens, and the 95% interval (Student's t, over seeds) of the paired difference to the next best "
    "is above 0. No if another norm is ahead in this sense; otherwise undecided."
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
        "seconds": 60,
        "device": "cpu",
        "cache": "",
    }
    paper: ClassVar[Recipe] = {
        **small,
        "text": "texts/tinystories_1000x4000.npz",
        "trainings": list(TRAININGS),
        "dim": 512,
        "gaps": [0.2, 0.05, 0.01],
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
            "The mean lead of gamma_2 over the nuclear norm for contexts falls from epsilon 1e-8 to 1e-6, 1e-5 and "
            "1e-4, and is below 0 at 1e-4.",
        ),
        "large start": Hypothesis(
            "From a large start no norm agrees as well: the geometry is more the start's than the optimizer's.",
            "For gradient descent and for Adam the best norm's mean agreement of contexts is lower by at least 0.1.",
        ),
        "networks": Hypothesis(
            "Networks follow their optimizer: the norm with the best mean agreement of contexts is that of "
            "unconstrained features under the same optimizer.",
            "It is the same norm for gd, adam, sign descent and muon, in the MLP and in the transformer (of those that "
            "reach the loss): in at least 6 of 8 pairs, or three quarters of those measured: yes; at most half: no.",
        ),
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Solve in every norm, then train."""
        trainings = known_trainings(recipe["trainings"], TRAININGS)
        comparer = begin_comparing(recipe, rows)
        text, dim = comparer.text, recipe["dim"]
        for gap in recipe["norms_at"]:
            spectral = text.kept_prediction(f"spectral-{gap:g}", partial(smallest_spectral, text, gap))
            entries = text.kept_prediction(f"entries-{dim}-{gap:g}", partial(smallest_entries, text, gap, dim))
            comparer.add("spectral", gap, spectral, rows)
            comparer.add("largest entry", gap, entries, rows)
        measure_trainings(comparer, trainings, range(recipe["seeds"]), rows, progress, seconds=recipe["seconds"])

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """The norm of each optimizer, by the rule."""
        order = list(TRAININGS)
        ordered = sorted(cells(rows), key=lambda cell: order.index(cell.training))
        known = {cell.training: cell for cell in ordered if cell.target in recipe["norms_at"]}
        at = {name: known[name] for name in TRAININGS if name in known}
        answers = {name: _goes_with(at.get(name), wanted) for name, wanted in _EXPECTED.items()}
        answers |= {"epsilon": _epsilon(at), "large start": _large_start(at), "networks": _networks(at)}
        proven = [row["relative_gap"] for row in chosen(rows, kind="prediction") if row["norm"] != "largest entry"]
        runs = chosen(rows, kind="run")
        checks = [
            Check("largest relative distance of a loss gap from the one compared at", farthest(ordered), high=0.25),
            Check("largest proven relative gap of a prediction", float(max(proven)), high=0.05),
            Check("share of runs that reached their loss", float(np.mean([r["reached"] for r in runs])), low=0.5),
        ]
        tables = {
            "optimizers": _table(at),
            "corrected": _corrected_table(at),
            "networks": _network_table(ordered),
            "edges": edge_table(ordered),
            "losses": _losses(ordered),
            "hypotheses": self.answers(answers),
        }
        missed = not_reached(rows)
        if missed:
            tables["not reached"] = table_of([{"run": answer} for answer in missed])
        decided = "; ".join(f"{name}: {answer.decision} ({answer.because})" for name, answer in answers.items())
        return self.findings(recipe, f"{len(at)} trainings at equal loss. {decided}.", checks, [_figure(at)], tables)


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
    first, second = sorted(CANDIDATES, key=lambda name: cell.agreed(name, item), reverse=True)[:2]
    return first, cell.lead(first, second, item)


def _goes_with(cell: Cell | None, wanted: tuple[str, ...]) -> Answer:
    if cell is None:
        return Answer("undecided", "not measured, or the loss was not reached")
    best = {item: winner(cell, item) for item in ITEMS}
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
        return Answer("undecided", "not all were measured")
    leads = [at[name].lead("gamma2", "nuclear", "contexts").mean for name in names]
    falls = all(a > b for a, b in pairwise(leads))
    return Answer("yes" if falls and leads[-1] < 0 else "no", "leads " + ", ".join(f"{lead:+.3f}" for lead in leads))


def _large_start(at: Mapping[str, Cell]) -> Answer:
    pairs = [("gd", "gd, large start"), ("adam", "adam, large start")]
    if not {name for pair in pairs for name in pair} <= set(at):
        return Answer("undecided", "not all were measured")
    best = [[max(at[n].agreed(c, "contexts") for c in CANDIDATES) for n in pair] for pair in pairs]
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
        return Answer("undecided", "not measured")
    share = sum(same) / len(same)
    decision: Decision = "yes" if share >= 0.75 else "no" if share <= 0.5 else "undecided"
    return Answer(decision, f"{sum(same)} of {len(same)} pairs; " + ", ".join(parts))


def _table(at: Mapping[str, Cell]) -> Table:
    """Optimizer -> norm: mean agreement at the loss, contexts / tokens."""
    rows = []
    for name, cell in at.items():
        row: dict[str, object] = {"training": name, "seeds": len(cell.runs)}
        row |= {norm: both(partial(cell.agreed, norm)) for norm in CANDIDATES}
        rival = cell.best_rival("contexts")
        row["best rival (contexts)"] = f"{both(partial(cell.agreed, rival))} ({rival})"
        row["reproducible"] = both(cell.reproducible)
        row["norm, contexts"], row["norm, tokens"] = (f"{winner(cell, i)[0]} by {winner(cell, i)[1]}" for i in ITEMS)
        rows.append(row)
    return table_of(rows)


def _corrected_table(at: Mapping[str, Cell]) -> Table:
    """Corrected agreement with each norm and with the best rival, and the share that the best norm explains."""
    rows = []
    for name, cell in at.items():
        row: dict[str, object] = {"training": name}
        row |= {norm: both(partial(cell.corrected, norm)) for norm in CANDIDATES}
        rival = cell.best_rival("contexts")
        row["best rival (contexts)"] = f"{both(partial(cell.corrected, rival))} ({rival})"
        for item in ITEMS:
            norm = winner(cell, item)[0]
            row[f"explained, {item}"] = f"{shown(explained(cell.corrected(norm, item)))} ({norm})"
        rows.append(row)
    return table_of(rows)


def _network_table(cells: Sequence[Cell]) -> Table:
    """In networks: how far gamma_2 is ahead of the best rival."""
    rows: list[dict[str, object]] = []
    for cell in cells:
        if cell.model != "ufm" and len(cell.runs) > 1:
            rivals = {item: cell.best_rival(item) for item in ITEMS}
            leads = {item: f"{cell.lead('gamma2', name, item)} ({name})" for item, name in rivals.items()}
            rows.append({"training": cell.training, "loss gap": f"{cell.target:g}", **leads})
    return table_of(rows) if rows else {"training": []}


def _losses(cells: Sequence[Cell]) -> Table:
    """Both certified norms at every loss."""
    return table_of(
        [
            {
                "training": cell.training,
                "loss gap": f"{cell.target:g}",
                "steps": f"{cell.mean('step'):.0f}",
                "gamma_2 less nuclear, contexts": str(cell.lead("gamma2", "nuclear", "contexts")),
                "gamma_2 less nuclear, tokens": str(cell.lead("gamma2", "nuclear", "tokens")),
                "efficiency": f"{cell.mean('efficiency'):.2f}",
                "split exponent": f"{cell.mean('split_exponent'):.2f}",
                "spread of token lengths": f"{cell.mean('spread_of_token_lengths'):.2f}",
                "spread of context lengths": f"{cell.mean('spread_of_context_lengths'):.2f}",
            }
            for cell in cells
        ]
    )


def _figure(at: Mapping[str, Cell]) -> Figure:
    """Agreement with each norm, one position per training."""
    panels = []
    x = np.arange(1.0, len(at) + 1.0)
    for item in ITEMS:
        curves = [Curve(name, x, np.array([cell.agreed(name, item) for cell in at.values()])) for name in CANDIDATES]
        attainable = np.sqrt([max(cell.reproducible(item), 0.0) for cell in at.values()])
        curves.append(Curve("attainable", x, attainable, dotted=True))
        panels.append(LinePanel(f"Agreement of {item}", "training", f"agreement of {item}", curves, x_names=list(at)))
    return Figure(
        "norms",
        "Agreement with the prediction in each norm at equal loss",
        "Mean over seeds of the correlation of cosines with the logits of smallest norm at a loss gap of 0.05 nats; "
        "attainable is the root of what two seeds agree to. "
        "Lines join the points of one norm to make it easy to follow; the order of trainings has no meaning.",
        panels,
        columns=1,
    )
