"""Data that break the conditions: the loss stops at the predicted infimum and not at the entropy (docs/theory.md 2.2).

Into compatible and separable data (``d > m``) contexts are planted on purpose that share the
embedding of another:

- *incompatible*: the same support, other probabilities. No W gives both their log-ratios; margins are not touched.
- *not separable*: a support that has one token in common. Each context asks for its tokens above the other's; their
  log-ratios do not clash.
- *both*: one of each, in different places.
- *crowded*: nothing planted, but four contexts for each dimension, so that often nothing diverges at all.

Each case is solved in advance (effective supports, reduced minimiser, NTP-SVM on the effective supports), and long
gradient descent must end there: the loss falls to the predicted infimum like 1/k, the projection on ``F^`` converges to
the reduced minimiser, and the rest turns to the predicted direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Figure, LinePanel, Panel
from tokengeom.figures.training_curves import linear_training
from tokengeom.geometry.probes import linear_probes
from tokengeom.numerics import Bool, Float, blas_threads_for
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import AbstractStudy, Check, Findings, Recipe
from tokengeom.studies.linear_draws import Draw, draw_counts, draw_supports, step_limit
from tokengeom.theory.linear import LinearPrediction, predict_linear
from tokengeom.training import Run, train

# Whether the data are compatible and separable.
CASES: Mapping[str, tuple[bool, bool]] = {
    "incompatible": (False, True),
    "not separable": (True, False),
    "both": (False, False),
    "crowded": (False, False),
}
TITLES: Mapping[str, str] = {
    "incompatible": "incompatible data",
    "not separable": "data that are not separable",
    "both": "data that are neither compatible nor separable",
    "crowded": "more contexts than the dimensions can hold",
}


@dataclass(frozen=True, eq=False)
class Violation:
    """One case, predicted and trained."""

    case: str
    seed: int
    prediction: LinearPrediction
    run: Run

    @property
    def as_planned(self) -> bool:
        """Whether the conditions were found to hold and fail as planted."""
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
        """Slope of ``log(CE - infimum)`` against log k over the last decade of steps; theory says -1."""
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

    name: ClassVar[str] = "linear-violations"
    question: ClassVar[str] = "Where does training end when the loss cannot reach the entropy?"

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Plant, predict and train every case for every seed."""
        found = []
        parts = float(len(CASES) * recipe["seeds"])
        with blas_threads_for(recipe["m"], recipe["d"]), progress.stage("cases", parts) as stage:
            for case in CASES:
                for seed in range(recipe["seeds"]):
                    found.append(_violation(recipe, case, seed))
                    stage.advance(1.0, f"{case}, seed {seed}")
        return Findings(_sentence(found), _checks(found, recipe), _figures(found), {"cases": _table(found)})


