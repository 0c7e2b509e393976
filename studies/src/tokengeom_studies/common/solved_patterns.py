"""Numbers of a support pattern that compare L_mm with the proxy, random patterns like a given one, and their means."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import special

from tokengeom.extending import Bool, Float, NuclearADMM, NuclearSVM, blocks_of
from tokengeom_studies.base import Recipe
from tokengeom_studies.common.measured import Answer, Decision, Interval, Row, chosen, decided_together
from tokengeom_studies.common.random_limits import proxy_limit

REFUTED = 1e-3
"""Excess that counts as a clear failure of exactness, and limit from which on ratios of excesses are compared."""
ENOUGH = 64
"""Support size from which on a random pattern is compared with the limit."""
CLOSE, CLOSE_SHARE, FLAT, ALIKE = 0.10, 0.02, 0.15, 1.2

RANK = 1e-3
"""Share of the largest singular value from which on a singular value counts for the rank."""
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
SMALL = 1e-4
"""Excess up to which only the proven upper bound is shown: the proven gap is of this size."""
MOST_COMPARED = 3_000
"""Contexts or tokens whose cosines are compared; of more, this many are drawn with a fixed seed."""


def uniform_supports(rng: np.random.Generator, V: int, m: int, k: int) -> Bool:
    """V x m supports of k tokens each, uniform; in single precision and without sorting, for large V and m."""
    tokens = np.argpartition(rng.random((m, V), dtype=np.float32), k - 1, axis=1)[:, :k]
    S = np.zeros((m, V), dtype=bool)
    np.put_along_axis(S, tokens, True, axis=1)
    return S.T.copy()


def random_like(S: Bool, rng: np.random.Generator, control: str) -> Bool:
    """Random supports of the same sizes; with "frequencies", tokens are drawn in proportion to their contexts.

    Drawing without replacement takes the largest of ``log weight + Gumbel noise``.
    """
    weight = np.zeros(S.shape[0]) if control == "sizes" else np.log(np.maximum(S.sum(axis=1), 1e-9))
    keys = weight[:, None] + rng.gumbel(size=S.shape)
    return np.asarray(np.argsort(np.argsort(-keys, axis=0), axis=0) < S.sum(axis=0))


def solve_pattern(S: Bool, device: str, tolerance: float) -> dict[str, Any]:
    """The numbers of one pattern: excess with bounds, ranks, spectra, cosine and agreement of L_mm and the proxy."""
    began = time.perf_counter()
    problem = NuclearSVM.from_support(S, device=None if device == "cpu" else device)
    solution = NuclearADMM(tolerance=tolerance)(problem)
    proof = solution.certificate
    # On a device a large solution is in blocks of columns; what follows takes whole matrices.
    blocks = blocks_of(solution.x)
    L = blocks[0] if len(blocks) == 1 else problem.backend.xp.concatenate(list(blocks), -1)
    X, proxy = problem.scale(L), problem.proxy()
    # Columns may be taken centred: the mean over tokens does not change the softmax, and its removal no margin.
    unit = problem.row_scale / float(problem.reduction.V) ** 0.5
    X = X - unit @ (unit.T @ X)
    ours, theirs = _spectrum(problem, X), _spectrum(problem, proxy)
    norm = float(theirs["values"].sum())
    polar, _ = problem.backend.polar_factor(proxy)
    off = ~problem.S
    return {
        "m": int(S.shape[1]),
        "rows": problem.shape[0],
        "groups": problem.shape[1],
        "excess_low": norm / proof.value - 1.0,
        "excess_high": norm / proof.bound - 1.0,
        "relative_gap": proof.relative_gap,
        "rank": _rank_of(ours["values"]),
        "rank_of_proxy": _rank_of(theirs["values"]),
        "effective_rank": _effective_rank(ours["values"]),
        "effective_rank_of_proxy": _effective_rank(theirs["values"]),
        "spectrum": np.quantile(ours["values"] / ours["values"].max(), QUANTILES),
        "spectrum_of_proxy": np.quantile(theirs["values"] / theirs["values"].max(), QUANTILES),
        "cosine": float((X * proxy).sum()) / float((X**2).sum() * (proxy**2).sum()) ** 0.5,
        "positive": float(problem.backend.as_float(polar[off] > 1e-9).sum()) / max(float(off.sum()), 1.0),
        "contexts": _agreement(ours["contexts"], theirs["contexts"]),
        "tokens": _agreement(ours["tokens"], theirs["tokens"]),
        "iterations": solution.iterations,
        "seconds": time.perf_counter() - began,
    }


def _spectrum(problem: NuclearSVM, X: Any) -> dict[str, Any]:
    """Singular values, and the cosines of the balanced factors: tokens and contexts (at most `MOST_COMPARED`)."""
    backend = problem.backend
    by_rows = X.shape[0] <= X.shape[1]
    eigenvalues, Q = backend.eigh(X @ X.T if by_rows else X.T @ X)
    s = backend.at_least(eigenvalues, 0.0) ** 0.5
    kept = s > 1e-7 * float(s[-1])
    Q, root = Q[:, kept], s[kept] ** 0.5
    near, far = Q * root, (X.T if by_rows else X) @ (Q / root)
    tokens, contexts = (near, far) if by_rows else (far, near)
    return {
        "values": np.maximum(backend.to_numpy(s), 0.0),
        "tokens": _cosines(tokens),
        "contexts": _cosines(contexts),
    }


def _cosines(factor: Any) -> Any:
    """Cosines of the rows of a factor."""
    if factor.shape[0] > MOST_COMPARED:
        rng = np.random.default_rng(0)
        factor = factor[np.sort(rng.choice(factor.shape[0], MOST_COMPARED, replace=False))]
    unit = factor / ((factor**2).sum(1) ** 0.5 + 1e-300)[:, None]
    return unit @ unit.T


def _agreement(A: Any, B: Any) -> float | None:
    """Correlation of two cosine matrices over pairs of different items; None where one side does not vary."""
    n = int(A.shape[0])
    pairs = n * (n - 1)
    if pairs < 2:
        return None
    sums = [(float(x.sum()) - n) / pairs for x in (A, B)]
    squares = [(float((x * y).sum()) - n) / pairs for x, y in ((A, A), (B, B), (A, B))]
    spread = [squares[0] - sums[0] ** 2, squares[1] - sums[1] ** 2]
    if min(spread) < 1e-10:
        return None
    return float((squares[2] - sums[0] * sums[1]) / (spread[0] * spread[1]) ** 0.5)


def _rank_of(values: Float) -> int:
    return int(np.count_nonzero(values > RANK * values.max()))


def _effective_rank(values: Float) -> float:
    return float(values.sum() ** 2 / (values**2).sum())


def excess_of(row: Row) -> float:
    """Middle of the proven bounds of the excess."""
    return 0.5 * (float(row["excess_low"]) + float(row["excess_high"]))


def mean_excess(rows: Iterable[Row]) -> float:
    """Mean of the middles over rows."""
    return float(np.mean([excess_of(row) for row in rows]))


def by_setting(rows: Sequence[Row]) -> dict[tuple[float, float], dict[int, list[Row]]]:
    """Random rows by (V/m, density), then by V, rising."""
    settings: dict[tuple[float, float], dict[int, list[Row]]] = {}
    for row in sorted(
        chosen(rows, kind="random"), key=lambda setting: (setting["ratio"], setting["density"], setting["V"])
    ):
        settings.setdefault((row["ratio"], row["density"]), {}).setdefault(row["V"], []).append(row)
    return settings


def slope(rows: Sequence[Row]) -> Interval | None:
    """Slope of log excess against log V with its 95% interval, from rows of one density and V/m; None for few rows."""
    points = [(np.log(row["V"]), np.log(excess_of(row))) for row in rows if row["V"] >= 64 and excess_of(row) > 0.0]
    if len(points) < 3 or len({x for x, _ in points}) < 2:
        return None
    x, y = np.array(points).T
    # Importing scipy.stats takes half a second, which every list of studies would wait for.
    from scipy.stats import linregress

    fit = linregress(x, y)
    half = float(special.stdtrit(len(points) - 2, 0.975) * fit.stderr)
    return Interval(float(fit.slope), float(fit.slope) - half, float(fit.slope) + half, len(points))


def shown(values: Iterable[float]) -> str:
    """Mean with its 95% interval; the mean alone for a single value."""
    interval = Interval.of(values)
    if interval.count == 1:
        return f"{interval.mean:.4g}"
    return f"{interval.mean:.4g} [{interval.low:.4g}, {interval.high:.4g}]" if interval.count else ""


def random_line(ratio: float, density: float, V: int, rows: Sequence[Row]) -> dict[str, Any]:
    """Means over the draws of one setting beside their limits, as a row of a table."""
    limit, n = proxy_limit(density, ratio), min(V, rows[0]["m"])
    highest = max(float(row["excess_high"]) for row in rows)
    names = ("effective_rank", "rank", "cosine", "positive", "contexts", "tokens")
    means = {name: _mean(row[name] for row in rows) for name in names}
    return {
        "V/m": ratio,
        "k/V": round(density, 5),
        "V": V,
        "seeds": len(rows),
        "excess": shown(map(excess_of, rows)) if highest > SMALL else f"at most {highest:.1e}",
        # Small limits are differences of numbers near 1, whose fourth digit is not the same on every processor.
        "limit": float(f"{limit.excess:.3g}"),
        "rank / min(V, m)": round(means["rank"] / n, 3),
        "effective rank / min(V, m)": round(means["effective_rank"] / n, 3),
        "its limit": round(limit.effective_rank, 3),
        "cosine": round(means["cosine"], 4),
        "limit of the cosine": round(limit.cosine, 4),
        "positive signs": round(means["positive"], 3),
        "limit of the signs": round(limit.positive, 3),
        "agreement of contexts": round(means["contexts"], 3),
        "agreement of tokens": round(means["tokens"], 3),
    }


def _mean(values: Iterable[float | None]) -> float:
    """Mean of the values that are defined; NaN without any."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")


