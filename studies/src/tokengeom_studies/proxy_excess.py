"""When the proxy S~ solves NTP-SVM*, and how far it is from optimal for designs, random supports and natural text.

The excess ``||S~||_* / ||L_mm||_* - 1`` is bounded on both sides by the certificate of L_mm. Designs have symmetries
(`support_designs`); for random supports of one size there is a formula for the limit of large V (`random_limits`); the
supports of a text are compared with random ones that have the same sizes, or the same sizes and token frequencies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tokengeom.extending import AbstractProgress, Backend, Curve, Figure, LinePanel, Panel, Points, ScatterPanel
from tokengeom_studies.base import Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Answer, Hypothesis, Row, Rows, chosen
from tokengeom_studies.common.random_limits import proxy_limit
from tokengeom_studies.common.solved_patterns import (
    ALIKE,
    CLOSE,
    CLOSE_SHARE,
    ENOUGH,
    FLAT,
    REFUTED,
    all_exact,
    by_setting,
    excess_of,
    falls_with_density,
    largest_where_square,
    mean_excess,
    natural_below_random,
    near_the_limit,
    no_decay,
    partial_balance,
    random_like,
    random_line,
    rank_near_the_limit,
    shown,
    solve_pattern,
    uniform_supports,
)
from tokengeom_studies.common.support_designs import designs, off_support_classes

CONTROLS = ("sizes", "frequencies")


class ProxyExcess(AbstractMeasuredStudy):
    """Excess, rank and spectrum of the proxy against the structure of the supports."""

    question: ClassVar[str] = "When is the centred support matrix the max-margin direction, and how far off is it else?"
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "designs": Hypothesis(
            "The proxy is exact for every 2-design.",
            "Yes if the proven upper bound of the excess is at most twice the tolerance for all of them.",
        ),
        "one class": Hypothesis(
            "The proxy is exact wherever the coherent closure of the supports has one class of off-support pairs.",
            "Yes if the proven upper bound of the excess is at most twice the tolerance for all such designs.",
        ),
        "partial balance": Hypothesis(
            "Partial balance is not enough: the proxy of some partially balanced design is not exact.",
            f"Yes if the proven lower bound of the excess is above {REFUTED} for at least one of them.",
        ),
        "limit": Hypothesis(
            "For random supports the excess approaches the positive limit of the Marchenko-Pastur formula.",
            f"Yes if at the largest V with k >= {ENOUGH} the mean excess is within {CLOSE:.0%} of the limit, for every "
            f"density and V/m whose limit is at least {REFUTED}.",
        ),
        "no decay": Hypothesis(
            "At fixed density (at least 1/8) and V = m the excess does not fall to 0 as V grows.",
            f"Yes if the 95% interval of the slope of log excess against log V, over V >= 64, lies in "
            f"[-{FLAT}, {FLAT}] for every such density; no if one lies below -{FLAT}.",
        ),
        "density": Hypothesis(
            "The excess falls with the density of the supports, at every V/m.",
            "Yes if the mean excess at the largest V falls from each density to the next by more than the proven gaps, "
            "as far as the limit is at least 1e-3.",
        ),
        "ratio": Hypothesis(
            "The excess is largest at V = m, and equal at V/m = r and 1/r.",
            "Yes if at the largest V and every density the mean excess at V = m is above those at other V/m, and those "
            f"at r and 1/r differ by a factor of at most {ALIKE} where the limit is at least {REFUTED} and "
            f"k >= {ENOUGH}.",
        ),
        "rank": Hypothesis(
            "The formula also gives the effective rank of L_mm and its cosine with the proxy.",
            f"Yes if both are within {CLOSE_SHARE} of the limit in the settings of the hypothesis 'limit'.",
        ),
        "natural": Hypothesis(
            "The proxy is closer to optimal on the supports of natural text than on random ones of the same sizes.",
            "Yes if the excess of every text lies below the 95% interval over random supports; no if one lies above. "
            "Texts with fewer than three draws of random supports are not counted.",
        ),
    }
    # ``large`` lists single settings [V, V/m, density], drawn with ``large_seeds``. Texts with more entries than
    # ``most_entries`` are compared with random supports of the first seed alone.
    small: ClassVar[Recipe] = {
        "designs": "few",
        "V": [16, 64, 128],
        "densities": [0.125, 0.25, 0.5],
        "ratios": [0.25, 1.0, 4.0],
        "seeds": [0, 1, 2],
        "large": [],
        "large_seeds": [0],
        "most_entries": 5_000_000,
        "texts": [],
        "control_seeds": [0, 1, 2],
        "tolerance": 1e-4,
        "design_tolerance": 1e-6,
        "device": "cpu",
    }
    paper: ClassVar[Recipe] = {
        "designs": "many",
        "V": [16, 64, 256, 1024],
        "densities": [1 / 128, 1 / 64, 1 / 32, 1 / 8, 1 / 4, 1 / 2],
        "ratios": [0.25, 1.0, 4.0],
        "seeds": [0, 1, 2, 3, 4],
        "large": [
            [4096, 1.0, 1 / 32], [4096, 1.0, 1 / 8], [4096, 4.0, 1 / 32], [4096, 4.0, 1 / 8], [4096, 1.0, 1 / 64],
            [4096, 1.0, 1 / 4], [4096, 1.0, 1 / 2], [4096, 4.0, 1 / 64], [4096, 0.25, 1 / 32], [4096, 0.25, 1 / 8],
            [4096, 1.0, 1 / 128],
        ],
        "large_seeds": [0],
        "most_entries": 5_000_000,
        "texts": [
            "texts/stories_104x382.npz",
            "texts/tinystories_104x382.npz",
            "texts/tinystories_1000x4000.npz",
            "texts/tinystories_2000x10000.npz",
        ],
        "control_seeds": [0, 1, 2, 3, 4],
        "tolerance": 1e-4,
        "design_tolerance": 1e-6,
        "device": "cuda",
    }  # fmt: skip

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Solve each pattern that is not known: designs, texts, then random supports, seed by seed."""
        # A device that does not exist is refused before any work.
        Backend.on(None if recipe["device"] == "cpu" else recipe["device"])
        with progress.stage("Designs", None) as stage:
            _measure_designs(recipe, rows)
            stage.advance(1.0)
        with progress.stage("Random supports", None) as stage:
            for seed, V, ratio, density in _random_settings(recipe):
                setting = {"kind": "random", "V": V, "ratio": ratio, "density": density, "seed": seed}
                if not rows.in_time or rows.has(**setting):
                    continue
                k = round(density * V)
                rng = np.random.default_rng([seed, V, round(1000 * ratio), k])
                S = uniform_supports(rng, V, round(V / ratio), k)
                rows.add(**setting, k=k, **solve_pattern(S, recipe["device"], recipe["tolerance"]))
                stage.advance(1.0, f"V={V}, V/m={ratio:g}, k/V={density:g}")
        with progress.stage("Natural supports", None) as stage:
            for text in recipe["texts"]:
                _measure_text(recipe, rows, text)
                stage.advance(1.0, text)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Answers, tables and figures; the checks are about the certificates alone."""
        answers = {
            "designs": all_exact(chosen(rows, kind="design", two_design=True), recipe),
            "one class": all_exact(chosen(rows, kind="design", classes=1), recipe),
            "partial balance": partial_balance(rows),
            "limit": near_the_limit(rows),
            "no decay": no_decay(rows),
            "density": falls_with_density(rows),
            "ratio": largest_where_square(rows),
            "rank": rank_near_the_limit(rows),
            "natural": natural_below_random(rows),
        }
        tables = {"hypotheses": self.answers(answers), **_tables(rows)}
        return self.findings(recipe, _sentence(answers, rows), _checks(recipe, rows), _figures(rows), tables)


def _random_settings(recipe: Recipe) -> list[tuple[int, int, float, float]]:
    """Seed, V, V/m and density; densities that do not give a whole number of tokens are left out."""
    grid = product(recipe["seeds"], recipe["V"], recipe["ratios"], recipe["densities"])
    large = [(seed, *setting) for seed in recipe["large_seeds"] for setting in recipe["large"]]
    return [*(setting for setting in grid if setting[1] * setting[3] >= 1 and setting[1] * setting[3] % 1 == 0), *large]


def _measure_designs(recipe: Recipe, rows: Rows) -> None:
    for design in designs(recipe["designs"]):
        if not rows.in_time or rows.has(kind="design", name=design.name):
            continue
        rows.add(
            kind="design",
            name=design.name,
            family=design.family,
            V=int(design.S.shape[0]),
            k=int(design.S.sum(axis=0)[0]),
            two_design=design.is_2_design,
            concurrences=design.concurrences,
            classes=off_support_classes(design.S),
            **solve_pattern(design.S, "cpu", recipe["design_tolerance"]),
        )


def _measure_text(recipe: Recipe, rows: Rows, text: str) -> None:
    from tokengeom_studies.common.torch_runs import load_text

    S = load_text({"text": text}).S.toarray().astype(bool)
    name = Path(text).stem
    seeds = recipe["control_seeds"] if S.size <= recipe["most_entries"] else recipe["control_seeds"][:1]
    wanted = [("none", 0), *((control, seed) for seed in seeds for control in CONTROLS)]
    for control, seed in wanted:
        setting = {"kind": "natural", "text": name, "control": control, "seed": seed}
        if not rows.in_time or rows.has(**setting):
            continue
        drawn = S if control == "none" else random_like(S, np.random.default_rng(seed), control)
        rows.add(**setting, V=int(S.shape[0]), **solve_pattern(drawn, recipe["device"], recipe["tolerance"]))


def _checks(recipe: Recipe, rows: Sequence[Row]) -> list[Check]:
    largest = max((row["relative_gap"] for row in rows if row["kind"] != "design"), default=float("nan"))
    exact = max((row["relative_gap"] for row in rows if row["kind"] == "design"), default=float("nan"))
    least = min((row["excess_high"] for row in rows), default=float("nan"))
    checks = [Check("smallest proven upper bound of an excess", float(least), low=-1e-9)]
    if largest == largest:
        checks.append(Check("largest proven gap of random and natural patterns", largest, high=recipe["tolerance"]))
    if exact == exact:
        checks.append(Check("largest proven gap of designs", exact, high=recipe["design_tolerance"]))
    return checks


def _sentence(decided: Mapping[str, Answer], rows: Sequence[Row]) -> str:
    answers = ", ".join(f"{name}: {answer.decision}" for name, answer in decided.items())
    because = " ".join(decided[name].because for name in ("one class", "limit", "natural"))
    return f"{len(rows)} patterns were solved. Hypotheses ({answers}). {because}"


def _tables(rows: Sequence[Row]) -> dict[str, Table]:
    tables: dict[str, Table] = {}
    random = [random_line(*cell, V, draws) for cell, by_V in by_setting(rows).items() for V, draws in by_V.items()]
    if random:
        tables["random"] = table_of(random)
    known = chosen(rows, kind="design")
    if known:
        families = sorted(
            {(row["family"], row["classes"] == 1) for row in known}, key=lambda family: (family[0], -family[1])
        )
        tables["families"] = table_of([_family_line(rows, *family) for family in families])
        columns = ("name", "family", "V", "m", "k", "classes", "rank", "rank_of_proxy")
        more = [row for row in known if row["classes"] != 1] or known
        tables["designs"] = table_of(
            [{**{name: row[name] for name in columns}, "excess": f"{excess_of(row):.2e}"} for row in more]
        )
    texts = [_natural_line(rows, row) for row in chosen(rows, kind="natural", control="none")]
    if texts:
        tables["natural"] = table_of(texts)
    return tables


def _family_line(rows: Sequence[Row], family: str, one_class: bool) -> dict[str, Any]:
    designs = [row for row in chosen(rows, kind="design", family=family) if (row["classes"] == 1) == one_class]
    return {
        "family": family,
        "classes of off-support pairs": "one" if one_class else "more",
        "designs": len(designs),
        f"excess above {REFUTED:g}": sum(row["excess_low"] > REFUTED for row in designs),
        "largest excess": f"{max(map(excess_of, designs)):.1e}",
    }


def _natural_line(rows: Sequence[Row], row: Row) -> dict[str, Any]:
    of = {name: chosen(rows, kind="natural", control=name, text=row["text"]) for name in CONTROLS}
    return {
        "text": row["text"],
        "V": row["V"],
        "m": row["m"],
        "supports": row["groups"],
        "excess": round(excess_of(row), 5),
        "random, same sizes": shown(map(excess_of, of["sizes"])),
        "random, same sizes and frequencies": shown(map(excess_of, of["frequencies"])),
        "rank": row["rank"],
        "rank of the proxy": row["rank_of_proxy"],
        "cosine": round(row["cosine"], 4),
        "agreement of contexts": row["contexts"],
        "agreement of tokens": row["tokens"],
    }


def _figures(rows: Sequence[Row]) -> list[Figure]:
    cells = {cell: by_V for cell, by_V in by_setting(rows).items() if proxy_limit(cell[1], cell[0]).excess >= REFUTED}
    panels: list[Panel] = []
    for ratio in dict.fromkeys(cell[0] for cell in cells):
        curves = []
        for density in (d for r, d in cells if r == ratio):
            by_V = cells[ratio, density]
            k = np.array([draws[0]["k"] for draws in by_V.values()], float)
            mean = np.array([mean_excess(draws) for draws in by_V.values()]) / proxy_limit(density, ratio).excess
            curves.append(Curve(f"k/V = {density:.3g}", k, mean))
        title, levels = f"Random supports, V/m = {ratio:g}", [("limit", 1.0)]
        panels.append(LinePanel(title, "support size k", "excess / limit", curves, "log", levels=levels))
    known = chosen(rows, kind="design")
    if known:
        groups = {
            "one class of off-support pairs": chosen(known, classes=1),
            "more classes": [row for row in known if row["classes"] != 1],
        }
        points = [
            Points(
                name,
                np.array([row["k"] / row["V"] for row in draws]),
                np.array([max(row["excess_high"], 0.0) for row in draws]),
            )
            for name, draws in groups.items()
            if draws
        ]
        panels.append(ScatterPanel("Designs", "k / V", "largest possible excess", points))
    caption = (
        "Excess of the proxy's nuclear norm over that of L_mm. Lines: random supports of k of V tokens, mean over "
        "seeds, divided by the limit of large V (Marchenko-Pastur formula), where the limit is at least 0.001. Last "
        "panel: designs, by the number of classes of off-support pairs in their coherent closure."
    )
    return [Figure("excess", "How far the proxy is from optimal", caption, panels)]
