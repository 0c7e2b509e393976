"""Calibration of the verdict: embeddings whose right verdict is known, and the verdict that `compare` gives.

==============  ==================================================================  ================================
embeddings      how they are made                                                   right verdict
==============  ==================================================================  ================================
Gaussian        independent Gaussian W and H                                        does not agree (*)
untrained       the start of unconstrained features, or of a transformer            does not agree (*)
shuffled        the prediction for contexts that exchanged their next tokens        does not agree
other text      the prediction for another text with as many contexts and tokens    does not agree
converged       the prediction at a loss, rotated, with noise                       agrees
trained         unconstrained features trained with weight decay                    agrees
noisy           the prediction at a loss, with much noise in each training          agrees, and explained whole
structure       the same with structure that all trainings share                    anything but agrees
irreproducible  the prediction at a loss, with so much noise that trainings differ  cannot be determined
explanation     factors of a rival explanation, with noise                          that explanation fits better
==============  ==================================================================  ================================

(*) With several trainings also "cannot be determined": then nothing is reproducible. Embeddings made from degrees alone
are at the floor, which knows the degrees of tokens, and rightly "does not agree".

A rival explanation's W and H are rotated against each other so that their logits fit the text best (orthogonal
Procrustes), which changes no cosine, and scaled to the smallest loss. Noise and structure of the kinds "noisy",
"structure" and "irreproducible" stand in dimensions of their own, so that they change cosines and no logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from tokengeom import Comparison, Factors, FeaturePrediction, NextTokenStatistics, compare, count, predict, train
from tokengeom.extending import (
    AbstractProgress,
    AbstractRival,
    Figure,
    FitInputs,
    Float,
    HeatmapPanel,
    Int,
    ProblemError,
    SoftLabels,
    centre_columns,
    explanation_classes,
    stories,
)
from tokengeom_studies.base import Check, Findings, Recipe, table_of
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Answer, Hypothesis, Row, Rows, chosen

OUTCOMES = ("agrees", "agrees in part", "another explanation fits better", "does not agree", "cannot be determined")
LEAST_RIGHT = 0.95


class VerdictCalibration(AbstractMeasuredStudy):
    """Embeddings of known origin, compared with the prediction for a random text."""

    question = "How often does the verdict of a comparison say what is known to be true?"
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "right": Hypothesis(
            "The verdict is right for embeddings of every kind.",
            f"Yes if at least {LEAST_RIGHT:.0%} of the verdicts on each kind are right; no if not.",
        )
    }
    small: ClassVar[Recipe] = {"seed": 0, "draws": 20, "most_contexts": 100, "first": 0}
    paper: ClassVar[Recipe] = {"seed": 0, "draws": 100, "most_contexts": 400, "first": 0}

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Draw texts and embeddings of every kind, and compare: one row per draw and kind, from ``first`` on."""
        draws = range(recipe["first"], recipe["draws"])
        with progress.stage("Calibrating the verdict", float(len(draws) * len(KINDS))) as stage:
            for draw in draws:
                for kind in KINDS:
                    if rows.in_time and not rows.has(draw=draw, embeddings=kind):
                        # Each has its own generator, so that a case can be made again alone.
                        rng = np.random.default_rng([recipe["seed"], draw, KINDS.index(kind)])
                        rows.add(kind="verdict", draw=draw, **judged(kind, draw, rng, recipe["most_contexts"]))
                    stage.advance(1.0, kind)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Count the right verdicts."""
        shares = {kind: share_right(rows, kind) for kind in KINDS}
        worst = min(shares, key=lambda kind: shares[kind])
        right = shares[worst] >= LEAST_RIGHT
        because = f"the smallest share is {shares[worst]:.0%} ({worst})"
        answer = Answer("yes" if right else "no", because)
        counts = [
            {"embeddings": kind, "draws": len(chosen(rows, embeddings=kind)), "right": shares[kind]}
            | {said: len(chosen(rows, embeddings=kind, outcome=said)) for said in OUTCOMES}
            for kind in KINDS
        ]
        sentence = (
            f"{'Yes' if right else 'No'}: with {counts[0]['draws']} draws of each kind, {because} of right verdicts."
        )
        checks = [Check("kinds of embeddings without a draw", float(sum(not row["draws"] for row in counts)), high=0.0)]
        tables = {
            "hypotheses": self.answers({"right": answer}),
            "kinds": table_of(counts),
            "verdicts": table_of([{name: row.get(name, "") for name in SHOWN} for row in rows]),
        }
        return self.findings(recipe, sentence, checks, [_figure(rows)], tables)


SHOWN = ("embeddings", "draw", "detail", "text", "V", "m", "runs", "outcome", "better", "right")


def share_right(rows: Sequence[Row], kind: str) -> float:
    """Share of right verdicts on embeddings of a kind."""
    right = [row["right"] for row in chosen(rows, embeddings=kind)]
    return float(np.mean(right)) if right else float("nan")


def _figure(rows: Sequence[Row]) -> Figure:
    counts = np.array(
        [[len(chosen(rows, embeddings=kind, outcome=said)) for said in OUTCOMES] for kind in KINDS], dtype=np.float64
    )
    counts /= np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
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


DISAGREEING = ("gaussian", "untrained", "shuffled", "other text")
AGREEING = ("converged", "trained")
NOISY = ("noisy", "structure", "irreproducible")
EXPLANATION = "explanation"
KINDS = (*DISAGREEING, *AGREEING, EXPLANATION, *NOISY)
RUNS = (2, 3, 6)
"""Numbers of trainings of the noisy kinds, in turn."""
STRENGTHS = {"noisy": (0.2, 0.9), "structure": (0.2, 0.9), "irreproducible": (0.005, 0.03)}
"""Kind -> smallest and largest reproducibility: correlation of the cosines of two trainings."""
STRUCTURE = (0.2, 0.6)
"""Smallest and largest share of the reproducible geometry that the prediction explains, with structure."""
NOISE_DIMENSIONS = 64
DEGREES = "degree only"
"""The explanation that the floor of tokens knows, so that nothing made from it is above the floor."""
NOISE = 0.05
"""Norm of the noise that is added to an embedding, as a share of its own norm."""
NEAR = 0.04
"""Explanations whose agreements with contexts and tokens add up to within this have nearly the same geometry."""
TOLERANCE = 4e-3


def judged(kind: str, draw: int, rng: np.random.Generator, most_contexts: int = 400) -> Row:
    """One comparison of embeddings of a kind; every other draw has a second run, and noisy kinds have several."""
    name = TEXTS[draw % len(TEXTS)]
    stats = draw_text(name, rng, most_contexts)
    prediction, number = predict(stats, spread_solves=0), 1 + draw % 2
    if kind in NOISY:
        number = RUNS[(draw // len(TEXTS)) % len(RUNS)]
    d = int(rng.integers(8, 97))
    detail, make = MAKERS[kind](stats, prediction, d, rng, draw)
    runs: list[Any] = [make() for _ in range(number)]
    comparison = compare(prediction, runs, permutations=100, seed=int(rng.integers(2**31)), tolerance=TOLERANCE)
    row: dict[str, Any] = {"embeddings": kind, "detail": detail, "text": name, "V": stats.V, "m": stats.m, "d": d}
    row |= {"runs": number, "outcome": comparison.verdict, "better": comparison.better_explanation or ""}
    for items, agreement in comparison.judged_agreements.items():
        numbers = ("value", "floor", "reproducible", "corrected", "corrected_low", "corrected_high")
        row |= {f"{items}_{name}": getattr(agreement, name) for name in numbers}
    return row | {"right": is_right(kind, detail, comparison), "reason": comparison.reasons[0]}


def is_right(kind: str, detail: str, comparison: Comparison) -> bool:
    """Whether the verdict of a comparison is the one that these embeddings must have."""
    if kind in DISAGREEING:
        unknown = comparison.runs > 1 and kind in ("gaussian", "untrained")
        return comparison.verdict in ("does not agree", *(["cannot be determined"] if unknown else []))
    if kind in (*AGREEING, "noisy"):
        return comparison.verdict == "agrees"
    if kind == "structure":
        return comparison.verdict != "agrees"
    if kind == "irreproducible":
        return comparison.verdict == "cannot be determined"
    if detail == DEGREES and comparison.verdict == "does not agree":
        return True
    totals: dict[str, float] = {}
    for row in comparison.rows:
        if row.items != "contexts":
            totals[row.rival] = totals.get(row.rival, 0.0) + float(np.nan_to_num(row.agreement.value))
    ours = {row.rival for row in comparison.rows if row.ours}
    alike = {name for name, total in totals.items() if total >= totals[detail] - NEAR}
    if comparison.verdict == "another explanation fits better":
        return comparison.better_explanation in alike
    return comparison.verdict == "agrees" and bool(alike & ours)


def draw_text(
    name: str, rng: np.random.Generator, most_contexts: int = 400, shape: tuple[int, int] | None = None
) -> Any:
    """Statistics of a random text of a kind; with as many tokens and contexts as ``shape`` (V, m) where it is given."""
    V, m = shape or (int(rng.integers(15, 101)), int(rng.integers(30, most_contexts + 1)))
    if name == "stories":
        return _stories().limited(top_contexts=m, vocabulary=V)
    counts = _random_supports(rng, V, m) if name == "random" else _zipf(rng, V, m)
    return NextTokenStatistics.from_counts(counts)


TEXTS = ("random", "zipf", "stories")


@lru_cache(maxsize=1)
def _stories() -> NextTokenStatistics:
    return count(list(islice(stories(0), 2000)), context=4)


def _random_supports(rng: np.random.Generator, V: int, m: int) -> Int:
    """Contexts that share random supports, in groups of unequal size."""
    groups = int(rng.integers(max(12, m // 6), m + 1))
    supports = [rng.choice(V, int(rng.integers(2, max(3, V // 4) + 1)), replace=False) for _ in range(groups)]
    of = np.concatenate([np.arange(groups), rng.integers(0, groups, m - groups)])
    counts = np.zeros((V, m), dtype=np.int64)
    for j, g in enumerate(of):
        counts[supports[g], j] = rng.integers(1, 20, supports[g].size)
    return counts


def _zipf(rng: np.random.Generator, V: int, m: int) -> Int:
    """Contexts that each show a few windows of a distribution of their own around Zipf's law, as in natural text."""
    popularity = 1.0 / np.arange(1, V + 1)
    topics = rng.dirichlet(4.0 * popularity + 0.02, size=int(rng.integers(6, 20)))
    counts = np.zeros((V, m), dtype=np.int64)
    for j in range(m):
        share = topics[rng.integers(len(topics))] + 0.3 * rng.dirichlet(2.0 * popularity + 0.01)
        counts[:, j] = rng.multinomial(int(rng.integers(4, 60)), share / share.sum())
    return counts


