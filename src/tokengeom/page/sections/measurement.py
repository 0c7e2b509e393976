"""What was measured: how training went, agreement with the prediction, and which contexts collapsed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokengeom.figures.base import Figure, Points, ScatterPanel
from tokengeom.figures.training_curves import feature_training
from tokengeom.geometry.agreement import Agreement
from tokengeom.geometry.collapse import group_sums
from tokengeom.geometry.comparison import Comparison, meaning
from tokengeom.geometry.rival_table import RivalRow, Rivals
from tokengeom.numerics import Float, Int, unit_columns
from tokengeom.page.contents import Contents
from tokengeom.page.diagnosis import collapsing_groups, is_chance, is_finite
from tokengeom.page.figures import Picture, geometry_figures, geometry_sources, order_sentence, picture
from tokengeom.page.formatting import DASH, listed, percent
from tokengeom.page.formatting import name as shown_name
from tokengeom.page.sections.base import Page, Section
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.run import Run

MEASURED = (
    "Measurements of each run during training, by step on a logarithmic axis; losses, norms and distances on F are on "
    "logarithmic axes too, where they are positive."
)
LIMIT = (
    " Theory predicts, for vanishing weight decay: the loss falls to the entropy floor; norms grow without bound; "
    "inside the supports the logits converge to L_in; elsewhere they grow along L_mm, so that cosines between "
    "contexts and between tokens become those of L_mm (similarity 1), and contexts with the same support "
    "collapse (spread 0)."
)
NO_DIRECTION = (
    " Theory predicts: the loss reaches the entropy floor, the logits converge to L_in, and no direction diverges."
)
GROUPS = 12
"""Support groups in the table, the largest first."""
POINTS = 300
"""Support groups in the scatter plot: more would cover each other and make the page heavy."""
SHOWN_CONTEXTS, SHOWN_TOKENS = 8, 8


def training(page: Page) -> Section:
    """The end of each run in numbers, and curves."""
    runs = page.contents.runs
    measured = any(len(run.trajectory) > 1 for run in runs.values())
    view = {
        "runs": [_run_row(name, run) for name, run in runs.items()],
        "curves": picture(feature_training(runs), caption=_training_caption(page)) if measured else None,
    }
    return Section("training", "How training went", view)


def _training_caption(page: Page) -> str:
    prediction = page.contents.prediction
    nothing = isinstance(prediction, FeaturePrediction) and prediction.rank == 0
    return MEASURED + (NO_DIRECTION if nothing else LIMIT)


def _run_row(name: str, run: Run) -> dict[str, Any]:
    optimizer = run.settings.get("optimizer", "")
    finite = is_finite(run)
    return {
        "name": name,
        "d": run.H.shape[0],
        "optimizer": str(optimizer.get("name", "") if isinstance(optimizer, dict) else optimizer),
        "steps": run.steps,
        "seconds": float(run.seconds),
        "loss": float(run.loss),
        "gap": float(run.loss_gap),
        "norm_W": float(np.linalg.norm(run.W)) if finite else float("nan"),
        "norm_H": float(np.linalg.norm(run.H)) if finite else float("nan"),
        "status": run.status,
        "finished": run.status == "finished",
    }


def agreement(page: Page) -> Section:
    """Heat-maps in one order, the table of agreement, and rival explanations."""
    contents = page.contents
    not_finite = [name for name, run in contents.runs.items() if not is_finite(run)]
    figures = geometry_figures(contents, page.order) if geometry_sources(contents) else []
    view = {
        "pictures": [picture(figure) for figure in figures],
        "both": len(not_finite) < len(contents.runs) and contents.prediction.W.shape[1] > 0,
        "order": order_sentence(page.order),
        "not_finite": listed(f"'{name}'" for name in not_finite) if not_finite else "",
        "tables": [_agreement_table(name, one) for name, one in contents.comparisons.items()],
        "rivals": [_rival_tables(name, one) for name, one in contents.rivals.items()],
    }
    return Section("agreement", "Prediction and measurement", view)


def _agreement_table(name: str, comparison: Comparison) -> dict[str, Any]:
    rows = [_agreement_row(key, one) for key, one in comparison.agreements.items()]
    main = [row for row in rows if not row["proxy"]]
    return {
        "name": name,
        "main": main or rows,
        "proxy": [row for row in rows if row["proxy"]] if main else [],
        "limitations": list(comparison.limitations),
        "resamples": comparison.resamples,
        "permutations": comparison.permutations,
        "seed": comparison.seed,
    }


def _agreement_row(key: str, one: Agreement) -> dict[str, Any]:
    verdict = "better than chance" if one.beats_chance else "no better than chance"
    return {
        "key": key,
        "proxy": key.startswith("proxy_"),
        "meaning": meaning(key),
        "value": one.value,
        "interval": _interval(one),
        "null": one.null,
        "verdict": verdict if one.has_null else DASH,
    }


def _interval(one: Agreement) -> tuple[float, float] | None:
    return (one.low, one.high) if math.isfinite(one.low) else None


def _rival_tables(name: str, rivals: Rivals) -> dict[str, Any]:
    """Rows per kind of items, the best first, and the verdicts (the summary without its own table)."""
    kinds = dict.fromkeys(row.items for row in rivals.rows)
    tables = [(items, [_rival_row(row) for row in rivals.rows if row.items == items]) for items in kinds]
    sentences = [line for line in rivals.summary().splitlines() if not line.startswith(" ")]
    return {"name": name, "tables": tables, "sentences": sentences}


def _rival_row(row: RivalRow) -> dict[str, Any]:
    return {
        "rival": row.rival,
        "meaning": row.meaning,
        "value": row.similarity.value,
        "interval": _interval(row.similarity),
        "null": row.similarity.null,
        "cka": row.cka.value,
        "behind": row.behind.value,
        "without_direction": row.without_direction,
        "is_chance": is_chance(row.similarity),
    }


@dataclass(frozen=True, eq=False)
class GroupCosines:
    """Mean cosine between the contexts of each group (g), and between them and the contexts of other groups (g)."""

    inside: Float
    outside: Float


def collapse(page: Page) -> Section:
    """Support groups with their tokens, and how similar their contexts are."""
    contents = page.contents
    groups = contents.stats.groups
    several = np.flatnonzero(collapsing_groups(contents))
    largest = several[np.argsort(-groups.multiplicity[several], kind="stable")]
    measured = {name: group_cosines(run, contents) for name, run in contents.runs.items() if is_finite(run)}
    view = {
        "groups": [_group(contents, int(g), measured) for g in largest[:GROUPS]],
        "several": int(several.size),
        "total": groups.count,
        "contexts": int(groups.multiplicity[several].sum()),
        "m": contents.stats.m,
        "counted": contents.stats.has_counts,
        "overall": [_overall(name, one, several, groups.multiplicity) for name, one in measured.items()],
        "scatter": _scatter(contents, measured, largest) if several.size and measured else None,
    }
    return Section("collapse", "Which contexts collapsed", view)


def group_cosines(run: Run, contents: Contents) -> GroupCosines:
    """Mean cosines of a run within and between groups; NaN where a group has no pair, or there is no other group."""
    groups = contents.stats.groups
    n, m = groups.multiplicity.astype(np.float64), float(groups.label.size)
    directions = unit_columns(run.H)
    sums = group_sums(directions, groups.label)
    square = np.bincount(groups.label, np.sum(directions**2, axis=0))
    total = sums.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = (np.sum(sums**2, axis=0) - square) / (n * (n - 1.0))
        outside = (total @ sums - np.sum(sums**2, axis=0)) / (n * (m - n))
    return GroupCosines(np.where(n > 1, inside, np.nan), np.where(n < m, outside, np.nan))


def _group(contents: Contents, g: int, measured: Mapping[str, GroupCosines]) -> dict[str, Any]:
    stats = contents.stats
    members = stats.groups.members(g)
    frequent = members[np.argsort(-stats.pi[members], kind="stable")]
    tokens = support_tokens(contents, g)
    return {
        "size": int(members.size),
        "share": percent(float(stats.pi[members].sum())),
        "contexts": [stats.context_text(int(j)) for j in frequent[:SHOWN_CONTEXTS]],
        "more_contexts": max(0, int(members.size) - SHOWN_CONTEXTS),
        "tokens": tokens[:SHOWN_TOKENS],
        "more_tokens": max(0, len(tokens) - SHOWN_TOKENS),
        "cosines": [(run, float(one.inside[g]), float(one.outside[g])) for run, one in measured.items()],
    }


def support_tokens(contents: Contents, g: int) -> list[str]:
    """Tokens of a group's support, the most frequent first."""
    stats = contents.stats
    members = stats.groups.members(g)
    weight = np.asarray(stats.P[:, members] @ stats.pi[members]).ravel()
    rows = stats.groups.S.indices[stats.groups.S.indptr[g] : stats.groups.S.indptr[g + 1]]
    return [stats.vocabulary[int(z)] for z in rows[np.argsort(-weight[rows], kind="stable")]]


