"""The one case with a closed form: every support of size k once.

Then ``L_mm = S~``, its V - 1 nonzero singular values are all ``sqrt C(V-2, k-1)``, tokens form an equiangular tight
frame (cosines ``-1/(V-1)``), contexts have one norm, and ``h_j`` is parallel to ``sum_{z in S_j} w_z`` [zhao2024]. With
``k = 1`` this is neural collapse, NC1-NC4 [papyan2020]. Solver and training are both held against it; with equal
probabilities the finite part is 0, so that the regularised minimiser has the same geometry at every strength.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tokengeom.figures.base import Figure, HeatmapPanel, Panel
from tokengeom.geometry.collapse import NeuralCollapse, neural_collapse
from tokengeom.numerics import Float, cosines
from tokengeom.problems.instances import KnownInstance, all_subsets, one_hot
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import AbstractStudy, Check, Findings, Recipe
from tokengeom.studies.feature_runs import Tables
from tokengeom.theory.features import predict_features
from tokengeom.training.run import Run
from tokengeom.training.train import train


@dataclass(frozen=True, eq=False)
class Symmetry:
    """How far solver and training are from the closed form of one instance; every number is 0 at agreement.

    ``solver``, ``spectrum``
        Relative distance of the solved L_mm from S~, and of its singular values from those written down.
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
    """All k-subsets, and neural collapse as the case k = 1."""

    name: ClassVar[str] = "ufm-symmetric"
    question: ClassVar[str] = "Do solver and training find the frame that symmetry demands?"

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Solve and train each instance; the last is one-hot."""
        instances = [all_subsets(V, k) for V, k in recipe["subsets"]]
        instances.append(one_hot(recipe["classes"], recipe["copies"]))
        stats = [NextTokenStatistics.from_probabilities(i.S / i.S.sum(axis=0)) for i in instances]
        runs = [_train(s, recipe, progress) for s in stats]
        found = [_compare(i, s, run) for i, s, run in zip(instances, stats, runs, strict=True)]
        collapse = neural_collapse(runs[-1].W, runs[-1].H, instances[-1].S.argmax(axis=0))
        tables: Tables = {
            "instances": _table(found),
            "neural_collapse": {name: [value] for name, value in collapse.to_dict().items()},
        }
        return Findings(_sentence(found, collapse), _checks(found, collapse), [_figure(found)], tables)


def _train(stats: NextTokenStatistics, recipe: Recipe, progress: AbstractProgress) -> Run:
    return train(
        stats,
        "ufm",
        dim=recipe["dim"],
        optimizer="adam",
        steps=recipe["steps"],
        learning_rate=recipe["learning_rate"],
        weight_decay=recipe["ridge"],
        rate_schedule="cosine",
        seed=recipe["seed"],
        progress=progress,
    )


def _compare(instance: KnownInstance, stats: NextTokenStatistics, run: Run) -> Symmetry:
    prediction = predict_features(stats)
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


def _checks(found: Sequence[Symmetry], collapse: NeuralCollapse) -> list[Check]:
    return [
        Check("distance of L_mm to S~", max(s.solver for s in found), high=1e-4),
        Check("distance of singular values to the closed form", max(s.spectrum for s in found), high=1e-4),
        Check("tokens: distance to an equiangular frame", max(s.frame for s in found), high=1e-2),
        Check("contexts: variation of norms", max(s.norms for s in found), high=1e-2),
        Check("contexts: distance to the sum of their tokens", max(s.alignment for s in found), high=1e-3),
        Check("NC1", collapse.NC1, high=1e-3),
        Check("NC2", collapse.NC2, high=1e-2),
        Check("NC3", collapse.NC3, high=1e-2),
        Check("NC4", collapse.NC4, high=0.0),
    ]


def _sentence(found: Sequence[Symmetry], collapse: NeuralCollapse) -> str:
    worst = max(found, key=lambda s: s.frame)
    return (
        f"On {len(found)} symmetric instances the solved L_mm is S~ to {max(s.solver for s in found):.0e}; trained "
        f"tokens are an equiangular frame to {worst.frame:.0e} in cosine (worst: {worst.instance.name}), contexts have "
        f"one norm to {max(s.norms for s in found):.0e} and point along the sum of their tokens to "
        f"{max(s.alignment for s in found):.0e}. With one-hot labels NC1 = {collapse.NC1:.0e}, NC2 = "
        f"{collapse.NC2:.0e}, NC3 = {collapse.NC3:.0e}, NC4 = {collapse.NC4:.0e}: neural collapse."
    )


def _table(found: Sequence[Symmetry]) -> dict[str, Sequence[float | str]]:
    names = ("loss_gap", "solver", "spectrum", "frame", "norms", "alignment")
    return {
        "instance": [s.instance.name for s in found],
        **{name: [float(getattr(s, name)) for s in found] for name in names},
    }


def _figure(found: Sequence[Symmetry]) -> Figure:
    panels: list[Panel] = [
        HeatmapPanel(f"Tokens, {s.instance.name}", s.token_cosines, "word", "word", low=-1.0, high=1.0,
                     colour_label="cosine")
        for s in found
    ]  # fmt: skip
    caption = "Cosines between trained tokens: 1 on the diagonal and -1/(V-1) everywhere else, an equiangular frame."
    return Figure("ufm-symmetric-tokens", "Tokens under symmetric supports", caption, panels)
