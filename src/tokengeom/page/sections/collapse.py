"""Which contexts collapsed together: support groups with their tokens, and how alike their contexts really are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tokengeom.figures.base import Figure, Points, ScatterPanel
from tokengeom.geometry.collapse import group_sums
from tokengeom.numerics import Float, unit_columns
from tokengeom.page.contents import Contents
from tokengeom.page.formatting import name as named
from tokengeom.page.formatting import percent
from tokengeom.page.geometry_figures import is_finite
from tokengeom.page.sections.base import Picture, Reading, Section, picture
from tokengeom.training.run import Run

GROUPS = 12
"""Groups in the table, the largest first."""
POINTS = 300
"""Groups in the figure: more would cover each other, and make the page heavy."""
CONTEXTS = 8
TOKENS = 8


@dataclass(frozen=True, eq=False)
class GroupCosines:
    """Mean cosine between contexts of each group (g), and between them and the contexts of all other groups (g)."""

    inside: Float
    outside: Float


def section(reading: Reading) -> Section:
    """Make the section."""
    contents = reading.contents
    groups = contents.stats.groups
    several = np.flatnonzero(_judged(contents))
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
        "runs": list(measured),
        "scatter": _scatter(contents, measured, largest) if several.size and measured else None,
    }
    return Section("collapse", "Which contexts collapsed together", view)


def group_cosines(run: Run, contents: Contents) -> GroupCosines:
    """Measure a run; NaN where a group has no pair, or there is no other group."""
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


def _judged(contents: Contents) -> Any:
    """Groups of several contexts whose support is not the whole vocabulary: those that theory says collapse."""
    groups = contents.stats.groups
    return (groups.multiplicity > 1) & (np.diff(groups.S.indptr) < contents.stats.V)


def _group(contents: Contents, g: int, measured: dict[str, GroupCosines]) -> dict[str, Any]:
    stats = contents.stats
    members = stats.groups.members(g)
    common = members[np.argsort(-stats.pi[members], kind="stable")]
    tokens = support_tokens(contents, g)
    return {
        "size": int(members.size),
        "share": percent(float(stats.pi[members].sum())),
        "contexts": [stats.context_text(int(j)) for j in common[:CONTEXTS]],
        "more_contexts": max(0, int(members.size) - CONTEXTS),
        "tokens": tokens[:TOKENS],
        "more_tokens": max(0, len(tokens) - TOKENS),
        "cosines": [(run, float(one.inside[g]), float(one.outside[g])) for run, one in measured.items()],
    }


def support_tokens(contents: Contents, g: int) -> list[str]:
    """Tokens of a group's support, by how often they follow its contexts."""
    stats = contents.stats
    members = stats.groups.members(g)
    weight = np.asarray(stats.P[:, members] @ stats.pi[members]).ravel()
    rows = stats.groups.S.indices[stats.groups.S.indptr[g] : stats.groups.S.indptr[g + 1]]
    return [stats.vocabulary[int(z)] for z in rows[np.argsort(-weight[rows], kind="stable")]]


def _overall(name: str, one: GroupCosines, several: Any, n: Any) -> dict[str, Any]:
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


def _scatter(contents: Contents, measured: dict[str, GroupCosines], groups: Any) -> Picture | None:
    groups = groups[:POINTS]
    if not np.isfinite(next(iter(measured.values())).outside[groups]).all():
        return None
    shown = f" Shown are the {POINTS} largest." if groups.size == POINTS else ""
    tokens = [_hover(contents, int(g)) for g in groups]
    points = [Points(name, one.outside[groups], one.inside[groups], tokens) for name, one in measured.items()]
    panel = ScatterPanel(
        "Support groups of two contexts or more", "mean cosine with contexts of other groups",
        "mean cosine inside the group", points,
    )  # fmt: skip
    caption = (
        "Each point is a support group. Theory puts every one at the top: cosine 1 inside the group, whatever the "
        "tokens of its contexts and however often each token follows. Point at one to read its contexts and next tokens."
        f"{shown}"
    )
    return picture(Figure("collapse", "Inside groups and between them", caption, [panel], columns=1), tokens=False)


def _hover(contents: Contents, g: int) -> str:
    stats = contents.stats
    contexts = [named(stats.context_text(int(j)), 40) for j in stats.groups.members(g)[:3]]
    tokens = [named(token, 20) for token in support_tokens(contents, g)[:6]]
    return f"{' | '.join(contexts)} → {', '.join(tokens)}"