Maker = Callable[[], object]


def _gaussian(
    stats: NextTokenStatistics, prediction: FeaturePrediction, d: int, rng: np.random.Generator, draw: int
) -> tuple[str, Maker]:
    scale = float(np.exp(rng.uniform(-4.0, 1.0)))
    return "", lambda: Factors(scale * rng.standard_normal((stats.V, d)), rng.standard_normal((d, stats.m)))


def _untrained(
    stats: NextTokenStatistics, prediction: FeaturePrediction, d: int, rng: np.random.Generator, draw: int
) -> tuple[str, Maker]:
    network = stats.contexts is not None and stats.contexts.shape[1] > 0 and draw % 2 == 0
    model, dim = ("transformer", 32) if network else ("ufm", d)

    def make() -> object:
        settings: dict[str, Any] = {"layers": 2, "heads": 2} if network else {}
        run = train(stats, model, dim=dim, steps=1, learning_rate=1e-9, seed=int(rng.integers(2**31)), **settings)
        assert run.start is not None
        return run.start

    return model, make


def _shuffled(
    stats: NextTokenStatistics, prediction: FeaturePrediction, d: int, rng: np.random.Generator, draw: int
) -> tuple[str, Maker]:
    order = rng.permutation(stats.m)
    other = NextTokenStatistics.from_counts(stats.counts.tocsc()[:, order])
    return "", _noisy(_at_some_loss(predict(other, spread_solves=0), rng), rng)