def _largest(rows: Sequence[Row], least_k: int = 1) -> dict[tuple[float, float], list[Row]]:
    """Rows of the largest V per (V/m, density), where its support size is at least ``least_k``."""
    last = {cell: by_V[max(by_V)] for cell, by_V in by_setting(rows).items()}
    return {cell: draws for cell, draws in last.items() if draws[0]["k"] >= least_k}


def _compared(rows: Sequence[Row]) -> dict[tuple[float, float], list[Row]]:
    """The settings that are compared with the limit."""
    return {
        cell: draws for cell, draws in _largest(rows, ENOUGH).items() if proxy_limit(cell[1], cell[0]).excess >= REFUTED
    }


def all_exact(rows: Sequence[Row], recipe: Recipe) -> Answer:
    """Whether the proxy of every design is exact."""
    if not rows:
        return Answer("undecided", "No such design was measured.")
    worst = max(rows, key=lambda row: row["excess_high"])
    exact = worst["excess_high"] <= 2.0 * recipe["design_tolerance"]
    text = f"Of {len(rows)} designs the largest proven bound is {worst['excess_high']:.1e} ({worst['name']})."
    return Answer("yes" if exact else "no", text)


def partial_balance(rows: Sequence[Row]) -> Answer:
    """Whether some partially balanced design has a proxy that is not exact."""
    partial = chosen(rows, kind="design", family="partially balanced")
    if not partial:
        return Answer("undecided", "No partially balanced design was measured.")
    failing = [row for row in partial if row["excess_low"] > REFUTED]
    worst = max(partial, key=lambda row: row["excess_low"])
    text = f"{len(failing)} of {len(partial)} are not exact; largest excess {excess_of(worst):.2%} ({worst['name']})."
    return Answer("yes" if failing else "no", text)


