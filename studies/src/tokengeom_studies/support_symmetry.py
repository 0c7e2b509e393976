"""What breaks the symmetry of L_mm: sparse supports, unequal supports, frequent tokens, or supports with many contexts.

With all supports of one size, tokens are an equiangular frame and contexts are equally long [zhao2024, Prop. 4]. Here
supports are drawn, and changed in one way at a time:

    sizes            ``k exp(strength x - strength^2 / 2)``, x standard normal, between 2 and V - 2
    frequencies      tokens are drawn with weights ``rank^-strength``
    multiplicities   supports have numbers of contexts that fall like ``rank^-strength``

The deviation of the frame is the root mean square of ``cos(w_z, w_v) + 1/(V - 1)`` over pairs of tokens. For supports
that are drawn uniformly, to first order in the noise of ``S~ diag(n) S~^T``, that of the proxy is

``sqrt(sum_g n_g^2 v(k_g)) / (2 sum_g n_g u(k_g))``

where
    n_g    number of contexts of support g
    u(k)   ``k (V - k) / (V (V - 1))``, the mean of the eigenvalues that differ from 0
    v(k)   variance of the product of two entries of a centred column with k tokens
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np
from scipy.stats import rankdata

from tokengeom import NextTokenStatistics, predict
from tokengeom.extending import AbstractProgress, Bool, Curve, Figure, Float, Int, LinePanel, unit_columns
from tokengeom_studies.base import Check, Findings, Recipe, table_of
from tokengeom_studies.common.measured import (
    AbstractMeasuredStudy,
    Answer,
    Hypothesis,
    Interval,
    Row,
    Rows,
    chosen,
    decided_by_share,
    decided_together,
    interval_curve,
    signed,
)
from tokengeom_studies.common.same_geometry import within
from tokengeom_studies.common.torch_runs import DeviceText, first_below, training_settings

IMBALANCES = ("sizes", "frequencies", "multiplicities")
NONE = "none"
CLOSE, LENGTHS, FOLLOWED, IN_ORDER, MOST = 0.20, 0.95, 0.95, 0.9, 0.75
CLEAR, FACTOR = 1e-3, 2.0
"""Excess of the proxy, and its ratio to that without imbalance, from which on it is raised."""
SOURCES = ("limit", "gamma2", "nuclear", "run")
ITEMS = ("contexts", "tokens")
_RATIO = f"The 95% interval over draws of the logarithm of their ratio lies within a factor of {1 + CLOSE:g}"
_ALL = "in every cell: yes; outside in one: no."


class SupportSymmetry(AbstractMeasuredStudy):
    """Random supports with one imbalance at a time: their limit, their prediction at a loss, and trained features."""

    question = "How do sparsity of the supports and imbalance change the symmetry of L_mm and of trained features?"
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "sparsity": Hypothesis(
            "In balance, how far tokens are from an equiangular frame follows the formula, whatever the density k/V.",
            f"Deviation in the limit and formula, supports without imbalance. {_RATIO} {_ALL}",
        ),
        "sizes": Hypothesis(
            "Supports of unequal size leave the frame of tokens as the formula has it.",
            f"The same with unequal sizes. {_RATIO} {_ALL}",
        ),
        "multiplicities": Hypothesis(
            "Supports with unequal numbers of contexts act like fewer contexts: the formula holds.",
            f"The same with unequal numbers of contexts. {_RATIO} {_ALL}",
        ),
        "context lengths": Hypothesis(
            "Contexts are as unequally long as sqrt(k (1 - k/V)), whatever is in imbalance.",
            f"Correlation of their lengths in the limit with it, over supports of unequal sizes: at least {LENGTHS} "
            f"in every cell (mean over draws): yes; no if not.",
        ),
        "token lengths": Hypothesis(
            "Under unequal frequencies tokens are as long as (f (1 - f))^(1/4), f their share of the supports.",
            f"Correlation of their lengths in the limit with it: at least {LENGTHS} in every cell (mean over draws): "
            "yes; no if not.",
        ),
        "frequencies": Hypothesis(
            "Of the three imbalances that of token frequencies moves tokens farthest from the frame.",
            "Deviation at its largest strength less that of each other imbalance at its own, paired by draw: 95% "
            "interval above 0 in every comparison: yes; one below: no.",
        ),
        "excess": Hypothesis(
            "Unequal frequencies raise the excess of the proxy, the other imbalances do not.",
            f"An excess is raised where its mean over draws at the largest strength is above {CLEAR:g}, and {FACTOR:g} "
            "times that without imbalance or more. At every density by frequencies alone: yes; no if not.",
        ),
        "training": Hypothesis(
            "Under every imbalance, features trained with AdamW follow the prediction at their loss (gamma_2).",
            f"Agreement corrected by two starts, mean over draws, at least {FOLLOWED} in at least {MOST:.0%} of the "
            "cells (setting, contexts or tokens): yes; in at most a quarter: no.",
        ),
        "order": Hypothesis(
            "The deviations of trained features from symmetry are in the order of those predicted at their loss.",
            "Rank correlation over settings of means over draws: at least "
            f"{IN_ORDER} for the frame and for the lengths of contexts: yes; no if not.",
        ),
    }
    small: ClassVar[Recipe] = {
        **{"V": 10, "supports": 20, "contexts_per_support": 2, "draws": 2, "sizes": [3], "alone": []},
        **{"strengths": {"sizes": [0.8], "frequencies": [1.0], "multiplicities": [1.0]}},
        **{"dim": 20, "learning_rate": 1e-2, "loss_gap": 0.2, "tolerance": 1e-4, "seconds": 30},
    }
    # Sizes in ``alone`` are measured without imbalance only.
    paper: ClassVar[Recipe] = {
        **{"V": 40, "supports": 200, "contexts_per_support": 3, "draws": 8, "sizes": [4, 8, 20], "alone": [2, 32]},
        **{"strengths": {"sizes": [0.4, 0.8], "frequencies": [0.5, 1.0, 1.5], "multiplicities": [0.5, 1.0, 1.5]}},
        **{"dim": 64, "learning_rate": 3e-3, "loss_gap": 0.05, "tolerance": 1e-4, "seconds": 60},
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """One row per setting and draw: the supports, their limit, predictions at the loss, and two trainings."""
        settings = _settings(recipe)
        with progress.stage("Supports", float(len(settings) * recipe["draws"])) as stage:
            for draw, (place, setting) in product(range(recipe["draws"]), enumerate(settings)):
                if rows.in_time and not rows.has(kind="pattern", draw=draw, **setting):
                    rng = np.random.default_rng([draw, place])
                    rows.add(kind="pattern", draw=draw, **setting, **measured(rng, recipe, draw, **setting))
                stage.advance(1.0, f"k = {setting['k']}, {setting['imbalance']}, draw {draw}")

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Means over draws of every setting, and the answers."""
        cells = _cells(rows)
        answers = {
            "sparsity": _by_formula(cells, NONE),
            "sizes": _by_formula(cells, "sizes"),
            "multiplicities": _by_formula(cells, "multiplicities"),
            "context lengths": _lengths(cells, "sizes", "contexts_by_size"),
            "token lengths": _lengths(cells, "frequencies", "tokens_by_frequency"),
            "frequencies": _farthest(cells),
            "excess": _excess(cells),
            "training": _training(cells),
            "order": _order(cells),
        }
        tables = {
            "hypotheses": self.answers(answers),
            "limit": table_of([_limit_line(*cell) for cell in cells.items()]),
            "trained": table_of([_trained_line(*cell) for cell in cells.items()]),
            "agreement": table_of([_agreement_line(*cell) for cell in cells.items()]),
        }
        proven = max(row[name]["relative_gap"] for row in rows for name in SOURCES if name != "run")
        far = max(abs(gap / recipe["loss_gap"] - 1.0) for row in rows for gap in row["loss_gaps"])
        checks = [
            Check("largest proven relative gap", float(proven), high=5e-3),
            Check("largest distance of a run from its loss gap", float(far), high=0.1),
        ]
        sentence = f"{len(rows)} patterns. " + " ".join(f"{name}: {a.decision}." for name, a in answers.items())
        return self.findings(recipe, sentence, checks, [_figure(cells)], tables)