def _other_text(
    stats: NextTokenStatistics, prediction: FeaturePrediction, d: int, rng: np.random.Generator, draw: int
) -> tuple[str, Maker]:
    kind = ("random", "zipf")[draw % 2]
    other = draw_text(kind, rng, shape=(stats.V, stats.m))
    return kind, _noisy(_at_some_loss(predict(other, spread_solves=0), rng), rng)


def _converged(
    stats: NextTokenStatistics, prediction: FeaturePrediction, d: int, rng: np.random.Generator, draw: int
) -> tuple[str, Maker]:
    return "", _noisy(_at_some_loss(prediction, rng), rng)


def _trained(
    stats: NextTokenStatistics, prediction: FeaturePrediction, d: int, rng: np.random.Generator, draw: int
) -> tuple[str, Maker]:
    """Adam with weight decay in the gradient: its fixed points are those of the nuclear norm, for any rule."""
    decay = prediction.largest_gap * 10.0 ** rng.uniform(-2.5, -1.5) / np.sqrt(stats.V * stats.m)

    plan: dict[str, Any] = {"optimizer": "adam", "learning_rate": 1e-2, "rate_schedule": "cosine", "steps": 2000}

    def make() -> object:
        return train(stats, "ufm", dim=stats.V, weight_decay=decay, seed=int(rng.integers(2**31)), **plan)

    return f"{decay:.1e}", make


