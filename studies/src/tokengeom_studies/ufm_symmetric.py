"""Symmetric supports, where the geometry is known in closed form: every support of size k once.

Then ``L_mm = S~``, its V - 1 nonzero singular values are all ``sqrt C(V-2, k-1)``, tokens form an equiangular tight
frame (cosines ``-1/(V-1)``), contexts have equal norms, and ``h_j`` is parallel to ``sum_{z in S_j} w_z`` [zhao2024].
One-hot supports (``k = 1``) with equally many contexts per token are neural collapse, NC1-NC4 [papyan2020]. Solver and
training are both compared with the closed form. With equal probabilities the finite part is 0, so the regularised
minimiser has the same geometry at every strength.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tokengeom import NextTokenStatistics, Run, predict, train
from tokengeom.extending import AbstractProgress, Figure, Float, HeatmapPanel, Panel, cosines
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table
from tokengeom_studies.common.known_patterns import KnownInstance, all_subsets, one_hot
from tokengeom_studies.common.neural_collapse import NeuralCollapse, neural_collapse


@dataclass(frozen=True, eq=False)
class Symmetry:
    """Distance of solver and training from the closed form of one instance; every number is 0 where they agree.

    ``solver``, ``spectrum``
        Relative distance of the solved L_mm from S~, and of its singular values from the closed form.
    ``frame``
        Largest ``|cos(w_z, w_z') + 1/(V-1)|`` over trained tokens.
    ``norms``
        Coefficient of variation of the trained contexts' norms.
    ``alignment``
        Largest ``1 - cos(h_j, sum_{z in S_j} w_z)`` over contexts.
    """

    instance: KnownInstance
    token_cosines: Float
    loss_gap: float
    solver: float
    spectrum: float
    frame: float
    norms: float
    alignment: float


class UfmSymmetric(AbstractStudy):
    """All supports of size k, and one-hot supports."""

    question: ClassVar[str] = "Do solver and training find the equiangular frame that symmetric supports imply?"
    # Adam with a small ridge, so that training has a minimiser and converges to it. Paper adds larger vocabularies.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "subsets": [[8, 2], [6, 3], [7, 5]],
        "classes": 10,
        "copies": 5,
        "dim": 32,
        "steps": 5_000,
        "learning_rate": 1e-2,
        "ridge": 1e-3,
    }
    paper: ClassVar[Recipe] = {
        "seed": 0,
        "subsets": [[8, 2], [6, 3], [7, 5], [12, 3], [14, 2]],
        "classes": 30,
        "copies": 10,
        "dim": 128,
        "steps": 30_000,
        "learning_rate": 1e-2,
        "ridge": 1e-4,
    }

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Solve and train each instance; the last one has one-hot supports."""
        instances = [all_subsets(V, k) for V, k in recipe["subsets"]]
        instances.append(one_hot(recipe["classes"], recipe["copies"]))
        stats = [NextTokenStatistics.from_probabilities(i.S / i.S.sum(axis=0)) for i in instances]
        runs = [_train(s, recipe, progress) for s in stats]
        cases = [_compare(i, s, run) for i, s, run in zip(instances, stats, runs, strict=True)]
        collapse = neural_collapse(runs[-1].W, runs[-1].H, instances[-1].S.argmax(axis=0))
        tables: dict[str, Table] = {
            "instances": _table(cases),
            "neural_collapse": {name: [value] for name, value in collapse.to_dict().items()},
        }
        return self.findings(recipe, _sentence(cases, collapse), _checks(cases, collapse), [_figure(cases)], tables)


def _train(stats: NextTokenStatistics, recipe: Recipe, progress: AbstractProgress) -> Run:
    return train(
        stats,
        "ufm",
        dim=recipe["dim"],
        optimizer="adam",
        reduction="mean",
        steps=recipe["steps"],
        learning_rate=recipe["learning_rate"],
        weight_decay=recipe["ridge"],
        rate_schedule="cosine",
        seed=recipe["seed"],
        progress=progress,
    )


def _compare(instance: KnownInstance, stats: NextTokenStatistics, run: Run) -> Symmetry:
    prediction = predict(stats)
    V, known = stats.V, instance.L_mm
    W = (run.W - run.W.mean(axis=0)).T
    token_cosines = cosines(W)
    off = token_cosines[~np.eye(V, dtype=bool)]
    sums, norms = W @ instance.S, np.linalg.norm(run.H, axis=0)
    aligned = (sums * run.H).sum(axis=0) / (np.linalg.norm(sums, axis=0) * norms)
    padded = np.zeros(V - 1)
    padded[: prediction.rank] = prediction.singular_values[: V - 1]
    return Symmetry(
        instance,
        token_cosines,
        run.loss_gap,
        solver=float(np.linalg.norm(prediction.L_mm - known) / np.linalg.norm(known)),
        spectrum=float(np.abs(padded / instance.singular_values - 1.0).max()),
        frame=float(np.abs(off + 1.0 / (V - 1)).max()),
        norms=float(norms.std() / norms.mean()),
        alignment=float(1.0 - aligned.min()),
    )


def _checks(cases: Sequence[Symmetry], collapse: NeuralCollapse) -> list[Check]:
    return [
        Check("distance of L_mm from S~", max(s.solver for s in cases), high=1e-4),
        Check("distance of the singular values from the closed form", max(s.spectrum for s in cases), high=1e-4),
        Check("tokens: distance from an equiangular frame", max(s.frame for s in cases), high=1e-2),
        Check("contexts: variation of norms", max(s.norms for s in cases), high=1e-2),
        Check("contexts: 1 - cosine with the sum of their tokens", max(s.alignment for s in cases), high=1e-3),
        Check("NC1", collapse.NC1, high=1e-3),
        Check("NC2", collapse.NC2, high=1e-2),
        Check("NC3", collapse.NC3, high=1e-2),
        Check("NC4", collapse.NC4, high=0.0),
    ]


def _sentence(cases: Sequence[Symmetry], collapse: NeuralCollapse) -> str:
    worst = max(cases, key=lambda s: s.frame)
    return (
        f"On {len(cases)} symmetric instances the solved L_mm equals S~ to {max(s.solver for s in cases):.0e}. Trained "
        f"tokens form an equiangular frame to {worst.frame:.0e} in cosine (worst: {worst.instance.name}); contexts "
        f"have equal norms to {max(s.norms for s in cases):.0e} and the direction of the sum of their tokens to "
        f"{max(s.alignment for s in cases):.0e}. With one-hot labels and equally many contexts per token, the measures "
        f"of neural collapse are NC1 = {collapse.NC1:.0e}, NC2 = {collapse.NC2:.0e}, NC3 = {collapse.NC3:.0e} and NC4 "
        f"= {collapse.NC4:.0e}."
    )


def _table(cases: Sequence[Symmetry]) -> Table:
    names = ("loss_gap", "solver", "spectrum", "frame", "norms", "alignment")
    return {
        "instance": [s.instance.name for s in cases],
        **{name: [float(getattr(s, name)) for s in cases] for name in names},
    }


def _figure(cases: Sequence[Symmetry]) -> Figure:
    panels: list[Panel] = [
        HeatmapPanel(f"Tokens, {s.instance.name}", s.token_cosines, "token", "token", low=-1.0, high=1.0,
                     colour_label="cosine")
        for s in cases
    ]  # fmt: skip
    caption = (
        "Cosines between trained tokens. In the closed form, an equiangular frame, they are 1 on the diagonal and "
        "-1/(V-1) elsewhere."
    )
    return Figure("ufm-symmetric-tokens", "Tokens under symmetric supports", caption, panels)
