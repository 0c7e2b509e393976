"""Rows of the study of explained shares, corrected for what is reproducible, and the statements that they decide.

``corrected = mean_s r(e, run_s) / sqrt(rho rho_e)``

where
    r        correlation of the cosines of an explanation e with those of the run with seed s
    rho      mean correlation of two seeds
    rho_e    reliability of an explanation that is a mean of trainings, otherwise 1

Intervals are of a jackknife over seeds, with Student's quantile. The explained share is its square.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tokengeom.extending import Figure, HeatmapPanel
from tokengeom_studies.base import Table, table_of
from tokengeom_studies.common.corrected import Measured, corrected
from tokengeom_studies.common.held_out_text import HELD_OUT, ITEMS, ONE, SEVERAL, TOKENS
from tokengeom_studies.common.measured import Interval, Row, chosen, firsts

WITHOUT = " without last norm"
"""What the name of a network without a last norm ends with."""
WITHOUT_NORM = f"mlp{WITHOUT}"
MAIN, KERNEL, FREE = "positions+pairs+self", "kernel", "self"
"""Ties that were chosen for the hypotheses before the runs; those derived for an MLP; and none."""
NEAR = 0.02
"""Difference of corrected agreement that counts as none."""
TARGETS = {SEVERAL: 0.95, ONE: 0.85, HELD_OUT: 0.85}
SAME = 0.95
"""Corrected agreement from which on two networks are said to have one geometry."""
KNESER_NEY = "Kneser-Ney"
SHOWN: Mapping[str, Sequence[str]] = {
    "simulated, kernel, start 0.3": [f"simulated, {KERNEL}, start 0.3"],
    "simulated, kernel": [f"simulated, {KERNEL}"],
    "simulated, positions+pairs+self": [f"simulated, {MAIN}"],
    "tied, gamma_2 at the loss": [f"tied, gamma_2, {MAIN}"],
    "tied, nuclear at the loss": [f"tied, nuclear, {MAIN}"],
    "Kneser-Ney": [KNESER_NEY],
    "simulated without ties": [f"simulated, {FREE}"],
    "gamma_2 at the loss": ["at the loss, gamma_2"],
    "nuclear at the loss": ["at the loss, nuclear"],
    "log-counts": ["log-counts"],
    "PMI": ["PMI"],
    "cosines of supports": ["cos S~"],
    "limit of training": ["in the limit"],
}
"""Explanations in the figure -> their names in the rows."""
TIED_SHOWN = 6
"""How many of them, from the first, know which tokens contexts share."""
MAIN_SHOWN = "simulated, positions+pairs+self"
GRIDS = (("Kneser-Ney", "D", (0.1, 0.9)), ("PMI", "k", (0.1, 10.0)), ("log-counts", "alpha", (0.001, 10.0)))
"""Rivals with a free parameter, its symbol, and the lowest and highest value that was tried."""
ENDS = ("lowest", "highest")
TITLES = {
    SEVERAL: "Contexts with several next tokens",
    ONE: "Contexts with one next token",
    HELD_OUT: "Contexts held out of training",
    TOKENS: "Tokens",
}


def simulated(ties: str, network: str = "") -> str:
    """Name of the simulation with these ties, with a last norm where the network has one."""
    return f"simulated, {ties}{', no last norm' if network.endswith(WITHOUT) else ''}"


def started(head: float, features: float) -> str:
    """What the name of a simulation says about its start, where it is not that of the networks."""
    if head == features:
        return "" if head == 1.0 else f", start {head:g}"
    return f", start {head:g}, features {features:g}"


def is_tied(explanation: str) -> bool:
    """Whether an explanation ties contexts by their tokens."""
    free = explanation.startswith(f"simulated, {FREE}")
    return explanation.startswith(("simulated, ", "tied, ")) and not free


class ExplainedCells:
    """Runs of a network on a text at a loss gap (a cell), and the explanations they were compared with."""

    def __init__(self, rows: Sequence[Row]) -> None:
        # Networks that are trained again, beside new ones, count as they were measured first.
        self.rows = rows = firsts(rows, "kind", "text", "network", "target", "explanation")
        self.texts, self.runs = chosen(rows, kind="text"), chosen(rows, kind="run")
        self._agreements = {
            (row["text"], row["network"], row["target"], row["explanation"]): row
            for row in chosen(rows, kind="agreement")
        }

    def explanations(self, run: Row) -> list[str]:
        """Names of the explanations that this cell was compared with, other networks among them."""
        return [name for (*cell, name) in self._agreements if tuple(cell) == _cell(run)]

    def corrected(self, run: Row, explanation: str, kind: str) -> Interval:
        """Corrected agreement with its interval; NaN where it was not measured or there is nothing to explain."""
        row, missing = self._agreements.get((*_cell(run), explanation)), Interval.of([])
        if row is None or kind not in row["agreement"]:
            return missing
        own = row.get("reliability", {}).get(kind, 1.0)
        if own <= 0:
            return missing
        agreed: Measured = {(seed,): value / np.sqrt(own) for seed, value in enumerate(row["agreement"][kind])}
        return corrected(agreed, {(a, b): values[kind] for a, b, values in run["seeds"]})

    def _mean(self, run: Row, explanation: str, kind: str) -> float:
        return self.corrected(run, explanation, kind).mean

    def ties(self) -> Iterable[bool]:
        """Whether the chosen simulation is ahead of every explanation without ties."""
        for run in self.runs:
            for kind in (SEVERAL, ONE):
                if best := self._best_untied(run, kind):
                    yield best == MAIN_SHOWN

    def ahead(self) -> Table:
        """In how many cells each explanation is ahead of the chosen simulation and of all others without ties."""
        best = [self._best_untied(run, kind) for run in self.runs for kind in (SEVERAL, ONE)]
        known = Counter(name for name in best if name)
        cells = [f"{count} of {known.total()}" for _, count in known.most_common()]
        return {"ahead": [name for name, _ in known.most_common()], "cells": cells}

    def _best_untied(self, run: Row, kind: str) -> str:
        """The best of the chosen simulation and the explanations without ties; empty where nothing is known."""
        own = simulated(MAIN, run["network"])
        values = {name: self._mean(run, name, kind) for name in [own, *self._untied(run)]}
        known = {name: x for name, x in values.items() if np.isfinite(x)}
        best = max(known, key=known.__getitem__) if own in known and len(known) > 1 else ""
        return MAIN_SHOWN if best == own else best

    def _untied(self, run: Row) -> list[str]:
        return [name for name in self.explanations(run) if not is_tied(name) and not name.startswith("network ")]

    def untied(self) -> Table:
        """Explained share per text of the chosen simulation, Kneser-Ney, and the best of what knows no shared token."""
        rows = []
        for text in dict.fromkeys(run["text"] for run in self._cells):
            cells = chosen(self._cells, text=text)
            names = [name for name in self._untied(cells[0]) if name != KNESER_NEY]
            for kind in (SEVERAL, ONE, TOKENS):
                share = {
                    name: _mean_of([self._mean(run, name, kind) for run in cells]) ** 2
                    for name in (simulated(MAIN), f"tied, gamma_2, {MAIN}", KNESER_NEY, *names)
                }
                best = max(names, key=lambda name: np.nan_to_num(share[name], nan=-1.0))
                row = {"text": text, "item": kind, **{name: share[name] for name in list(share)[:3]}}
                rows.append(row | {"best other without ties": share[best], "which": best})
        return table_of(rows)

    def edges(self) -> Table:
        """How often the best parameter of a rival is the lowest or the highest that was tried."""
        found = []
        for rival, symbol, tried in GRIDS:
            chosen_values = [
                float(value.split("=")[1].split(",")[0])
                for row in chosen(self.rows, kind="agreement", explanation=rival)
                for value in row.get("chosen", {}).values()
            ]
            ends = {f"best at the {end}": chosen_values.count(x) for end, x in zip(ENDS, tried, strict=True)}
            grid = f"{symbol} from {tried[0]:g} to {tried[1]:g}"
            found.append({"explanation": rival, "grid": grid, **ends, "of": len(chosen_values)})
        return table_of(found)

    def top_tokens(self) -> Table:
        """Share of held-out windows with the network's top token: lowest and highest over texts and losses."""
        unseen, rows = self.unseen(), []
        columns = zip(*(unseen[name] for name in ("network", "prediction by", "text", "same top")), strict=True)
        shares = [(n, text, top) for n, by, text, top in columns if by == simulated(MAIN, str(n))]
        for network in dict.fromkeys(n for n, _, _ in shares):
            own = [(top, text) for n, text, top in shares if n == network]
            rows.append(
                {"network": network, "texts": len({text for _, text in own})}
                | {end: f"{pick(own)[0]:.3f} ({pick(own)[1]})" for end, pick in zip(ENDS, (min, max), strict=True)}
            )
        return table_of(rows)

    def targets(self) -> Iterable[bool]:
        """Whether it reaches the targets."""
        for run in self.runs:
            for kind, target in TARGETS.items():
                own = self._mean(run, simulated(MAIN, run["network"]), kind)
                if np.isfinite(own):
                    yield own >= target

    def kernel(self) -> Iterable[bool]:
        """Whether derived ties are as good for MLPs."""
        for run in self.runs:
            if run["network"] == "mlp":
                for kind in TARGETS:
                    derived, own = (self._mean(run, simulated(ties), kind) for ties in (KERNEL, MAIN))
                    if np.isfinite(derived) and np.isfinite(own):
                        yield derived >= own - NEAR

    def one_geometry(self) -> Iterable[bool]:
        """Whether transformer and MLP agree."""
        for run in self.runs:
            if run["network"] == "mlp":
                values = [self._mean(run, "network transformer", kind) for kind in ITEMS]
                yield from (x >= SAME for x in values if np.isfinite(x))

    def last_norm(self) -> Iterable[bool]:
        """Whether the simulation without a last norm fits the network without one better."""
        for run in self.runs:
            if run["network"] == WITHOUT_NORM:
                for kind in TARGETS:
                    own, other = (self._mean(run, simulated(MAIN, name), kind) for name in (WITHOUT_NORM, ""))
                    if np.isfinite(own) and np.isfinite(other):
                        yield own > other

    def held_out_loss(self) -> Iterable[bool]:
        """Whether the simulation has a lower loss on held-out contexts than the network."""
        for run in self.runs:
            loss = self._losses(run).get(simulated(MAIN, run["network"]))
            if loss is not None:
                yield loss < _network_loss(run)

    def kneser_ney(self) -> Iterable[bool]:
        """Whether Kneser-Ney has the lowest loss of all on held-out contexts."""
        for run in self.runs:
            losses = self._losses(run)
            if KNESER_NEY in losses:
                others = [loss for name, loss in losses.items() if name.startswith("simulated")]
                yield losses[KNESER_NEY] < min([_network_loss(run), *others])

    def _losses(self, run: Row) -> dict[str, float]:
        """Loss on held-out contexts of each explanation that has one; of simulations, the mean over replicates."""
        found = {name: self._agreements[(*_cell(run), name)].get("unseen") for name in self.explanations(run)}
        return {name: float(x.get("one", x["loss"])) for name, x in found.items() if x}

    def table(self) -> Table:
        """Corrected agreement, mean over networks with a last norm, per text, loss gap and explanation."""
        rows = []
        for text, target in dict.fromkeys((run["text"], run["target"]) for run in self.runs):
            cells = [run for run in chosen(self.runs, text=text, target=target) if not run["network"].endswith(WITHOUT)]
            for name in dict.fromkeys(name for run in cells for name in self.explanations(run)):
                values = {kind: [self._mean(run, name, kind) for run in cells] for kind in ITEMS}
                rows.append({"text": text, "loss gap": target, "explanation": name, **_means(values)})
        return table_of(rows)

    def networks(self) -> Table:
        """Corrected agreement of each network with the chosen simulation, the norms at the loss and the best rival."""
        rows = []
        for run in self.runs:
            names = self.explanations(run)
            rivals = [x for x in names if not is_tied(x) and not x.startswith(("network ", "at the loss", "in the"))]
            if not rivals:
                continue
            best = max(rivals, key=lambda name: np.nan_to_num(self._mean(run, name, SEVERAL), nan=-1.0))
            shown = {
                "simulated": simulated(MAIN, run["network"]),
                "simulated, kernel": simulated(KERNEL, run["network"]),
                "gamma_2 at the loss": "at the loss, gamma_2",
                "best without ties": best,
            }
            for label, name in shown.items():
                values = {kind: str(self.corrected(run, name, kind)) for kind in ITEMS}
                where = {"text": run["text"], "loss gap": run["target"], "network": run["network"]}
                rows.append({**where, "explanation": f"{label} ({best})" if name == best else label, **values})
        return table_of(rows)

    def reproducible(self) -> Table:
        """Mean correlation of two seeds of each network."""
        rows = []
        for run in self.runs:
            rho = {kind: float(np.mean([x[kind] for *_, x in run["seeds"] if kind in x] or [np.nan])) for kind in ITEMS}
            where = {"text": run["text"], "loss gap": run["target"], "network": run["network"]}
            rows.append({**where, "seeds": len(run["loss_gaps"]), **rho})
        return table_of(rows)

    def unseen(self) -> Table:
        """Losses on contexts that were held out, and how often top tokens are right, and those of the network."""
        rows = []
        for run in self.runs:
            where = {"text": run["text"], "loss gap": run["target"], "network": run["network"]}
            right = float(np.mean([x["right"] for x in run["unseen"]]))
            rows.append(
                {**where, "prediction by": "itself", "loss": _network_loss(run), "right": right, "same top": 1.0}
            )
            for name, loss in self._losses(run).items():
                found = self._agreements[(*_cell(run), name)]["unseen"]
                same = [x for key, x in found["same_top"].items() if key.rsplit(" ", 1)[0] == run["network"]]
                top = float(np.mean(same)) if same else np.nan
                rows.append({**where, "prediction by": name, "loss": loss, "right": found["right"], "same top": top})
        return table_of(rows)

    def overview(self) -> Table:
        """Corrected agreement of the explanations in `SHOWN`: means over networks with a last norm, then over texts.

        Each text counts once, however many networks and loss gaps it has.
        """
        return table_of([{"explanation": label, **self.over_texts(names)} for label, names in self._shown.items()])

    def intervals(self) -> Table:
        """The overview with 95% intervals of Student's t over texts."""
        rows = []
        for label, names in self._shown.items():
            of = self._of_texts(names)
            known = {kind: [means[kind] for means in of if np.isfinite(means[kind])] for kind in ITEMS}
            rows.append({"explanation": label, **{kind: str(Interval.of(known[kind])) for kind in ITEMS}})
        return table_of(rows)

    def over_texts(self, names: Sequence[str]) -> dict[str, float]:
        """Corrected agreement by kind of item: means over explanations, networks with a last norm, then texts."""
        of = self._of_texts(names)
        return _means({kind: [means[kind] for means in of] for kind in ITEMS})

    def _of_texts(self, names: Sequence[str]) -> list[dict[str, float]]:
        """The same of each text."""
        return [
            _means({k: [self._shown_mean(run, names, k) for run in chosen(self._cells, text=text)] for k in ITEMS})
            for text in dict.fromkeys(run["text"] for run in self._cells)
        ]

    @property
    def _cells(self) -> list[Row]:
        """Cells of networks with a last norm."""
        return [run for run in self.runs if not run["network"].endswith(WITHOUT)]

    @property
    def _shown(self) -> Mapping[str, Sequence[str]]:
        others = [f"network {name}" for name in dict.fromkeys(run["network"] for run in self._cells)]
        return {"another kind of network": others, **SHOWN}

    def _shown_mean(self, run: Row, names: Sequence[str], kind: str) -> float:
        return _mean_of(self._mean(run, name, kind) for name in names)

    def figure(self) -> Figure:
        """Explained share by explanation, one panel per kind of item, one column per text and loss gap."""
        texts = list(dict.fromkeys((run["text"], run["target"]) for run in self._cells))

        def share(text: str, gap: float, names: Sequence[str], kind: str) -> float:
            cells = chosen(self._cells, text=text, target=gap)
            known = [x for x in (self._shown_mean(run, names, kind) for run in cells) if np.isfinite(x)]
            return max(float(np.mean(known)), 0.0) ** 2 if known else np.nan

        shares = {
            kind: np.array([[share(*text, names, kind) for text in texts] for names in self._shown.values()])
            for kind in ITEMS
        }
        columns = [f"{text.split('_')[0]}, {gap:g}" for text, gap in texts]
        panels = [
            HeatmapPanel(
                TITLES[kind], shares[kind], "text, loss gap in nats", "explanation", columns, list(self._shown),
                [], [1, 1 + TIED_SHOWN], 0.0, 1.0, "explained share",
            )
            for kind in ITEMS
        ]  # fmt: skip
        caption = (
            "Share of the reproducible geometry that each explanation has, mean over the networks with a last norm. "
            "Explanations between the lines know which tokens contexts share, those below do not. Grey: not measured, "
            "or the explanation says nothing about such contexts."
        )
        return Figure("overview", "What share is explained", caption, panels, columns=2)

    def sentence(self) -> str:
        """The chosen simulation beside the best explanation without ties and other networks."""
        table = self.overview()
        of = dict(zip(table["explanation"], zip(*(table[kind] for kind in ITEMS), strict=True), strict=True))
        untied = max(list(SHOWN)[TIED_SHOWN:], key=lambda name: np.nan_to_num(of[name][0], nan=-1.0))

        def numbers(name: str) -> str:
            return "/".join("-" if np.isnan(x) else f"{x:.2f}" for x in of[name])

        return (
            f"Corrected agreement, mean over texts, each counted once ({len(self._cells)} cells of networks with a "
            f"last norm; contexts with several next tokens / with one / held out / tokens): simulated tied features "
            f"{numbers(MAIN_SHOWN)}; the best explanation that knows nothing of shared tokens ({untied}) "
            f"{numbers(untied)}; another kind of network {numbers('another kind of network')}."
        )


def _cell(run: Row) -> tuple[Any, Any, Any]:
    return run["text"], run["network"], run["target"]


def _network_loss(run: Row) -> float:
    return float(np.mean([x["loss"] for x in run["unseen"]]))


def _mean_of(values: Iterable[float]) -> float:
    return float(np.mean([x for x in values if np.isfinite(x)] or [np.nan]))


def _means(values: Mapping[str, Iterable[float]]) -> dict[str, float]:
    return {kind: _mean_of(of) for kind, of in values.items()}