def near_the_limit(rows: Sequence[Row]) -> Answer:
    """Whether the excess of random supports is near its limit."""
    ratios = {
        cell: mean_excess(draws) / proxy_limit(cell[1], cell[0]).excess for cell, draws in _compared(rows).items()
    }
    if not ratios:
        return Answer("undecided", f"No setting with supports of at least {ENOUGH} tokens was measured.")
    cell = max(ratios, key=lambda ratio: abs(ratios[ratio] - 1.0))
    text = (
        f"In {len(ratios)} settings the ratio of excess and limit is {min(ratios.values()):.3f} to "
        f"{max(ratios.values()):.3f}; farthest from 1 at V/m={cell[0]:g}, k/V={cell[1]:.4g}."
    )
    return Answer("yes" if abs(ratios[cell] - 1.0) <= CLOSE else "no", text)


def no_decay(rows: Sequence[Row]) -> Answer:
    """Whether the excess of random supports does not fall with V."""
    fits = {
        density: slope([row for draws in by_V.values() for row in draws])
        for (ratio, density), by_V in by_setting(rows).items()
        if ratio == 1.0 and density >= 0.125
    }
    known = {density: fit for density, fit in fits.items() if fit is not None}
    if not known:
        return Answer("undecided", "Too few sizes were measured.")
    inside = all(fit.low >= -FLAT and fit.high <= FLAT for fit in known.values())
    falls = any(fit.high < -FLAT for fit in known.values())
    decision: Decision = "yes" if inside else "no" if falls else "undecided"
    return Answer(decision, "Slopes: " + ", ".join(f"k/V={density:g}: {fit}" for density, fit in known.items()) + ".")


