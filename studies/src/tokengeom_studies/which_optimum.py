"""Where NTP-SVM* has several solutions: which of them the regularisation path and training move towards.

Solutions differ only for supports with much symmetry. For each of a list of such supports the set of all solutions is
computed (`tokengeom_studies.common.solution_sets`), and rules select one solution each. The path and training are
measured by the direction in which their logits move between two loss gaps, which the finite part does not enter, and
its distance from each of these solutions: Frobenius distance of centred logits of norm 1.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tokengeom import NextTokenStatistics, predict
from tokengeom.extending import AbstractProgress, Bool, Float
from tokengeom_studies.base import Findings, Recipe
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Hypothesis, Row, Rows
from tokengeom_studies.common.optimum_findings import PATH, RULES, SAME_LOSS, OptimumFindings
from tokengeom_studies.common.random_data import with_random_repeats
from tokengeom_studies.common.solution_sets import PATTERNS, SolutionSet, direction, distance, supports


def follow(
    stats: NextTokenStatistics, W: Float, H: Float, *, optimizer: str, rate: float, steps: int, targets: Sequence[float]
) -> Iterator[tuple[int, float, int, float, Float]]:
    """Train many starts at once; run, target, step, loss gap and logits whenever a run first reaches a target.

    ``W`` (runs x V x d) and ``H`` (runs x d x m) are the starts. The loss is the mean over contexts by their shares.
    """
    P, pi = stats.P.toarray(), stats.pi
    logs = np.log(np.where(P > 0, P, 1.0))
    factors = [W.copy(), H.copy()]
    moments = [(np.zeros_like(X), np.zeros_like(X)) for X in factors]
    waiting = np.ones((len(W), len(targets)), np.bool_)
    for step in range(steps + 1):
        L = factors[0] @ factors[1]
        top = L - L.max(axis=1, keepdims=True)
        Q = np.exp(top)
        total = Q.sum(axis=1, keepdims=True)
        if step % 5 == 0:
            gap = (P * (logs - top + np.log(total))).sum(axis=1) @ pi
            for run, k in np.argwhere(waiting & (gap[:, None] <= np.asarray(targets))):
                waiting[run, k] = False
                yield int(run), targets[k], step, float(gap[run]), L[run].copy()
            if not waiting.any() or not np.isfinite(gap).all():
                return
        G = (Q / total - P) * pi
        gradients = G @ factors[1].transpose(0, 2, 1), factors[0].transpose(0, 2, 1) @ G
        for X, g, (mean, square) in zip(factors, gradients, moments, strict=True):
            if optimizer == "gd":
                X -= rate * g
                continue
            mean += 0.1 * (g - mean)
            square += 0.001 * (g * g - square)
            X -= rate * (mean / (1 - 0.9 ** (step + 1))) / (np.sqrt(square / (1 - 0.999 ** (step + 1))) + 1e-12)


class WhichOptimum(AbstractMeasuredStudy):
    """Several solutions of NTP-SVM*, and the direction of the path and of trainings among them."""

    question: ClassVar[str] = "Where NTP-SVM* has several solutions, which of them does training move towards?"
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "probabilities matter": Hypothesis(
            "The solution that the regularisation path selects depends on the probabilities, not on supports alone.",
            "distance between the path's directions at small loss for two random sets of probabilities: yes if above "
            "0.05 for at least 80% of the supports, no if at most 0.05 for at least 80%",
        ),
        "largest margins": Hypothesis(
            "The path selects the solution with the largest margins.",
            "distance of its direction at small loss from that solution, mean over sets of probabilities: yes if at "
            "most 0.05 for at least 80% of the supports that have such margins, no if above for at least 80%",
        ),
        "descent follows the path": Hypothesis(
            "Gradient descent from the smallest start moves nearer to the path's direction at small loss than to the "
            "solution of every other rule.",
            "mean distance over seeds and probabilities; solutions within 0.02 of the path's direction do not count: "
            "yes if so for at least 80% of the supports, no otherwise",
        ),
        "descent follows the path at equal loss": Hypothesis(
            "Gradient descent from the smallest start moves nearer to the path's direction between the same losses "
            "than to the solution of every rule.",
            "as above, with the path's direction between the same two loss gaps",
        ),
        "smaller starts are nearer": Hypothesis(
            "Gradient descent from the smallest start moves nearer to the path's direction between the same losses "
            "than from the largest start.",
            "difference of distances, mean over seeds and probabilities for each of the supports; 95% interval over "
            "supports above 0: yes, below: no",
        ),
        "adam follows the path": Hypothesis(
            "Adam from the smallest start moves nearer to the path's direction between the same losses than to the "
            "solution of every rule.",
            "as for gradient descent at equal loss",
        ),
    }
    small: ClassVar[Recipe] = {
        "patterns": [0, 1],
        "probabilities": 2,
        "seeds": 2,
        "starts": [0.01, 1.0],
        "dim": 16,
        "loss_gaps": [1e-2, 1e-3],
        "path_gaps": [1e-2, 1e-4, 1e-6],
        "rate": 0.05,
        "adam_rate": 1e-3,
        "steps": 20_000,
        "largest_count": 4,
    }
    paper: ClassVar[Recipe] = {
        **small,
        "patterns": list(range(len(PATTERNS))),
        "seeds": 5,
        "starts": [0.01, 0.1, 1.0],
        "loss_gaps": [1e-3, 1e-5],
        "path_gaps": [1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8],
        "steps": 400_000,
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Each pattern of supports in turn."""
        with progress.stage("Supports with several solutions", len(recipe["patterns"])) as stage:
            for number in recipe["patterns"]:
                if rows.in_time and not rows.has(kind="pattern", pattern=number):
                    _measure_pattern(number, recipe, rows)
                stage.advance(1.0)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Distances by pattern, and what they say about each hypothesis."""
        measured = OptimumFindings(rows)
        answers = measured.answers()
        tables = {
            "hypotheses": self.answers(answers),
            "patterns": measured.pattern_table(),
            "rules": measured.rule_table(),
            "path": measured.distance_table("path"),
            "training": measured.distance_table("training"),
        }
        return self.findings(recipe, measured.sentence(answers), measured.checks(), [measured.figure()], tables)


def _measure_pattern(number: int, recipe: Recipe, rows: Rows) -> None:
    """The set of solutions of one pattern, the path's directions, and the trainings'."""
    began = time.monotonic()
    S = supports(*PATTERNS[number])
    solutions = SolutionSet.of(S)
    rules = dict(zip(RULES, _selected(solutions), strict=True))
    known = {name: L for name, L in rules.items() if L is not None}
    limits = []
    for drawn in range(recipe["probabilities"]):
        stats = with_random_repeats(np.random.default_rng([number, drawn]), S, recipe["largest_count"])
        at = {"pattern": number, "probabilities": drawn}
        small, same = _path_directions(stats, S, recipe)
        limits.append(small)
        for name, L in ((PATH, small), (SAME_LOSS, same)):
            rows.add(
                kind="path",
                **at,
                name=name,
                excess=solutions.excess(L),
                distances={rule: distance(L, other) for rule, other in known.items()},
            )
        for training in _trainings(stats, S, recipe):
            moved = training.pop("direction")
            compared = {**known, PATH: small, SAME_LOSS: same}
            rows.add(
                kind="training",
                **at,
                **training,
                excess=None if moved is None else solutions.excess(moved),
                distances=None if moved is None else {k: distance(moved, L) for k, L in compared.items()},
            )
    rows.add(
        kind="pattern",
        pattern=number,
        V=S.shape[0],
        m=S.shape[1],
        dimension=solutions.dimension,
        spread=solutions.spread,
        gap=solutions.gap,
        excess=max(solutions.excess(L) for L in known.values()),
        free_margins=int(solutions.slack.size),
        between_probabilities=max(distance(limits[0], other) for other in limits),
        seconds=time.monotonic() - began,
    )


def _selected(solutions: SolutionSet) -> Iterator[Float | None]:
    """One solution per rule, in the order of `RULES`."""
    yield solutions.smallest_frobenius()
    yield solutions.analytic_centre()
    yield solutions.largest_margins()
    yield solutions.symmetric()
    yield solutions.returned


def _path_directions(stats: NextTokenStatistics, S: Bool, recipe: Recipe) -> tuple[Float, Float]:
    """Directions of the path between its two smallest loss gaps, and between those of the trainings."""
    prediction = predict(stats, spread_solves=0)
    gaps = sorted({*recipe["path_gaps"], *recipe["loss_gaps"]}, reverse=True)
    at = dict(zip(gaps, prediction.path(gaps, tolerance=1e-7), strict=True))
    pairs = gaps[-2:], sorted(recipe["loss_gaps"], reverse=True)
    small, same = (direction(at[before].L, at[after].L, S) for before, after in pairs)
    return small, same


def _trainings(stats: NextTokenStatistics, S: Bool, recipe: Recipe) -> Iterator[dict[str, Any]]:
    """Gradient descent from every start and seed, and Adam from the smallest start; one row each."""
    targets = sorted(recipe["loss_gaps"], reverse=True)
    plans = [("gd", recipe["starts"], recipe["rate"] * stats.m), ("adam", recipe["starts"][:1], recipe["adam_rate"])]
    for optimizer, starts, rate in plans:
        runs = [(start, seed) for start in starts for seed in range(recipe["seeds"])]
        W, H = (np.array(parts) for parts in zip(*(_start(stats, recipe["dim"], *run) for run in runs), strict=True))
        reached: list[dict[float, tuple[int, float, Float]]] = [{} for _ in runs]
        steps = {"optimizer": optimizer, "rate": rate, "steps": recipe["steps"], "targets": targets}
        for run, target, step, gap, L in follow(stats, W, H, **steps):
            reached[run][target] = step, gap, L
        for (start, seed), points in zip(runs, reached, strict=True):
            done = len(points) == len(targets)
            before, after = (points[gap] for gap in (targets[0], targets[-1])) if done else (None, None)
            yield {
                "optimizer": optimizer,
                "start": start,
                "seed": seed,
                "step": after[0] if after else None,
                "loss_gap": after[1] if after else None,
                "direction": direction(before[2], after[2], S) if before and after else None,
            }


def _start(stats: NextTokenStatistics, dim: int, scale: float, seed: int) -> tuple[Float, Float]:
    rng = np.random.default_rng(seed)
    size = scale / np.sqrt(dim)
    return size * rng.standard_normal((stats.V, dim)), size * rng.standard_normal((dim, stats.m))
