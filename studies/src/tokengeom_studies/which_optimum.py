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
from tokengeom.extending import AbstractProgress, Bool, Curve, Figure, Float, LinePanel
from tokengeom_studies.base import Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.measured import (
    AbstractMeasuredStudy,
    Answer,
    Hypothesis,
    Interval,
    Row,
    Rows,
    chosen,
    decided,
    decided_by_share,
)
from tokengeom_studies.common.random_data import with_random_repeats
from tokengeom_studies.common.solution_sets import PATTERNS, SolutionSet, direction, distance, supports
from tokengeom_studies.common.text_parts import solver_device

PATH, SAME_LOSS = "path, small loss", "path, same losses"
PATHS = SAME_LOSS, PATH
RULES = ("smallest Frobenius norm", "analytic centre", "largest margins", "symmetric", "returned by the solver")
SAME = 0.02
"""Solutions closer than this count as one."""
APART = 0.05
MOST = 0.8
PROVEN = 1e-6


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
        measured = _Measured(rows)
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
    at = dict(zip(gaps, prediction.path(gaps, tolerance=1e-7, device=solver_device()), strict=True))
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


class _Measured:
    """What rows say, by pattern."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.patterns = sorted(chosen(rows, kind="pattern"), key=lambda row: row["pattern"])
        done = {row["pattern"] for row in self.patterns}
        self.path = [row for row in chosen(rows, kind="path") if row["pattern"] in done]
        self.trainings = [row for row in chosen(rows, kind="training") if row["pattern"] in done]
        self.reached = [row for row in self.trainings if row["distances"] is not None]
        self.starts = sorted({row["start"] for row in self.trainings})

    def of_path(self, pattern: int, rule: str, name: str = PATH) -> float:
        """Mean distance of the path's direction from the solution of a rule; NaN without one."""
        rows = chosen(self.path, pattern=pattern, name=name)
        return _mean(row["distances"].get(rule) for row in rows)

    def of_training(self, pattern: int, rule: str, optimizer: str, start: float) -> float:
        """Mean distance of the trainings' directions."""
        rows = chosen(self.reached, pattern=pattern, optimizer=optimizer, start=start)
        return _mean(row["distances"].get(rule) for row in rows)

    def answers(self) -> dict[str, Answer]:
        """What is decided about each hypothesis."""
        apart = [row["between_probabilities"] > APART for row in self.patterns]
        margins = [self.of_path(row["pattern"], "largest margins") for row in self.patterns]
        margins = [margin for margin in margins if np.isfinite(margin)]
        smaller = Interval.of(self._nearer_from_smaller_starts())
        return {
            "probabilities matter": _counted(apart, "apart by more than 0.05"),
            "largest margins": _counted([margin <= APART for margin in margins], "within 0.05"),
            "descent follows the path": self._nearest(PATH, "gd"),
            "descent follows the path at equal loss": self._nearest(SAME_LOSS, "gd"),
            "smaller starts are nearer": Answer(decided(smaller), f"distance less by {smaller}"),
            "adam follows the path": self._nearest(SAME_LOSS, "adam"),
        }

    def _nearest(self, path: str, optimizer: str) -> Answer:
        """In how many patterns trainings are nearer to the path than to every solution that is not the path's."""
        nearer = []
        for row in self.patterns:
            number = row["pattern"]
            mine = self.of_training(number, path, optimizer, self.starts[0])
            others = [rule for rule in RULES if self.of_path(number, rule, path) > SAME]
            rest = [self.of_training(number, rule, optimizer, self.starts[0]) for rule in others]
            if np.isfinite(mine):
                nearer.append(bool(mine < min(rest, default=np.inf)))
        share = sum(nearer) / max(len(nearer), 1)
        return Answer("yes" if nearer and share >= MOST else "no", f"{sum(nearer)} of {len(nearer)} patterns")

    def _nearer_from_smaller_starts(self) -> Iterator[float]:
        for row in self.patterns:
            small, large = (
                self.of_training(row["pattern"], SAME_LOSS, "gd", start) for start in (self.starts[0], self.starts[-1])
            )
            if np.isfinite(large - small):
                yield large - small

    def pattern_table(self) -> Table:
        """Size, free directions and spread of the solutions of each pattern, and how the path moves."""
        differ = {row["pattern"] for row in self.told_apart}
        return table_of(
            [
                {
                    "pattern": row["pattern"],
                    "V": row["V"],
                    "m": row["m"],
                    "free directions": row["dimension"],
                    "free margins": row["free_margins"],
                    "spread": round(row["spread"], 3),
                    "rules differ": "yes" if row["pattern"] in differ else "no",
                    "from largest margins": round(self.of_path(row["pattern"], RULES[2]), 3),
                    "between probabilities": round(row["between_probabilities"], 3),
                }
                for row in self.patterns
            ]
        )

    @property
    def told_apart(self) -> list[Row]:
        """Patterns in which the rules select solutions that differ, as seen from the path."""

        def differ(pattern: int, name: str) -> bool:
            distances = [self.of_path(pattern, rule, name) for rule in RULES[:3]]
            return bool(np.nanmax(distances) - np.nanmin(distances) > SAME)

        return [row for row in self.patterns if any(differ(row["pattern"], name) for name in PATHS)]

    def rule_table(self) -> Table:
        """Distances of the path at larger and at small loss, for each pattern in which the rules differ."""
        shown = self.told_apart or self.patterns
        return table_of(
            [
                {"pattern": row["pattern"], "V": row["V"], "m": row["m"]}
                | {
                    f"{rule}, {loss}": round(self.of_path(row["pattern"], rule, name), 3)
                    for rule in RULES[:3]
                    for name, loss in zip(PATHS, ("larger loss", "small loss"), strict=True)
                }
                for row in shown
            ]
        )

    def distance_table(self, kind: str) -> Table:
        """Distances from the solution of each rule, mean and interval over patterns."""
        if kind == "path":
            return table_of(
                [
                    {"direction": name}
                    | {rule: str(self._over_patterns(self.of_path, rule, name)) for rule in RULES}
                    | {"excess": _mean(row["excess"] for row in chosen(self.path, name=name))}
                    for name in (PATH, SAME_LOSS)
                ]
            )
        plans = sorted({(row["optimizer"], row["start"]) for row in self.trainings}, reverse=True)
        return table_of(
            [
                {
                    "optimizer": optimizer,
                    "start": start,
                    "runs": len(chosen(self.reached, optimizer=optimizer, start=start)),
                }
                | {
                    rule: str(self._over_patterns(self.of_training, rule, optimizer, start))
                    for rule in (*RULES, PATH, SAME_LOSS)
                }
                | {"excess": _mean(r["excess"] for r in chosen(self.reached, optimizer=optimizer, start=start))}
                for optimizer, start in plans
            ]
        )

    def _over_patterns(self, number: Any, *which: Any) -> Interval:
        values = [number(row["pattern"], *which) for row in self.patterns]
        return Interval.of(value for value in values if np.isfinite(value))

    def checks(self) -> list[Check]:
        """Whether every pattern is proven to have several solutions, and the trainings reached their losses."""
        return [
            Check("smallest spread of the solutions of a pattern", min(r["spread"] for r in self.patterns), low=SAME),
            Check("largest proven gap of these solutions", max(r["gap"] for r in self.patterns), high=PROVEN),
            Check("largest excess of a selected solution", max(r["excess"] for r in self.patterns), high=1e-4),
            Check("share of trainings that reached the loss", len(self.reached) / len(self.trainings), low=0.95),
            Check("patterns", float(len(self.patterns)), low=1.0),
        ]

    def sentence(self, answers: Mapping[str, Answer]) -> str:
        """The answer with its main numbers."""
        apart = Interval.of(row["between_probabilities"] for row in self.patterns)
        start = self.starts[0]
        same, centre, frobenius = (
            self._over_patterns(self.of_training, name, "gd", start).mean for name in (SAME_LOSS, RULES[1], RULES[0])
        )
        said = ", ".join(f"{name} ({answer.decision})" for name, answer in answers.items())
        return (
            f"For {len(self.patterns)} patterns of supports with several solutions, two sets of probabilities lead the "
            f"path to directions that are {apart.mean:.3f} apart on average. Gradient descent from the smallest start "
            f"is {same:.3f} from the path between the same losses, {centre:.3f} from the analytic centre and "
            f"{frobenius:.3f} from the solution of smallest Frobenius norm. Hypotheses: {said}."
        )

    def figure(self) -> Figure:
        """Distances by pattern, of the path and of gradient descent, where the rules differ."""
        shown = self.told_apart or self.patterns
        x = np.arange(1.0, len(shown) + 1.0)
        numbers = [row["pattern"] for row in shown]
        path = [Curve(rule, x, np.array([self.of_path(number, rule) for number in numbers])) for rule in RULES[:3]]
        descent = [
            Curve(rule, x, np.array([self.of_training(number, rule, "gd", self.starts[0]) for number in numbers]))
            for rule in (*RULES[:3], PATH, SAME_LOSS)
        ]
        names = [f"{row['pattern']}: {row['V']} x {row['m']}" for row in shown]
        panels = [
            LinePanel("The path at small loss", "pattern: V x m", "distance", path, x_names=names),
            LinePanel("Gradient descent, smallest start", "pattern: V x m", "distance", descent, x_names=names),
        ]
        caption = (
            "Distance of the direction of the logits, of the regularisation path and of gradient descent, from the "
            "solution that each rule selects, for the patterns of supports in which the rules select different ones."
        )
        return Figure("distances", "Which solution is selected", caption, panels)


def _counted(true: Sequence[bool], what: str) -> Answer:
    decision = decided_by_share(sum(true) / len(true), MOST) if true else "undecided"
    return Answer(decision, f"{sum(true)} of {len(true)} patterns {what}")


def _mean(values: Any) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")