def _overall(name: str, one: GroupCosines, several: Int, n: Int) -> dict[str, Any]:
    """Mean over pairs inside groups, and mean of the groups' cosines with others, weighted by contexts."""
    if not several.size:
        return {"run": name, "inside": float("nan"), "outside": float("nan")}
    pairs = n[several] * (n[several] - 1.0)
    outside = one.outside[several]
    return {
        "run": name,
        "inside": float(np.average(one.inside[several], weights=pairs)),
        "outside": float(np.average(outside, weights=n[several])) if np.isfinite(outside).all() else float("nan"),
    }


def _scatter(contents: Contents, measured: Mapping[str, GroupCosines], groups: Int) -> Picture | None:
    total, groups = groups.size, groups[:POINTS]
    if not np.isfinite(next(iter(measured.values())).outside[groups]).all():
        return None
    names = [_hover_text(contents, int(g)) for g in groups]
    points = [Points(name, one.outside[groups], one.inside[groups], names) for name, one in measured.items()]
    panel = ScatterPanel(
        "Support groups of two or more contexts",
        "mean cosine with contexts of other groups",
        "mean cosine within the group",
        points,
    )
    largest = f" The {POINTS} largest groups are shown." if total > POINTS else ""
    caption = (
        "Each point is a support group. Theory predicts all of them at the top: cosine 1 within the group, whatever "
        "the tokens of its contexts are and however often each token follows. Hover over a point to read its "
        f"contexts and next tokens.{largest}"
    )
    return picture(Figure("collapse", "Cosines within and between groups", caption, [panel], columns=1), names=False)


def _hover_text(contents: Contents, g: int) -> str:
    stats = contents.stats
    contexts = [shown_name(stats.context_text(int(j)), 40) for j in stats.groups.members(g)[:3]]
    tokens = [shown_name(token, 20) for token in support_tokens(contents, g)[:6]]
    return f"{' | '.join(contexts)} → {', '.join(tokens)}"
