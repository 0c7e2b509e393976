"""Whether two kinds of training give the same geometry at the same loss.

Agreement *across* is that of a run of one kind with runs of the other kind from other seeds. It cannot be expected to
be higher than agreement *within* a kind, between its own seeds: the lower of the two is the ceiling that it is compared
with. Divided by the geometric mean of both ceilings, agreement across is the correlation that would be found without
the differences between seeds (Spearman's correction for attenuation); it is 1 where the common part is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from tokengeom.extending import ProblemError
from tokengeom_studies.common.measured import Answer, Decision, Interval, Row, Rows, chosen, decided_together
from tokengeom_studies.common.on_device import PairGeometry
from tokengeom_studies.common.torch_runs import DeviceText

ITEMS = ("contexts", "tokens")
NORMS = ("nuclear", "gamma2")
NOT_MEASURED = "not measured"
SUPPORTS = "supports"
"""The rival without a norm: cosines of centred supports."""

Cell = Mapping[str, Any]
"""What all compared runs share: text, network, and where they are read."""


def predicted_geometries(text: DeviceText, loss_gap: float) -> tuple[dict[str, PairGeometry], dict[str, Any]]:
    """Geometries predicted at a loss gap in both norms, that of centred supports, and the certificates.

    A prediction that cannot be solved is left out, with the reason among the certificates.
    """
    geometries = {SUPPORTS: text.matrix_geometry(text.stats.S.toarray(), 1.0)}
    facts: dict[str, Any] = {"loss_gap": loss_gap}
    for norm in NORMS:
        try:
            prediction = text.prediction(loss_gap, norm)
        except ProblemError as problem:
            # The runs are kept, and the check of the predictions fails.
            facts[norm] = {"problem": str(problem)}
            continue
        geometries[norm] = text.geometry(prediction.W, prediction.H)
        facts[norm] = prediction.facts()
    return geometries, facts


def largest_relative_gap(rows: Sequence[Row]) -> float:
    """Largest relative duality gap of all predictions; NaN where one was not solved."""
    proven = [row[norm].get("relative_gap", float("nan")) for row in chosen(rows, kind="prediction") for norm in NORMS]
    return float(np.max(proven)) if proven else float("nan")


def add_comparisons(
    rows: Rows, cell: Cell, runs: Mapping[tuple[str, int], PairGeometry], predicted: Mapping[str, PairGeometry]
) -> None:
    """Rows of the agreement of all runs, named by (training, seed), with predictions and with runs of other seeds."""
    for (training, seed), geometry in runs.items():
        for name, other in predicted.items():
            rows.add(kind="with", **cell, training=training, seed=seed, prediction=name, **geometry.agreement(other))
    for (first, geometry), (second, other) in combinations(sorted(runs.items(), key=lambda pair: pair[0]), 2):
        if first[1] != second[1]:
            trainings, seeds = zip(first, second, strict=True)
            rows.add(kind="pair", **cell, trainings=trainings, seeds=seeds, **geometry.agreement(other))


@dataclass(frozen=True)
class Compared:
    """The comparisons of one cell; every number is per seed, with the mean over the seeds that it is compared with."""

    rows: Sequence[Row]
    cell: Cell

    def across(self, a: str, b: str, item: str) -> dict[int, float]:
        """Agreement of each seed with other seeds: of one training with the other, or within one where both are it."""
        by_seed: dict[int, list[float]] = {}
        for row in chosen(self.rows, kind="pair", **self.cell):
            if sorted(row["trainings"]) == sorted((a, b)):
                for seed in row["seeds"]:
                    by_seed.setdefault(seed, []).append(row[item])
        return {seed: float(np.mean(values)) for seed, values in sorted(by_seed.items())}

    def with_prediction(self, training: str, prediction: str, item: str) -> dict[int, float]:
        """Agreement of each seed with a prediction."""
        some = chosen(self.rows, kind="with", **self.cell, training=training, prediction=prediction)
        return {row["seed"]: row[item] for row in sorted(some, key=lambda row: row["seed"])}

    def ceiling(self, a: str, b: str, item: str) -> dict[int, float]:
        """Agreement within the training whose seeds agree less well."""
        both = [self.across(training, training, item) for training in (a, b)]
        return min(both, key=lambda training: float(np.mean(list(training.values()))) if training else float("inf"))

    def below_ceiling(self, a: str, b: str, item: str) -> Interval:
        """Agreement across two trainings minus the lower ceiling, paired by seed."""
        return paired(self.across(a, b, item), self.ceiling(a, b, item))

    def corrected(self, a: str, b: str, item: str) -> float:
        """Agreement across two trainings, corrected for attenuation by both ceilings; NaN where one is not positive."""
        across, first, second = (
            Interval.of(self.across(*pair, item).values()).mean for pair in ((a, b), (a, a), (b, b))
        )
        return across / float(np.sqrt(first * second)) if first > 0 and second > 0 else float("nan")

    def corrected_prediction(self, training: str, prediction: str, item: str) -> float:
        """Agreement with a prediction, corrected for attenuation; NaN where the ceiling is not positive.

        A prediction has no noise of its own, so that its agreement is divided by the square root of the ceiling.
        """
        ceiling = mean_of(self.across(training, training, item))
        known = mean_of(self.with_prediction(training, prediction, item))
        return known / float(np.sqrt(ceiling)) if ceiling > 0 else float("nan")

    def prediction_changes(self, a: str, b: str, prediction: str, item: str) -> Interval:
        """Agreement of a prediction with one training minus that with the other, paired by seed."""
        return paired(*(self.with_prediction(training, prediction, item) for training in (a, b)))


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Interval:
    """The interval of differences over the seeds that both have."""
    return Interval.of(first[seed] - second[seed] for seed in first if seed in second)


def within(difference: Interval, most: float) -> Decision:
    """Whether a difference is smaller than ``most`` in size: decided where its interval is on one side of the bound."""
    if -most < difference.low and difference.high < most:
        return "yes"
    return "no" if difference.low >= most or difference.high <= -most else "undecided"


def answer_for_all(cases: Mapping[str, tuple[Decision, Interval]], what: str) -> Answer:
    """Yes where every case is, no where one is; the numbers are those of the lowest and of the highest case."""
    if not cases:
        return Answer("undecided", NOT_MEASURED)
    decisions = {name: decision for name, (decision, _) in cases.items()}
    decision = decided_together(decisions.values())
    parts = [f"{sum(said == name for said in decisions.values())} {name}" for name in ("yes", "no", "undecided")]
    ordered = sorted(cases.items(), key=lambda pair: pair[1][1].mean)
    ends = dict([ordered[0], ordered[-1]])
    numbers = "; ".join(f"{name} {interval}" for name, (_, interval) in ends.items())
    return Answer(decision, f"{len(cases)} cases: {', '.join(parts)}. {what}, lowest and highest: {numbers}")


def mean_of(values: Mapping[int, float]) -> float:
    """Mean over seeds, NaN without any."""
    return Interval.of(values.values()).mean


def each_item(cells: Iterable[Cell]) -> list[tuple[Cell, str]]:
    """Every cell with contexts and with tokens."""
    return [(cell, item) for cell in cells for item in ITEMS]
