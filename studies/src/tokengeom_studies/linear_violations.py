"""The linear model on data that violate its conditions: the loss converges to an infimum above the entropy.

The theory is in docs/theory.md 2.2. Into compatible and separable data (``d > m``), contexts are planted that have the
same embedding as another context:

- *incompatible*: the same support, other probabilities. No W gives both contexts their log-ratios; margins are not
  affected.
- *not separable*: a support with exactly one token in common. Each context needs its tokens above the other's; their
  log-ratios do not conflict.
- *both*: one of each, at different contexts.
- *crowded*: nothing is planted, but there are four contexts per dimension, so often nothing diverges at all.

Each case is solved first (effective supports, reduced minimiser, NTP-SVM on the effective supports), and long gradient
descent must converge to the solution: the loss falls to the predicted infimum like 1/k, the projection on ``F^``
converges to the reduced minimiser, and the rest turns to the predicted direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tokengeom import LinearPrediction, NextTokenStatistics, Run, predict
from tokengeom.extending import AbstractProgress, Bool, Figure, Float, InputError, LinePanel, Panel, blas_threads_for
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table
from tokengeom_studies.common.linear_training import linear_training
from tokengeom_studies.common.random_data import LinearSetting, descend, dirichlet_counts, random_supports

CASES: Mapping[str, tuple[bool, bool]] = {
    "incompatible": (False, True),
    "not separable": (True, False),
    "both": (False, False),
    "crowded": (False, False),
}
"""Whether the data of each case are compatible, and whether they are separable."""
TITLES: Mapping[str, str] = {
    "incompatible": "incompatible data",
    "not separable": "data that are not separable",
    "both": "data that are neither compatible nor separable",
    "crowded": "data with four contexts per dimension",
}


@dataclass(frozen=True, eq=False)
class Violation:
    """Prediction and run of one case."""

    case: str
    seed: int
    prediction: LinearPrediction
    run: Run

    @property
    def as_planned(self) -> bool:
        """Whether the conditions hold and fail as planted."""
        return (bool(self.prediction.compatible), bool(self.prediction.separable)) == CASES[self.case]

    @property
    def excess(self) -> float:
        """Predicted infimum of the loss above the entropy, in nats."""
        return self.prediction.loss_floor - self.prediction.entropy

    @property
    def above_floor(self) -> Float:
        """Loss above its predicted infimum at every record, in nats."""
        return self.run.trajectory["loss_gap"] - self.excess

    @property
    def slope(self) -> float:
        """Slope of ``log(CE - infimum)`` against log k over the last decade of steps; theory predicts -1."""
        k, gap = self.run.trajectory["step"], self.above_floor
        late = (k >= 0.1 * k[-1]) & (gap > 1e-12)
        return (
            float(np.polyfit(np.log(k[late]), np.log(gap[late]), 1)[0]) if np.count_nonzero(late) > 1 else float("nan")
        )

    def last(self, column: str) -> float:
        """A measurement after the last step."""
        return self.run.trajectory.last(column)


class LinearViolations(AbstractStudy):
    """The limit of training when compatibility, separability or both fail."""

    question: ClassVar[str] = "Where does training converge when the loss cannot reach the entropy?"
    small: ClassVar[Recipe] = {
        "seeds": 3,
        "V": 8,
        "m": 12,
        "d": 15,
        "support_size": 3,
        "n": 1200,
        "steps": 300_000,
        "close": 4e-4,
        "finite_close": 0.02,
        "least_cosine": 0.97,
    }
    paper: ClassVar[Recipe] = {
        **small,
        "V": 10,
        "m": 50,
        "d": 60,
        "support_size": 5,
        "n": 5000,
        "steps": 1_000_000,
    }

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Generate, predict and train every case for every seed."""
        cases = []
        parts = float(len(CASES) * recipe["seeds"])
        with blas_threads_for(recipe["m"], recipe["d"]), progress.stage("Cases", parts) as stage:
            for case in CASES:
                for seed in range(recipe["seeds"]):
                    cases.append(_violation(recipe, case, seed))
                    stage.advance(1.0, f"{case}, seed {seed}")
        tables = {"cases": _table(cases)}
        return self.findings(recipe, _sentence(cases), _checks(cases, recipe), _figures(cases), tables)