def _settings(recipe: Recipe) -> list[dict[str, Any]]:
    balanced = [(k, NONE, 0.0) for k in (*recipe["sizes"], *recipe["alone"])]
    changed = [(k, name, s) for k in recipe["sizes"] for name in IMBALANCES for s in recipe["strengths"][name]]
    return [dict(zip(("k", "imbalance", "strength"), values, strict=True)) for values in (*balanced, *changed)]


def drawn_supports(rng: np.random.Generator, sizes: Int, weights: Float) -> Bool:
    """Different supports (V x g) of these sizes, tokens without replacement with these weights."""
    columns: dict[bytes, Bool] = {}
    for k in sizes:
        while len(columns) < len(sizes):
            column = np.zeros(len(weights), dtype=bool)
            column[np.argsort(-np.log(weights) - rng.gumbel(size=len(weights)))[:k]] = True
            if column.tobytes() not in columns:
                columns[column.tobytes()] = column
                break
    return np.array(list(columns.values())).T


def numbers_of_contexts(supports: int, mean: int, strength: float) -> Int:
    """Contexts of each support, at least one, about ``supports * mean`` in all."""
    share = np.arange(1, supports + 1) ** -strength
    return np.asarray(np.maximum(np.round(supports * mean * share / share.sum()), 1), np.int64)


