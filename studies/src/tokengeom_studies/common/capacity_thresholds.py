"""Numbers of parameters at which networks reach loss gaps, interpolated between the widths that were trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tokengeom_studies.common.measured import Row, chosen

ALL, BODY, WIDTH = "parameters", "body", "width"


@dataclass(frozen=True)
class Thresholds:
    """Numbers of parameters at which networks reach loss gaps, per seed."""

    rows: Sequence[Row]
    loss_gaps: Sequence[float]
    widths: Sequence[int]

    @property
    def networks(self) -> list[str]:
        """Networks in alphabetical order, the less deep ones first."""
        return sorted({row["network"] for row in self.rows})

    def budgets(self, network: str) -> list[tuple[int, int]]:
        """Contexts and steps of a network's runs."""
        return sorted({(row["contexts"], row["steps"]) for row in chosen(self.rows, network=network)})

    def compared(self, network: str) -> list[tuple[int, int]]:
        """The budgets with the fewest steps, which are compared over contexts."""
        fewest = min(steps for _, steps in self.budgets(network))
        return [budget for budget in self.budgets(network) if budget[1] == fewest]

    def at(self, network: str, budget: tuple[int, int], loss_gap: float, count: str) -> dict[int, float]:
        """Parameters, interpolated between the two widths around the loss gap, of each seed that has both."""
        some = chosen(self.rows, network=network, contexts=budget[0], steps=budget[1])
        numbers = {}
        for seed in sorted({row["seed"] for row in some}):
            value = interpolated([row for row in some if row["seed"] == seed], loss_gap, count)
            if value is not None:
                numbers[seed] = value
        return numbers

    def outside(self, network: str, budget: tuple[int, int], loss_gap: float) -> list[int]:
        """Seeds whose narrowest network of the grid reaches the loss gap, or whose widest does not."""
        some = chosen(self.rows, network=network, contexts=budget[0], steps=budget[1])
        ends = {min(self.widths): True, max(self.widths): False}
        reached = [(row, (np.inf if row["loss_gap"] is None else row["loss_gap"]) <= loss_gap) for row in some]
        return sorted({row["seed"] for row, below in reached if ends.get(row["width"]) is below})

    def cut_off(self, network: str, budget: tuple[int, int], loss_gap: float) -> list[int]:
        """Seeds with runs that ended before both widths around the loss gap were trained."""
        seeds = {row["seed"] for row in chosen(self.rows, network=network, contexts=budget[0], steps=budget[1])}
        known = {*self.at(network, budget, loss_gap, ALL), *self.outside(network, budget, loss_gap)}
        return sorted(seeds - known)

    def cases(self) -> Iterator[tuple[str, tuple[int, int], float]]:
        """Every network, budget and loss gap."""
        for network in self.networks:
            for budget in self.budgets(network):
                for gap in self.loss_gaps:
                    yield network, budget, gap

    def spread(self, network: str, count: str) -> dict[int, float]:
        """Largest over smallest number per context at the smallest loss gap, of each seed that has them all."""
        budgets = self.compared(network)
        numbers = [self.at(network, item, self.loss_gaps[-1], count) for item in budgets]
        seeds = set.intersection(*map(set, numbers)) if len(numbers) > 1 else set()
        per = {s: [item[s] / budget[0] for item, budget in zip(numbers, budgets, strict=True)] for s in sorted(seeds)}
        return {seed: max(values) / min(values) for seed, values in per.items()}


def interpolated(runs: Sequence[Row], loss_gap: float, count: str) -> float | None:
    """Parameters at which one seed reaches a loss gap: log parameters over log loss gap between two widths.

    The larger of the two widths is the smallest that reaches the loss gap, and the other the next smaller one that was
    measured; None without either.
    """
    ordered = sorted(runs, key=lambda row: row["width"])
    gaps = [np.inf if row["loss_gap"] is None else max(row["loss_gap"], 1e-12) for row in ordered]
    place = next((i for i, gap in enumerate(gaps) if gap <= loss_gap), 0)
    if place == 0 or not np.isfinite(gaps[place - 1]):
        return None
    upper, lower = np.log(gaps[place - 1]), np.log(gaps[place])
    share = (upper - np.log(loss_gap)) / (upper - lower)
    ends = np.log([ordered[place - 1][count], ordered[place][count]])
    return float(np.exp(ends[0] + share * (ends[1] - ends[0])))