def _explanation(
    stats: NextTokenStatistics, prediction: FeaturePrediction, d: int, rng: np.random.Generator, draw: int
) -> tuple[str, Maker]:
    kinds = [kind for kind in explanation_classes() if kind.quick and kind.candidates(FitInputs())]
    kind = kinds[(draw // len(TEXTS)) % len(kinds)]
    return kind.name, _noisy(explained(kind, stats, rng), rng)


def _noisy_prediction(
    stats: NextTokenStatistics, prediction: FeaturePrediction, d: int, rng: np.random.Generator, draw: int, kind: str
) -> tuple[str, Maker]:
    """The prediction at a loss beside structure and noise, in dimensions of their own.

    With cosines ``a x + b s + c n`` of prediction, structure and noise, whose variances over pairs are known, the
    prediction explains ``a^2 var x / (a^2 var x + b^2 var s)`` of what trainings share, and they agree rho.
    """
    at = _at_some_loss(prediction, rng)
    rho = float(np.exp(rng.uniform(*np.log(STRENGTHS[kind]))))
    share = float(rng.uniform(*STRUCTURE)) if kind == "structure" else 1.0

    W, H = (at.W - at.W.mean(axis=0)).T, at.H
    structures = [_beside(rng, X, (1.0 - share) / share) for X in (W, H)]

    def make() -> object:
        noises = [_beside(rng, X, (1.0 / rho - 1.0) / share) for X in (W, H)]
        (w_structure, h_structure), (w_noise, h_noise), unused = structures, noises, 2 * NOISE_DIMENSIONS
        # Each has its own dimensions, which the other one does not use.
        W_all = np.vstack([W, w_structure, w_noise, np.zeros((unused, W.shape[1]))])
        H_all = np.vstack([H, np.zeros((unused, H.shape[1])), h_structure, h_noise])
        return Factors(W_all.T, H_all)

    return f"reproducible {rho:.3g}, share {share:.2g}", make


def _beside(rng: np.random.Generator, X: Float, variance: float) -> Float:
    """Random vectors, in dimensions of their own, whose part in the cosines has a multiple of the variance of X's.

    Their sum is 0, so that removing the mean token leaves them as they are.
    """
    length = np.linalg.norm(X, axis=0)
    Z = rng.standard_normal((NOISE_DIMENSIONS, X.shape[1]))
    Z -= np.outer(Z @ length, length) / (length @ length)
    Z /= np.linalg.norm(Z, axis=0)
    size = np.sqrt(variance * NOISE_DIMENSIONS) * _cosine_spread(X / np.maximum(length, 1e-300))
    return np.asarray(np.sqrt(size) * Z * length)


def _cosine_spread(unit: Float) -> float:
    """Standard deviation of the cosines of different items."""
    C = unit.T @ unit
    return float(C[np.triu_indices(C.shape[0], k=1)].std())


MAKERS: dict[str, Callable[..., tuple[str, Maker]]] = {
    **{kind: partial(_noisy_prediction, kind=kind) for kind in NOISY},
    "gaussian": _gaussian,
    "untrained": _untrained,
    "shuffled": _shuffled,
    "other text": _other_text,
    "converged": _converged,
    "trained": _trained,
    EXPLANATION: _explanation,
}


def _at_some_loss(prediction: FeaturePrediction, rng: np.random.Generator) -> Factors:
    gap = prediction.largest_gap * 10.0 ** rng.uniform(-3.0, -0.5)
    at_loss = prediction.at(gap, norm="nuclear", tolerance=TOLERANCE)
    return Factors(at_loss.W, at_loss.H)


def explained(kind: type[AbstractRival], stats: NextTokenStatistics, rng: np.random.Generator) -> Factors:
    """W and H with the cosines of an explanation, turned and scaled so that their logits fit the text best."""
    candidates = kind.candidates(FitInputs())
    fit = candidates[int(rng.integers(len(candidates)))].fit(stats)
    T, C = fit.tokens(np.arange(stats.V)), fit.contexts(np.arange(stats.m))
    wanted = centre_columns(stats.P.toarray()) * stats.pi
    U, _, Vt = np.linalg.svd(T @ wanted @ C.T, full_matrices=False)
    W, H = T.T @ U, Vt @ C
    # Directions outside the common ones carry the rest of the geometry and no logits.
    W = np.hstack([W, (T.T - W @ U.T), np.zeros((stats.V, C.shape[0]))])
    H = np.vstack([H, np.zeros((T.shape[0], stats.m)), C - Vt.T @ H])
    return Factors(W * _best_scale(SoftLabels.from_statistics(stats), W @ H), H)


def _best_scale(labels: SoftLabels, L: Float) -> float:
    """Multiple of the logits with the smallest loss."""
    size = float(np.abs(L).max())
    if size == 0.0:
        raise ProblemError("The logits of an explanation must not all be 0.")
    scales = np.geomspace(0.1, 100.0, 40) / size
    return float(scales[np.argmin([labels.loss_gap(scale * L) for scale in scales])])


def _noisy(factors: Factors, rng: np.random.Generator) -> Maker:
    """Copies of the embeddings in a random basis, each with its own noise."""
    r = factors.W.shape[1]
    R = np.linalg.qr(rng.standard_normal((r, r)))[0]

    def noise(X: Float, axis: int) -> Float:
        size = np.linalg.norm(X, axis=axis, keepdims=True)
        return np.asarray(NOISE * size / np.sqrt(r) * rng.standard_normal(X.shape))

    def make() -> object:
        return Factors((factors.W + noise(factors.W, 1)) @ R, R.T @ (factors.H + noise(factors.H, 0)))

    return make