def falls_with_density(rows: Sequence[Row]) -> Answer:
    """Whether the excess falls with the density of supports."""
    steps = failures = 0
    last = _largest(rows)
    for ratio in dict.fromkeys(cell[0] for cell in last):
        mine = [cell for cell in last if cell[0] == ratio and proxy_limit(cell[1], ratio).excess >= REFUTED]
        for thin, thick in pairwise(mine):
            steps += 1
            apart = min(row["excess_low"] for row in last[thin]) - max(row["excess_high"] for row in last[thick])
            failures += apart <= 0.0
    if not steps:
        return Answer("undecided", "Fewer than two densities were measured.")
    return Answer("no" if failures else "yes", f"The excess falls in {steps - failures} of {steps} steps of density.")


def largest_where_square(rows: Sequence[Row]) -> Answer:
    """Whether the excess is largest at V = m, and alike for V/m and m/V."""
    last = {cell: mean_excess(draws) for cell, draws in _largest(rows).items()}
    k = {cell: draws[0]["k"] for cell, draws in _largest(rows).items()}
    below = [last[1.0, d] - value for (r, d), value in last.items() if r != 1.0 and (1.0, d) in last]
    factors = [
        max(value / last[1.0 / r, d], last[1.0 / r, d] / value)
        for (r, d), value in last.items()
        if r < 1.0 and (1.0 / r, d) in last and proxy_limit(d, r).excess >= REFUTED
        and min(k[r, d], k[1.0 / r, d]) >= ENOUGH
    ]  # fmt: skip
    if not below:
        return Answer("undecided", "Only one V/m was measured.")
    text = f"V = m has the larger excess in {sum(x > 0 for x in below)} of {len(below)} comparisons"
    if not factors:
        return Answer("no" if min(below) <= 0 else "undecided", text + "; r and 1/r could not be compared.")
    text += f"; r and 1/r differ by a factor of at most {max(factors):.3f} in {len(factors)} settings."
    return Answer("yes" if min(below) > 0 and max(factors) <= ALIKE else "no", text)


def rank_near_the_limit(rows: Sequence[Row]) -> Answer:
    """Whether the effective rank of random supports is near its limit."""
    ranks, cosines = [], []
    for (ratio, density), draws in _compared(rows).items():
        limit = proxy_limit(density, ratio)
        share = np.mean([row["effective_rank"] / min(row["V"], row["m"]) for row in draws])
        ranks.append(float(abs(share - limit.effective_rank)))
        cosines.append(float(abs(np.mean([row["cosine"] for row in draws]) - limit.cosine)))
    if not ranks:
        return Answer("undecided", f"No setting with supports of at least {ENOUGH} tokens was measured.")
    text = f"Largest distances: effective rank {max(ranks):.4f} of min(V, m), cosine {max(cosines):.4f}."
    return Answer("yes" if max(ranks + cosines) <= CLOSE_SHARE else "no", text)


def natural_below_random(rows: Sequence[Row]) -> Answer:
    """Whether natural supports have a smaller excess than random ones of the same sizes."""
    decisions: list[Decision] = []
    parts = []
    for row in chosen(rows, kind="natural", control="none"):
        random = Interval.of(map(excess_of, chosen(rows, kind="natural", control="sizes", text=row["text"])))
        if random.count < 3:
            continue
        ours = excess_of(row)
        decisions.append("yes" if ours < random.low else "no" if ours > random.high else "undecided")
        parts.append(f"{row['text']}: {ours:.4f} against {random.mean:.4f}")
    if not decisions:
        return Answer("undecided", "No text was measured with its random supports.")
    decision = decided_together(decisions)
    return Answer(decision, "; ".join(parts) + ".")
