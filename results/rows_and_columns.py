"""Do nuclear norm and gamma_2 differ in tokens or in contexts? Tables of docs/results/optimizer_norms.md.

``python results/rows_and_columns.py [TEXT [DIM [DEVICE]]]`` prints them as Markdown. TEXT is ``stories`` (some fifteen
minutes on two cores) or an .npz file that ``save_text`` wrote; DIM is 128, and should not be below the ranks.

Two norms lie between nuclear and gamma_2: in one the longest token counts, and of contexts the mean square; in the
other it is the other way round. All four predictions are compared with each other, and with unconstrained features and
MLPs that were trained to the same loss.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import combinations

from tokengeom.extending import SilentProgress
from tokengeom_studies.common.compared_cells import CELL, cells
from tokengeom_studies.common.compared_trainings import begin_comparing, measure_trainings
from tokengeom_studies.common.measured import Rows
from tokengeom_studies.common.on_device import ITEMS
from tokengeom_studies.common.other_norms import smallest_one_sided
from tokengeom_studies.optimizer_norms import TRAININGS, OptimizerNorms
from tokengeom_studies.ufm_simplified_stories import UfmSimplifiedStories

NAMES = {"nuclear": "nuclear", "contexts": "longest context", "tokens": "longest token", "gamma2": "gamma_2"}
GAPS, SEEDS = (0.05, 0.005), 5
TRAINED = ("gd", "adam", "adamw, decay 0.1", "mlp, gd", "mlp, adam")


def main(text: str = "stories", dim: str = "128", device: str = "cpu") -> None:
    """Solve in four norms, train, and print both tables."""
    size = {name: UfmSimplifiedStories.small[name] for name in ("stories", "context", "contexts", "vocabulary")}
    given = {"text": text, "device": device, "dim": int(dim), "gaps": list(GAPS), "seconds": 300}
    rows = Rows()
    others = {
        (longest, gap): partial(smallest_one_sided, loss_gap=gap, longest=longest)
        for gap in GAPS
        for longest in ("contexts", "tokens")
    }
    comparer = begin_comparing({**OptimizerNorms.small, **size, **given}, rows, others)
    norms = comparer.geometries
    proven = max(row["relative_gap"] for row in rows.where(kind="prediction"))
    say([f"{comparer.text.stats.V} tokens, {comparer.text.stats.m} contexts; norms proven within {proven:.1e}"])
    say(["norms", *(f"loss gap {gap:g}" for gap in GAPS)])
    for one, other in combinations(NAMES, 2):
        known = [norms[one, gap].agreement(norms[other, gap]) for gap in GAPS]
        say([f"{NAMES[one]}, {NAMES[other]}", *map(pair, known)])
    trainings = {name: TRAININGS[name] for name in TRAINED}
    measure_trainings(comparer, trainings, range(SEEDS), SilentProgress())
    say(["training", "loss gap", "seeds", *NAMES.values(), "reproducible"])
    for cell in cells(rows.where(kind=CELL)):
        means = [{item: cell.agreed(norm, item) for item in ITEMS} for norm in NAMES]
        reproducible = {item: cell.reproducible(item) for item in ITEMS}
        say([cell.training, f"{cell.target:g}", f"{len(cell.row['seeds'])}", *map(pair, [*means, reproducible])])


def pair(agreement: Mapping[str, float]) -> str:
    """Agreement of contexts and of tokens."""
    return f"{agreement['contexts']:.3f} / {agreement['tokens']:.3f}"


def say(entries: Iterable[str]) -> None:
    """One row of a table."""
    sys.stdout.write(f"| {' | '.join(entries)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