def formula(sizes: Int, contexts: Int, V: int) -> float:
    """The deviation of the frame for supports that are drawn uniformly."""
    p = sizes / V
    both = p * (sizes - 1) / (V - 1)
    mean = both - p**2
    second = both * (1 - p) ** 4 + 2 * (p - both) * (p * (1 - p)) ** 2 + (1 - 2 * p + both) * p**4
    noise = np.sqrt(np.sum(contexts**2 * (second - mean**2)))
    return float(noise / (2 * np.sum(contexts * sizes * (V - sizes) / (V * (V - 1)))))


def measured(rng: np.random.Generator, recipe: Recipe, draw: int, k: int, imbalance: str, strength: float) -> Row:
    """The numbers of one draw."""
    V, g, mean = recipe["V"], recipe["supports"], recipe["contexts_per_support"]
    spread, zipf, unequal = (strength if imbalance == name else 0.0 for name in IMBALANCES)
    noise = rng.standard_normal(g)
    sizes = np.clip(np.round(k * np.exp(spread * noise - 0.5 * spread**2)), 2, V - 2).astype(int)
    S = drawn_supports(rng, sizes, np.arange(1, V + 1) ** -zipf)
    contexts, sizes = numbers_of_contexts(g, mean, unequal), S.sum(axis=0)
    P = np.repeat(S, contexts, axis=1) * rng.exponential(size=(V, int(contexts.sum())))
    stats = NextTokenStatistics.from_probabilities(P / P.sum(axis=0))
    first = np.concatenate([[0], np.cumsum(contexts)[:-1]])

    def shape(W: Any, H: Any) -> dict[str, float]:
        return symmetry(W, np.asarray(H)[:, first], S)

    limit = predict(stats, tolerance=recipe["tolerance"], spread_solves=0)
    excess = [limit.proxy_nuclear_norm / norm - 1.0 for norm in (limit.nuclear_norm, limit.lower_bound)]
    text, (gap, seeds) = DeviceText(stats), (recipe["loss_gap"], (2 * draw, 2 * draw + 1))
    at_loss = {norm: text.prediction(gap, norm) for norm in ("gamma2", "nuclear")}
    known = {name: text.geometry(at.W, at.H) for name, at in at_loss.items()} | {
        "limit": text.geometry(limit.W, limit.H)
    }
    runs = [
        next(first_below(text.begin(training_settings(recipe, "ufm", seed)), text, [gap], seconds=recipe["seconds"]))
        for seed in seeds
    ]
    ours = [text.geometry(run.W, run.H) for run in runs]
    return {
        "contexts": stats.m,
        "off_support": float(1.0 - S.mean()),
        "formula": formula(sizes, contexts, V),
        "excess": excess,
        "effective_rank": float(limit.singular_values.sum() ** 2 / (limit.singular_values**2).sum()),
        "limit": shape(limit.W, limit.H) | {"relative_gap": limit.certificate.relative_gap},
        **{name: shape(at.W, at.H) | {"relative_gap": at.relative_gap} for name, at in at_loss.items()},
        "run": _mean_of([shape(run.W.numpy(), run.H.numpy()) for run in runs]),
        "loss_gaps": [run.loss_gap for run in runs],
        "steps": [run.step for run in runs],
        "reproducible": ours[0].agreement(ours[1]),
        "agreement": {name: _mean_of([x.agreement(other) for x in ours]) for name, other in known.items()},
    }