def planted(case: str, seed: int, *, V: int, m: int, d: int, support_size: int, n: int) -> Draw:
    """Random data of a case: m contexts with supports of one size, of which the last ones are planted."""
    if 2 * support_size - 1 > V or m < 4:
        got = f"V={V}, support_size={support_size}, m={m}"
        raise InputError(f"Planted contexts need V >= 2 support_size - 1 and m >= 4; got {got}.")
    rng = np.random.default_rng([seed, list(CASES).index(case)])
    S = draw_supports(rng, V, m, support_size)
    H = rng.standard_normal((max(2, m // 4) if case == "crowded" else d, m))
    if case in ("incompatible", "both"):
        S[:, m - 1], H[:, m - 1] = S[:, 0], H[:, 0]
    if case in ("not separable", "both"):
        S[:, m - 2], H[:, m - 2] = _one_in_common(rng, S[:, 1]), H[:, 1]
    return Draw(_tilted(draw_counts(rng, S, n), case), H)


def _one_in_common(rng: np.random.Generator, support: Bool) -> Bool:
    """Random support of the same size that has exactly one token in common."""
    inside, outside = rng.permutation(np.flatnonzero(support)), rng.permutation(np.flatnonzero(~support))
    chosen = np.zeros(len(support), dtype=bool)
    chosen[inside[:1]] = True
    chosen[outside[: len(inside) - 1]] = True
    return chosen


def _tilted(stats: NextTokenStatistics, case: str) -> NextTokenStatistics:
    """Reverse the counts of the incompatible pair, so that their log-ratios clash by a visible amount."""
    if case not in ("incompatible", "both"):
        return stats
    counts = stats.counts.toarray()
    tokens = np.flatnonzero(counts[:, 0])
    falling = np.sort(counts[tokens, 0])[::-1]
    counts[tokens, 0], counts[tokens, -1] = falling, falling[::-1]
    return NextTokenStatistics.from_counts(counts)


def _violation(recipe: Recipe, case: str, seed: int) -> Violation:
    draw = planted(case, seed, **{name: recipe[name] for name in ("V", "m", "d", "support_size", "n")})
    prediction = predict_linear(draw.stats, draw.H)
    run = train(
        draw.stats,
        "linear",
        embeddings=draw.H,
        optimizer="gd",
        learning_rate=step_limit(draw),
        steps=recipe["steps"],
        init="zero",
        probes=linear_probes(prediction),
    )
    return Violation(case, seed, prediction, run)


def _checks(found: Sequence[Violation], recipe: Recipe) -> list[Check]:
    diverging = [v for v in found if v.prediction.W_mm.any()]
    gaps = [float(v.above_floor[-1]) for v in found]
    slopes = [v.slope for v in found if np.isfinite(v.slope)]
    cosines = [v.last("cosine_without_finite") for v in diverging]
    checks = [
        Check("cases whose conditions are not as planted", float(sum(not v.as_planned for v in found)), high=0.0),
        Check("least predicted excess over the entropy, in nats", min(v.excess for v in found), low=1e-3),
        Check("largest CE - infimum after training, in nats", max(gaps), high=recipe["close"]),
        Check("largest infimum - CE after training, in nats", max(-gap for gap in gaps), high=1e-9),
        Check("largest relative error on F^", max(v.last("finite_error") for v in found), high=recipe["finite_close"]),
        Check("least cos(W - W*, W^mm)", min(cosines, default=float("nan")), low=recipe["least_cosine"]),
    ]
    if slopes:
        checks.append(Check("median slope of log(CE - infimum) over log k", float(np.median(slopes)), -1.2, -0.8))
    return checks


def _sentence(found: Sequence[Violation]) -> str:
    parts = []
    for case in CASES:
        rows = [v for v in found if v.case == case]
        excess, gap = np.median([v.excess for v in rows]), np.median([v.run.loss_gap for v in rows])
        parts.append(f"{case} H + {gap:.5f} (predicted {excess:.5f})")
    cosines = [v.last("cosine_without_finite") for v in found if v.prediction.W_mm.any()]
    worst = max(float(v.above_floor[-1]) for v in found)
    error = max(v.last("finite_error") for v in found)
    spread = f"{min(cosines):.3f} to {max(cosines):.3f}" if cosines else "not defined"
    return (
        f"The loss stops at the predicted infimum and not at the entropy: after {found[0].run.steps:,} steps its "
        f"median is {'; '.join(parts)}, and no run is more than {worst:.1e} nats above its infimum. The projection on "
        f"F^ is within {error:.1e} of the reduced minimiser, and cos(W - W*, W^mm) is {spread}."
    )


def _table(found: Sequence[Violation]) -> Mapping[str, Sequence[Any]]:
    return {
        "case": [v.case for v in found],
        "seed": [v.seed for v in found],
        "compatible": [bool(v.prediction.compatible) for v in found],
        "separable": [bool(v.prediction.separable) for v in found],
        "added_pairs": [int(np.sum(v.prediction.effective_support & ~v.prediction.data.S)) for v in found],
        "entropy": [v.prediction.entropy for v in found],
        "predicted_excess": [v.excess for v in found],
        "loss_gap": [v.run.loss_gap for v in found],
        "above_floor": [float(v.above_floor[-1]) for v in found],
        "slope": [v.slope for v in found],
        "finite_error": [v.last("finite_error") for v in found],
        "margin": [v.prediction.effective_margin for v in found],
        "cosine_without_finite": [v.last("cosine_without_finite") for v in found],
    }


def _figures(found: Sequence[Violation]) -> list[Figure]:
    """One figure a case, of its first seed."""
    first = {v.case: v for v in reversed(found)}
    return [_figure(first[case]) for case in CASES]


def _figure(violation: Violation) -> Figure:
    prediction, title = violation.prediction, TITLES[violation.case]
    panels = [panel for panel in linear_training({"gd": violation.run}, prediction).panels if _has_numbers(panel)]
    caption = (
        f"Gradient descent on {title}, {violation.run.steps:,} steps, against the predicted infimum of the loss, the "
        f"reduced minimiser W* on F^ and the direction W^mm of the effective supports. {prediction.summary()}"
    )
    return Figure(f"training-{violation.case.replace(' ', '-')}", f"Training on {title}", caption, panels, columns=3)


def _has_numbers(panel: Panel) -> bool:
    """Whether there is anything to draw: a direction, for instance, is not defined when nothing diverges."""
    return not isinstance(panel, LinePanel) or any(np.isfinite(curve.y).any() for curve in panel.curves)
