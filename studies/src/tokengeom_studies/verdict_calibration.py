"""Calibration of the verdict: embeddings whose right verdict is known, and the verdict that `compare` gives.

=============  ===================================================================  ================================
embeddings     how they are made                                                    right verdict
=============  ===================================================================  ================================
Gaussian       independent Gaussian W and H                                         does not agree
untrained      the start of unconstrained features, or of a transformer             does not agree
shuffled       the prediction for contexts that exchanged their next tokens         does not agree
other text     the prediction for another text with as many contexts and tokens     does not agree
converged      the prediction at a loss, rotated, with noise                        agrees
trained        unconstrained features trained with weight decay                     agrees
explanation    factors of a rival explanation, with noise                           that explanation fits better
=============  ===================================================================  ================================

A rival explanation's W and H are rotated against each other so that their logits fit the text best (orthogonal
Procrustes), which changes no cosine, and scaled to the smallest loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
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
    SilentProgress,
    SoftLabels,
    centre_columns,
    explanation_classes,
    stories,
)
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table, table_of

OUTCOMES = ("agrees", "agrees in part", "another explanation fits better", "does not agree", "cannot be determined")
LEAST_RIGHT = 0.95


class VerdictCalibration(AbstractStudy):
    """Embeddings of known origin, compared with the prediction for a random text."""

    question = "How often does the verdict of a comparison say what is known to be true?"
    small: ClassVar[Recipe] = {"seed": 0, "draws": 20, "most_contexts": 100}
    paper: ClassVar[Recipe] = {"seed": 0, "draws": 120, "most_contexts": 400}

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Draw texts and embeddings of every kind, compare, and count the right verdicts."""
        verdicts = calibrate(recipe["draws"], recipe["seed"], most_contexts=recipe["most_contexts"], progress=progress)
        checks = [
            Check(f"share of right verdicts, {kind}", share_right(verdicts, kind), low=LEAST_RIGHT) for kind in KINDS
        ]
        return self.findings(recipe, _sentence(verdicts), checks, [_figure(verdicts)], {"verdicts": _table(verdicts)})


def share_right(verdicts: Sequence[Judged], kind: str) -> float:
    """Share of right verdicts on embeddings of a kind."""
    return float(np.mean([verdict.right for verdict in verdicts if verdict.kind == kind]))


def _sentence(verdicts: Sequence[Judged]) -> str:
    groups = {
        "'does not agree'": DISAGREEING,
        "'agrees'": AGREEING,
        "the explanation that they were made from, or one with nearly the same geometry": (EXPLANATION,),
    }
    parts = []
    for said, kinds in groups.items():
        shares = ", ".join(f"{kind} {share_right(verdicts, kind):.0%}" for kind in kinds)
        parts.append(f"{said} ({shares})")
    each = sum(verdict.kind == KINDS[0] for verdict in verdicts)
    return f"With {each} draws of each kind, the verdict was {parts[0]}, {parts[1]}, and {parts[2]}."


def _table(verdicts: Sequence[Judged]) -> Table:
    return table_of([vars(verdict) for verdict in verdicts])


def _figure(verdicts: Sequence[Judged]) -> Figure:
    counts = np.array(
        [
            [np.mean([verdict.outcome == said for verdict in verdicts if verdict.kind == kind]) for said in OUTCOMES]
            for kind in KINDS
        ]
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


DISAGREEING = ("gaussian", "untrained", "shuffled", "other text")
AGREEING = ("converged", "trained")
EXPLANATION = "explanation"
KINDS = (*DISAGREEING, *AGREEING, EXPLANATION)
NOISE = 0.05
"""Norm of the noise that is added to an embedding, as a share of its own norm."""
NEAR = 0.04
"""Explanations whose agreements with contexts and tokens add up to within this have nearly the same geometry."""
TOLERANCE = 1e-2


@dataclass(frozen=True)
class Judged:
    """One comparison whose right verdict is known.

    ``kind``, ``detail``
        Kind of embeddings, and which explanation or start.
    ``text``, ``V``, ``m``, ``d``
        Kind of text, and sizes.
    ``second``
        Whether a second run of the same kind gave a ceiling.
    ``outcome``, ``better``
        The verdict, and the explanation that it names.
    ``right``
        Whether the verdict is the right one.
    """

    kind: str
    detail: str
    text: str
    V: int
    m: int
    d: int
    second: bool
    outcome: str
    better: str
    contexts: float
    tokens: float
    right: bool


def calibrate(
    draws: int,
    seed: int = 0,
    *,
    kinds: Sequence[str] = KINDS,
    most_contexts: int = 400,
    progress: AbstractProgress | None = None,
) -> list[Judged]:
    """Verdicts on embeddings of known origin: ``draws`` of each kind, on random texts of many sizes."""
    verdicts = []
    with (progress or SilentProgress()).stage("Calibrating the verdict", float(draws * len(kinds))) as stage:
        for draw in range(draws):
            for kind in kinds:
                # Each has its own generator, so that a case can be made again alone.
                rng = np.random.default_rng([seed, draw, KINDS.index(kind)])
                verdicts.append(judged(kind, draw, rng, most_contexts))
                stage.advance(1.0, kind)
    return verdicts


def judged(kind: str, draw: int, rng: np.random.Generator, most_contexts: int = 400) -> Judged:
    """One comparison of embeddings of a kind; every other draw has a second run."""
    name = TEXTS[draw % len(TEXTS)]
    stats = draw_text(name, rng, most_contexts)
    prediction, second = predict(stats, spread_solves=0), bool(draw % 2)
    d = int(rng.integers(8, 97))
    detail, make = MAKERS[kind](stats, prediction, d, rng, draw)
    runs: list[Any] = [make(), make()] if second else [make()]
    comparison = compare(prediction, runs, permutations=100, seed=int(rng.integers(2**31)), tolerance=TOLERANCE)
    return Judged(
        kind,
        detail,
        name,
        stats.V,
        stats.m,
        d,
        second,
        comparison.verdict,
        comparison.better_explanation or "",
        comparison.context_agreement.value,
        comparison.token_agreement.value,
        is_right(kind, detail, comparison),
    )


def is_right(kind: str, detail: str, comparison: Comparison) -> bool:
    """Whether the verdict of a comparison is the one that these embeddings must have."""
    if kind in DISAGREEING:
        return comparison.verdict == "does not agree"
    if kind in AGREEING:
        return comparison.verdict == "agrees"
    totals: dict[str, float] = {}
    for row in comparison.rows:
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


MAKERS = {
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