def _mean_of(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def symmetry(W: Any, H: Any, S: Bool) -> dict[str, float]:
    """Deviations from the geometry of symmetric supports: tokens (rows of W), one context per support (columns of H).

    where
        frame                root mean square of ``cos(w_z, w_v) + 1/(V - 1)`` over pairs of tokens
        tokens, contexts     standard deviation of their lengths over the mean
        overlaps             root mean square of ``cos(h_i, h_j) - cos(s~_i, s~_j)`` over pairs of supports
        aligned              mean cosine of a context with the sum of its tokens
        tokens_by_frequency  correlation of the lengths of tokens with ``(f (1 - f))^(1/4)``
        contexts_by_size     correlation of the lengths of contexts with ``sqrt(k (1 - k/V))``
    """
    V, g = S.shape
    W, H = np.asarray(W, float) - np.mean(W, axis=0), np.asarray(H, float)
    proxy, f, k = S - S.mean(axis=0), S.mean(axis=1), S.sum(axis=0)
    long_w, long_h = np.linalg.norm(W, axis=1), np.linalg.norm(H, axis=0)
    tokens, contexts, supports = (_cosines(M) for M in (W.T, H, proxy))
    pairs, apart = ~np.eye(V, dtype=bool), ~np.eye(g, dtype=bool)
    return {
        "frame": float(np.sqrt(np.mean((tokens[pairs] + 1 / (V - 1)) ** 2))),
        "tokens": float(long_w.std() / long_w.mean()),
        "contexts": float(long_h.std() / long_h.mean()),
        "overlaps": float(np.sqrt(np.mean((contexts - supports)[apart] ** 2))),
        "aligned": float(np.mean(np.sum(unit_columns(H) * unit_columns(W.T @ S), axis=0))),
        "tokens_by_frequency": _correlation(long_w, (f * (1 - f)) ** 0.25),
        "contexts_by_size": _correlation(long_h, np.sqrt(k * (1 - k / V))),
    }


def _cosines(columns: Float) -> Float:
    unit = unit_columns(columns)
    return unit.T @ unit


def _correlation(x: Float, y: Float) -> float:
    """0 where one side does not vary."""
    return float(np.corrcoef(x, y)[0, 1]) if min(np.ptp(x), np.ptp(y)) > 1e-9 else 0.0


Setting = tuple[int, str, float]
Cells = Mapping[Setting, Sequence[Row]]


def _cells(rows: Sequence[Row]) -> Cells:
    """Rows by size, imbalance and strength, each in the order of draws."""
    keys = sorted({(row["k"], row["imbalance"], row["strength"]) for row in rows}, key=_order_of)
    ordered = sorted(rows, key=lambda row: row["draw"])
    return {(k, name, s): chosen(ordered, k=k, imbalance=name, strength=s) for k, name, s in keys}


def _order_of(setting: Setting) -> tuple[int, int, float]:
    return (NONE, *IMBALANCES).index(setting[1]), setting[0], setting[2]


def _named(setting: Setting) -> str:
    k, name, strength = setting
    return f"k = {k}" if name == NONE else f"k = {k}, {name} {strength:g}"


def _over_draws(draws: Iterable[Row], source: str, name: str) -> Interval:
    return Interval.of(row[source][name] for row in draws)


def _by_formula(cells: Cells, imbalance: str) -> Answer:
    ratios = {
        cell: Interval.of(np.log(row["limit"]["frame"] / row["formula"]) for row in draws)
        for cell, draws in cells.items()
        if cell[1] == imbalance
    }
    ends = sorted(ratios, key=lambda cell: ratios[cell].mean)
    shown = "; ".join(f"{_named(c)}: ratio {np.exp(ratios[c].mean):.3f}" for c in dict.fromkeys((ends[0], ends[-1])))
    decision = decided_together(within(ratio, float(np.log1p(CLOSE))) for ratio in ratios.values())
    return Answer(decision, f"{len(ratios)} cells, lowest and highest: {shown}")


def _lengths(cells: Cells, imbalance: str, name: str) -> Answer:
    means = {cell: _over_draws(draws, "limit", name).mean for cell, draws in cells.items() if cell[1] == imbalance}
    least = min(means, key=lambda cell: means[cell])
    text = f"{len(means)} cells, lowest: {_named(least)}: {means[least]:.3f}"
    return Answer("yes" if means[least] >= LENGTHS else "no", text)


def _strongest(cells: Cells, k: int, imbalance: str) -> Sequence[Row]:
    return cells[max((cell for cell in cells if cell[:2] == (k, imbalance)), key=lambda cell: cell[2])]


def _sizes(cells: Cells) -> list[int]:
    return sorted({cell[0] for cell in cells if cell[1] != NONE})


def _farthest(cells: Cells) -> Answer:
    leads = {}
    for k, other in product(_sizes(cells), ("sizes", "multiplicities")):
        pairs = zip(_strongest(cells, k, "frequencies"), _strongest(cells, k, other), strict=False)
        leads[f"k = {k}, {other}"] = Interval.of(a["limit"]["frame"] - b["limit"]["frame"] for a, b in pairs)
    signs = [signed(lead) for lead in leads.values()]
    least = min(leads, key=lambda name: leads[name].mean)
    return Answer(decided_together(signs), f"{len(leads)} comparisons, smallest lead: {least}: {leads[least]}")


def _mean_excess(draws: Sequence[Row]) -> float:
    return float(np.mean([np.mean(row["excess"]) for row in draws]))


def _excess(cells: Cells) -> Answer:
    found, holds = [], []
    for k in _sizes(cells):
        balanced = _mean_excess(cells[k, NONE, 0.0])
        raised = {name: _mean_excess(_strongest(cells, k, name)) for name in IMBALANCES}
        holds += [(x >= max(CLEAR, FACTOR * balanced)) == (name == "frequencies") for name, x in raised.items()]
        parts = ", ".join(f"{name} {x:.1e}" for name, x in raised.items())
        found.append(f"k = {k}: {balanced:.1e} without, {parts}")
    return Answer("yes" if all(holds) else "no", "; ".join(found))


def _corrected(draws: Sequence[Row], name: str, item: str) -> Interval:
    return Interval.of(row["agreement"][name][item] / np.sqrt(max(row["reproducible"][item], 0.05)) for row in draws)


def _training(cells: Cells) -> Answer:
    found = {(cell, item): _corrected(cells[cell], "gamma2", item).mean for cell in cells for item in ITEMS}
    least = min(found, key=lambda key: found[key])
    held = [x >= FOLLOWED for x in found.values()]
    text = f"holds in {sum(held)} of {len(held)} cells; lowest {found[least]:.3f} ({_named(least[0])}, {least[1]})"
    return Answer(decided_by_share(float(np.mean(held)), MOST), text)


def _order(cells: Cells) -> Answer:
    found = {}
    for name in ("frame", "contexts"):
        x, y = ([_over_draws(d, source, name).mean for d in cells.values()] for source in ("run", "gamma2"))
        found[name] = float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])
    text = ", ".join(f"{name} {x:.3f}" for name, x in found.items())
    return Answer("yes" if min(found.values()) >= IN_ORDER else "no", f"rank correlations: {text}")


