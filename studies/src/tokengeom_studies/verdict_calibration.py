"""How often the verdict of a comparison is right, on embeddings whose right verdict is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tokengeom.extending import AbstractProgress, Figure, HeatmapPanel
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.calibration import AGREEING, DISAGREEING, EXPLANATION, KINDS, Judged, calibrate

OUTCOMES = ("agrees", "agrees in part", "another explanation fits better", "does not agree", "cannot be determined")
LEAST_RIGHT = 0.95


class VerdictCalibration(AbstractStudy):
    """Embeddings of known origin, compared with the prediction for a random text."""

    question = "How often does the verdict of a comparison say what is known to be true?"
    small: ClassVar[Recipe] = {"seed": 0, "draws": 20, "most_contexts": 100}
    paper: ClassVar[Recipe] = {"seed": 0, "draws": 120, "most_contexts": 400}

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Draw texts and embeddings of every kind, compare, and count the right verdicts."""
        found = calibrate(recipe["draws"], recipe["seed"], most_contexts=recipe["most_contexts"], progress=progress)
        checks = [
            Check(f"share of right verdicts, {kind}", share_right(found, kind), low=LEAST_RIGHT) for kind in KINDS
        ]
        return self.findings(recipe, _sentence(found), checks, [_figure(found)], {"verdicts": _table(found)})


def share_right(found: Sequence[Judged], kind: str) -> float:
    """Share of right verdicts on embeddings of a kind."""
    return float(np.mean([one.right for one in found if one.kind == kind]))


def _sentence(found: Sequence[Judged]) -> str:
    groups = {
        "'does not agree'": DISAGREEING,
        "'agrees'": AGREEING,
        "the explanation that they were made from, or one with nearly the same geometry": (EXPLANATION,),
    }
    parts = []
    for said, kinds in groups.items():
        shares = ", ".join(f"{kind} {share_right(found, kind):.0%}" for kind in kinds)
        parts.append(f"{said} ({shares})")
    each = sum(one.kind == KINDS[0] for one in found)
    return f"With {each} draws of each kind, the verdict was {parts[0]}, {parts[1]}, and {parts[2]}."


def _table(found: Sequence[Judged]) -> Table:
    return table_of([vars(one) for one in found])


def _figure(found: Sequence[Judged]) -> Figure:
    counts = np.array(
        [[np.mean([one.outcome == said for one in found if one.kind == kind]) for said in OUTCOMES] for kind in KINDS]
    )
    panel = HeatmapPanel(
        "Verdicts",
        counts,
        "verdict",
        "embeddings",
        list(OUTCOMES),
        list(KINDS),
        low=0.0,
        high=1.0,
        colour_label="share",
    )
    return Figure("verdicts", "Verdicts on embeddings of known origin", "Share of draws with each verdict.", [panel])
