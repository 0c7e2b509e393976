"""Whether two kinds of training give the same geometry at the same loss.

Agreement *across* is that of a run of one kind with runs of the other kind from other seeds, and agreement *within* a
kind that of its own seeds. Across divided by the geometric mean of both agreements within is the correlation that would
be found without the differences between seeds (Spearman's correction for attenuation); it is 1 where the common part is
the same. Rules that were stated before the runs compare across with the lower of the two, which they call the ceiling;
it is none, since the common part of two trainings can agree better than either agrees with itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from tokengeom.extending import ProblemError
from tokengeom_studies.common.corrected import Measured, corrected, corrected_difference, seeds_of
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

    def pairs(self, a: str, b: str, item: str) -> Measured:
        """Agreement of pairs of other seeds: of one training with the other, or within one where both are it."""
        return {
            tuple(row["seeds"]): row[item]
            for row in chosen(self.rows, kind="pair", **self.cell)
            if sorted(row["trainings"]) == sorted((a, b))
        }

    def across(self, a: str, b: str, item: str) -> dict[int, float]:
        """The same for each seed, as the mean over the others."""
        pairs = self.pairs(a, b, item)
        by_seed = {seed: [value for seeds, value in pairs.items() if seed in seeds] for seed in seeds_of(pairs)}
        return {seed: float(np.mean(values)) for seed, values in by_seed.items()}

    def with_prediction(self, training: str, prediction: str, item: str) -> dict[int, float]:
        """Agreement of each seed with a prediction."""
        some = chosen(self.rows, kind="with", **self.cell, training=training, prediction=prediction)
        return {row["seed"]: row[item] for row in sorted(some, key=lambda row: row["seed"])}

    def less_than_seeds(self, a: str, b: str, item: str) -> Interval:
        """Agreement across two trainings minus that within the one whose seeds agree less well, paired by seed."""
        both = [self.across(training, training, item) for training in (a, b)]
        lower = min(both, key=lambda within: mean_of(within) if within else float("inf"))
        return paired(self.across(a, b, item), lower)

    def corrected(self, a: str, b: str, item: str) -> Interval:
        """Agreement across two trainings, corrected for the differences between seeds of both."""
        return corrected(self.pairs(a, b, item), self.pairs(a, a, item), self.pairs(b, b, item))

    def corrected_prediction(self, training: str, prediction: str, item: str) -> Interval:
        """Agreement with a prediction, corrected for the differences between seeds."""
        return corrected(*self._known(training, prediction, item))

    def corrected_change(self, a: str, b: str, prediction: str, item: str) -> Interval:
        """Corrected agreement of a prediction with one training minus that with the other."""
        return corrected_difference(*(self._known(training, prediction, item) for training in (a, b)))

    def _known(self, training: str, prediction: str, item: str) -> tuple[Measured, Measured]:
        """Agreement of each seed with a prediction, and of pairs of seeds."""
        agreed: Measured = {(seed,): x for seed, x in self.with_prediction(training, prediction, item).items()}
        return agreed, self.pairs(training, training, item)

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