def planted(case: str, seed: int, *, V: int, m: int, d: int, support_size: int, n: int) -> LinearSetting:
    """Random data of a case: m contexts with supports of one size, the last one or two of them planted."""
    if 2 * support_size - 1 > V or m < 4:
        got = f"V={V}, support_size={support_size}, m={m}"
        raise InputError(f"Planted contexts need V >= 2 support_size - 1 and m >= 4; got {got}.")
    rng = np.random.default_rng([seed, list(CASES).index(case)])
    S = random_supports(rng, V, m, support_size)
    H = rng.standard_normal((max(2, m // 4) if case == "crowded" else d, m))
    if case in ("incompatible", "both"):
        S[:, m - 1], H[:, m - 1] = S[:, 0], H[:, 0]
    if case in ("not separable", "both"):
        S[:, m - 2], H[:, m - 2] = _one_in_common(rng, S[:, 1]), H[:, 1]
    return LinearSetting(_tilted(dirichlet_counts(rng, S, n), case), H)


def _one_in_common(rng: np.random.Generator, support: Bool) -> Bool:
    """A random support of the same size with exactly one token in common."""
    inside, outside = rng.permutation(np.flatnonzero(support)), rng.permutation(np.flatnonzero(~support))
    chosen = np.zeros(len(support), dtype=bool)
    chosen[inside[:1]] = True
    chosen[outside[: len(inside) - 1]] = True
    return chosen


def _tilted(stats: NextTokenStatistics, case: str) -> NextTokenStatistics:
    """Give the incompatible pair reversed counts, so that their log-ratios conflict by a visible amount."""
    if case not in ("incompatible", "both"):
        return stats
    counts = stats.counts.toarray()
    tokens = np.flatnonzero(counts[:, 0])
    falling = np.sort(counts[tokens, 0])[::-1]
    counts[tokens, 0], counts[tokens, -1] = falling, falling[::-1]
    return NextTokenStatistics.from_counts(counts)


def _violation(recipe: Recipe, case: str, seed: int) -> Violation:
    setting = planted(case, seed, **{name: recipe[name] for name in ("V", "m", "d", "support_size", "n")})
    prediction = predict(setting.stats, embeddings=setting.H)
    return Violation(case, seed, prediction, descend(setting, prediction, recipe["steps"]))


def _checks(cases: Sequence[Violation], recipe: Recipe) -> list[Check]:
    diverging = [v for v in cases if v.prediction.W_mm.any()]
    gaps = [float(v.above_floor[-1]) for v in cases]
    slopes = [v.slope for v in cases if np.isfinite(v.slope)]
    cosines = [v.last("cosine_without_finite") for v in diverging]
    checks = [
        Check("runs whose conditions are not as planted", float(sum(not v.as_planned for v in cases)), high=0.0),
        Check("smallest predicted excess over the entropy, in nats", min(v.excess for v in cases), low=1e-3),
        Check("largest CE - infimum after training, in nats", max(gaps), high=recipe["close"]),
        Check("largest infimum - CE after training, in nats", max(-gap for gap in gaps), high=1e-9),
        Check("largest relative error on F^", max(v.last("finite_error") for v in cases), high=recipe["finite_close"]),
        Check("smallest cos(W - W*, W^mm)", min(cosines, default=float("nan")), low=recipe["least_cosine"]),
    ]
    if slopes:
        checks.append(Check("median slope of log(CE - infimum) over log k", float(np.median(slopes)), -1.2, -0.8))
    return checks


def _sentence(cases: Sequence[Violation]) -> str:
    parts = []
    for case in CASES:
        rows = [v for v in cases if v.case == case]
        excess, gap = np.median([v.excess for v in rows]), np.median([v.run.loss_gap for v in rows])
        parts.append(f"{case} H + {gap:.5f} (predicted {excess:.5f})")
    cosines = [v.last("cosine_without_finite") for v in cases if v.prediction.W_mm.any()]
    worst = max(float(v.above_floor[-1]) for v in cases)
    error = max(v.last("finite_error") for v in cases)
    spread = f"{min(cosines):.3f} to {max(cosines):.3f}" if cosines else "not defined"
    return (
        f"After {cases[0].run.steps:,} steps the loss is at most {worst:.1e} nats above its predicted infimum, which "
        f"lies above the entropy; its medians are {'; '.join(parts)}. The projection on F^ is within {error:.1e} of "
        f"the reduced minimiser, and cos(W - W*, W^mm) is {spread}."
    )


def _table(cases: Sequence[Violation]) -> Table:
    return {
        "case": [v.case for v in cases],
        "seed": [v.seed for v in cases],
        "compatible": [bool(v.prediction.compatible) for v in cases],
        "separable": [bool(v.prediction.separable) for v in cases],
        "added_pairs": [int(np.sum(v.prediction.effective_support & ~v.prediction.data.S)) for v in cases],
        "entropy": [v.prediction.entropy for v in cases],
        "predicted_excess": [v.excess for v in cases],
        "loss_gap": [v.run.loss_gap for v in cases],
        "above_floor": [float(v.above_floor[-1]) for v in cases],
        "slope": [v.slope for v in cases],
        "finite_error": [v.last("finite_error") for v in cases],
        "margin": [v.prediction.effective_margin for v in cases],
        "cosine_without_finite": [v.last("cosine_without_finite") for v in cases],
    }


def _figures(cases: Sequence[Violation]) -> list[Figure]:
    """One figure per case, of its first seed."""
    first = {v.case: v for v in reversed(cases)}
    return [_figure(first[case]) for case in CASES]


def _figure(violation: Violation) -> Figure:
    prediction, title = violation.prediction, TITLES[violation.case]
    panels = [panel for panel in linear_training({"gd": violation.run}, prediction).panels if _has_numbers(panel)]
    caption = (
        f"Gradient descent on {title}, {violation.run.steps:,} steps, compared with the predicted infimum of the loss, "
        f"the reduced minimiser W* on F^ and the direction W^mm of the effective supports. {prediction.summary()}"
    )
    return Figure(f"training-{violation.case.replace(' ', '-')}", f"Training on {title}", caption, panels, columns=3)


def _has_numbers(panel: Panel) -> bool:
    """Whether there is anything to draw: for instance, a direction is not defined when nothing diverges."""
    return not isinstance(panel, LinePanel) or any(np.isfinite(curve.y).any() for curve in panel.curves)