def _line(setting: Setting, draws: Sequence[Row]) -> dict[str, Any]:
    k, name, strength = setting
    return {"k": k, "imbalance": name, "strength": strength, "off support": np.mean([x["off_support"] for x in draws])}


def _limit_line(setting: Setting, draws: Sequence[Row]) -> dict[str, Any]:
    names = ("frame", "tokens", "contexts", "overlaps", "aligned")
    return {
        **_line(setting, draws),
        "excess": _mean_excess(draws),
        "effective rank": np.mean([row["effective_rank"] for row in draws]),
        "formula of the frame": np.mean([row["formula"] for row in draws]),
        **{name: str(_over_draws(draws, "limit", name)) for name in names},
    }


def _trained_line(setting: Setting, draws: Sequence[Row]) -> dict[str, Any]:
    line = _line(setting, draws)
    for name in ("frame", "tokens", "contexts"):
        line |= {f"{name}, {source}": _over_draws(draws, source, name).mean for source in ("run", "gamma2", "nuclear")}
    return line


def _agreement_line(setting: Setting, draws: Sequence[Row]) -> dict[str, Any]:
    line = _line(setting, draws) | {"steps": np.mean([row["steps"] for row in draws])}
    for item in ITEMS:
        line[f"{item}, two starts"] = np.mean([row["reproducible"][item] for row in draws])
        line |= {f"{item}, {name}": str(_corrected(draws, name, item)) for name in ("gamma2", "nuclear", "limit")}
    return line


def _figure(cells: Cells) -> Figure:
    """Deviation of the frame against the strength of each imbalance, one curve per size, and against density."""
    panels = []
    for imbalance in IMBALANCES:
        curves: list[Curve] = []
        for k in _sizes(cells):
            mine = {s: cells[size, name, s] for size, name, s in cells if size == k and name in (NONE, imbalance)}
            for source in ("limit", "run"):
                found = [_over_draws(draws, source, "frame") for draws in mine.values()]
                style = {"dashed": source == "run", "colour": _sizes(cells).index(k)}
                curves.append(interval_curve(f"k = {k}, {source}", mine, found, **style))
        panels.append(LinePanel(f"Unequal {imbalance}", "strength", "deviation from the frame", curves))
    caption = (
        "Root mean square of cos(w_z, w_v) + 1/(V - 1) in the limit (L_mm) and in features trained with AdamW, for "
        "each imbalance; 0 is an equiangular frame. Mean and 95% interval over draws."
    )
    return Figure("symmetry", "What breaks the symmetry of tokens", caption, panels, columns=3)
