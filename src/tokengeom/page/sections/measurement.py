"""What was measured: how training went, agreement with the prediction, and which contexts collapsed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.explained import Lead, RivalRow
from tokengeom.comparison.similarity import group_sums
from tokengeom.comparison.target import MEANINGS, TARGETS, norm_sentence, split_name
from tokengeom.core.factors import HasFactors
from tokengeom.core.numerics import Float, Int, unit_columns
from tokengeom.figures.base import Figure, Panel, Points, ScatterPanel
from tokengeom.figures.comparisons import ITEM_NAMES
from tokengeom.figures.training_curves import feature_training
from tokengeom.page.formatting import DASH, count, explained_share, fixed, listed, number, percent
from tokengeom.page.formatting import name as shown_name
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections.base import Page, Section
from tokengeom.page.sections.corpus import left_out_share, shares_in_text, supports_with_other
from tokengeom.page.sections.figures import Picture, geometry_figures, geometry_sources, order_sentence, picture
from tokengeom.page.sections.fit_checks import collapsing_groups, is_finite
from tokengeom.statistics.next_token import OTHER
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.run import Run

MEASURED = (
    "Measurements of each run during training, by step on a logarithmic axis; losses, norms and distances on F are on "
    "logarithmic axes too, where they are positive."
)
LIMIT = (
    "Theory predicts, for vanishing weight decay: the loss falls to the entropy floor; norms grow without bound; "
    "inside the supports the logits converge to L_in; elsewhere they grow along L_mm, so that cosines between "
    "contexts and between tokens become those of L_mm (agreement 1), and contexts with the same support "
    "collapse (spread 0)."
)
AT_LOSS = (
    " Agreement is the correlation of measured with predicted cosines; solid lines are with the prediction at the loss "
    "of each step, dashed ones with L_mm."
)
NO_DIRECTION = (
    "Theory predicts: the loss reaches the entropy floor, the logits converge to L_in, and no direction diverges."
)
FIRST_CURVES = ("Loss gap", "Contexts: agreement across supports", "Tokens: agreement")
"""Curves of training shown without unfolding."""
GROUPS, FIRST_GROUPS = 12, 6
"""Support groups on the page, the largest first, and those shown without unfolding."""
POINTS = 300
"""Support groups in the scatter plot: more would cover each other and make the page heavy."""
SHOWN_CONTEXTS, SHOWN_TOKENS = 8, 8
AGREEMENTS = {"supports": "support_agreement", "contexts": "context_agreement", "tokens": "token_agreement"}
MAIN = (*AGREEMENTS.values(), "logit_cosine")
SIMILAR = ("support_similarity", "context_similarity", "token_similarity")
OTHERS = ("finite_distance", "collapse")
PAPERS = (TARGETS["limit"], TARGETS["proxy"])
"""Numbers of the table, in its order; the papers' measure is taken in the limit, or with the proxy."""
FIRST_RIVALS = 5
"""Explanations per table shown without unfolding."""


def training(page: Page) -> Section:
    """The end of each run in numbers, and curves."""
    first, more = _curves(page)
    view = {"runs": _run_rows(page.contents), "curves": first, "more_curves": more}
    return Section("training", "How training went", view)


def _curves(page: Page) -> tuple[Picture | None, Picture | None]:
    """The curves that matter most, and the others; None where there are none."""
    runs, prediction = page.contents.trained, page.contents.prediction
    if not any(len(run.trajectory) > 1 for run in runs.values()):
        return None, None
    nothing = isinstance(prediction, FeaturePrediction) and prediction.rank == 0
    predicted = NO_DIRECTION if nothing else LIMIT
    at_loss = AT_LOSS if any("context_agreement" in run.trajectory.names for run in runs.values()) else ""
    figure = feature_training(runs)
    first = [panel for panel in figure.panels if panel.title in FIRST_CURVES]
    more = [panel for panel in figure.panels if panel.title not in FIRST_CURVES]
    if not first or not more:
        return picture(figure, caption=f"{MEASURED} {predicted}{at_loss}"), None
    others = replace(figure, name=f"{figure.name}-more", title="Other measurements during training", panels=more)
    return picture(replace(figure, panels=first), caption=f"{MEASURED}{at_loss}"), picture(others, caption=predicted)


def _run_rows(contents: ReportContents) -> list[dict[str, str]]:
    """Every run, the repeats with other seeds after the one that was compared."""
    return [
        _run_row(f"{name}, training {place}" if place > 1 else name, run)
        for name in reversed(list(contents.trained))
        for place, run in enumerate((contents.trained[name], *contents.repeats.get(name, ())), start=1)
    ]


def _run_row(name: str, run: Run) -> dict[str, str]:
    optimizer = run.settings.get("optimizer", "")
    norms = {"‖W‖": run.W, "‖H‖": run.H}
    return {
        "model": name,
        "d": str(run.H.shape[0]),
        "optimizer": str(optimizer.get("name", "") if isinstance(optimizer, dict) else optimizer),
        "steps": number(run.steps),
        "seconds": number(float(run.seconds)),
        "loss": number(float(run.loss), 5),
        "loss gap": number(float(run.loss_gap)),
        **{name: number(float(np.linalg.norm(X))) if is_finite(run) else DASH for name, X in norms.items()},
        "status": run.status,
    }


def agreement(page: Page) -> Section:
    """Heat-maps in one order, the table of agreement, and rival explanations."""
    contents = page.contents
    not_finite = [name for name, run in contents.runs.items() if not is_finite(run)]
    first, more = _heatmaps(page)
    compared = contents.compared_models
    headlines = [
        {"model": name, "agreement of": ITEM_NAMES[items], **_agreement_row("", agreement, fixed)["scale"]}
        for name in compared
        for items, kind in AGREEMENTS.items()
        if (agreement := contents.comparisons[name].judged_numbers.get(kind)) and math.isfinite(agreement.value)
    ]
    view = {
        "pictures": first,
        "more_pictures": more,
        "both": len(not_finite) < len(contents.runs) and contents.prediction.W.shape[1] > 0,
        "panels": _panels_sentence([box.title for _, box in first[0].boxes]) if first else "",
        "order": order_sentence(page.order),
        "not_finite": listed(f"'{name}'" for name in not_finite) if not_finite else "",
        "headlines": headlines,
        "tables": [_agreement_table(contents, name) for name in compared],
        "rivals": [shown for name in compared if (shown := _rival_tables(contents, name))],
        "first_rivals": FIRST_RIVALS,
    }
    return Section("agreement", "Prediction and measurement", view)


def _heatmaps(page: Page) -> tuple[list[Picture], list[Picture]]:
    """Cosines as measured and as predicted for the first model, and all other heat-maps."""
    sources = list(geometry_sources(page.contents))
    if not sources:
        return [], []
    *cosines, logits = geometry_figures(page.contents, page.order)
    shown, first, more = _essential(sources, page.contents), [], []
    for figure in cosines:
        first.append(picture(_part(figure, [panel for panel in figure.panels if panel.title in shown])))
        rest = [panel for panel in figure.panels if panel.title not in shown]
        if rest:
            title = f"{figure.title}: other models and predictions"
            more.append(picture(replace(_part(figure, rest), name=f"{figure.name}-more", title=title)))
    return first, [*more, picture(logits)]


def _essential(titles: Sequence[str], contents: ReportContents) -> list[str]:
    """Titles of the first model and of the prediction for it: that in the limit, where there is none at its loss."""
    measured = [title for title in titles if title in contents.runs][:1]
    judged = [title for title in titles if title in [f"predicted for: {name}" for name in measured]]
    others = [title for title in titles if title not in contents.runs and not title.startswith("predicted for: ")]
    return [*measured, *(judged or others[:1])]


def _panels_sentence(titles: Sequence[str]) -> str:
    """What the panels of the first heat-maps are, from left to right."""
    if f"predicted for: {titles[0]}" in titles:
        return f"'{titles[0]}' has the prediction at the loss that it reached beside it."
    return "From left to right: what was measured, then what was predicted."


def _part(figure: Figure, panels: Sequence[Panel]) -> Figure:
    """A figure with some of its panels, on one line where there is space."""
    return replace(figure, panels=list(panels), columns=min(len(panels), 4))


def _agreement_table(contents: ReportContents, name: str) -> dict[str, Any]:
    """Agreement at the loss reached, in the limit, then the other norm and the papers' measure."""
    comparison = contents.comparisons[name]
    judged = [] if comparison.target is None else [comparison.target]
    shown = dict.fromkeys([*judged, PAPERS[0], TARGETS["counts"]])
    parts = [
        *((target.phrase, [target.named(kind) for kind in MAIN]) for target in shown),
        ("finite part and collapse", list(OTHERS)),
        (
            "the papers' measure: structural similarity (SIM)",
            [target.named(kind) for target in PAPERS for kind in SIMILAR],
        ),
    ]
    folded = [
        (f"The same {target.phrase}", [target.named(kind) for kind in (*MAIN, *SIMILAR)])
        for key, target in TARGETS.items()
        if target.norm is not None and target not in judged and key in comparison.targets
    ]
    return {
        "name": name,
        "parts": _parts(comparison, parts),
        "folded": _parts(comparison, folded),
        "norms": norm_sentence(comparison.norm, contents.runs[name], comparison.targets),
        "limitations": list(comparison.limitations),
        "permutations": comparison.permutations,
        "runs": comparison.runs,
        "trained": name in contents.trained,
        "seed": comparison.seed,
    }


def _parts(comparison: Comparison, parts: Sequence[tuple[str, Sequence[str]]]) -> list[tuple[str, list[Any]]]:
    """Title and rows of each part that has any."""
    agreements = comparison.agreements
    rows = [
        (title, [_agreement_row(key, agreements[key]) for key in keys if key in agreements]) for title, keys in parts
    ]
    return [(f"{title[:1].upper()}{title[1:]}", some) for title, some in rows if some]


def _agreement_row(key: str, agreement: Agreement, write: Callable[[float], str] = number) -> dict[str, Any]:
    """A number by the name of its columns; ``key`` is empty in a table that does not name it."""
    kind = split_name(key)[1]
    # A distance, of which lower is better, has no such scale.
    attainable = agreement.attainable if agreement.better == "higher" else float("nan")
    return {
        "key": key,
        "meaning": MEANINGS.get(kind, ""),
        "scale": {
            "value": write(agreement.value),
            "95% interval": _interval(agreement, write),
            "mean": write(agreement.mean),
            "floor": write(agreement.floor),
            "attainable": write(attainable),
            "explained": explained_share(agreement) if kind in ("", *AGREEMENTS.values()) else DASH,
        },
        "at_floor": agreement.has_floor and not agreement.above_floor,
    }


def _interval(number: Agreement | Lead, write: Callable[[float], str] = fixed) -> str:
    return f"{write(number.low)} to {write(number.high)}" if math.isfinite(number.low) else DASH


def _rival_tables(contents: ReportContents, name: str) -> dict[str, Any] | None:
    """Kinds of items and their rows, the best first; taken from the comparison if rivals were not computed."""
    table = contents.rivals.get(name)
    rows: Sequence[RivalRow] = contents.comparisons[name].rows if table is None else table.rows
    if not rows:
        return None
    tables = [(said, [_rival_row(row) for row in rows if row.items == items]) for items, said in ITEM_NAMES.items()]
    return {
        "name": name,
        "tables": [(items, shown) for items, shown in tables if shown],
        "runs": contents.comparisons[name].runs,
        "limitations": [] if table is None else list(table.limitations),
    }


def _rival_row(row: RivalRow) -> dict[str, Any]:
    behind = f" ({_interval(row.behind)})" if row.behind.value > 0 else ""
    return {
        "rival": row.rival,
        "meaning": row.meaning,
        "uses": row.uses,
        "parameters": "" if row.parameters == "none" else row.parameters,
        "ours": row.ours,
        "agreement": fixed(row.agreement.fair),
        "explained": explained_share(row.agreement),
        "scale": {
            "95% interval": _interval(row.agreement),
            "behind the best": fixed(row.behind.value) + behind,
            "SIM": fixed(row.similarity.value),
        },
        "without_direction": row.without_direction,
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
    merged = supports_with_other(contents.stats)
    # Contexts whose support has the merged token may be followed by different tokens: they come last.
    shown = sorted(largest[:GROUPS].tolist(), key=lambda g: bool(merged[g]))
    measured = {name: group_cosines(run, contents) for name, run in contents.runs.items() if is_finite(run)}
    view = {
        "groups": [_group(contents, g, measured) for g in shown],
        "first": FIRST_GROUPS,
        "several": int(several.size),
        "total": groups.count,
        "contexts": int(groups.multiplicity[several].sum()),
        "m": contents.stats.m,
        "counted": contents.stats.has_counts,
        "merged": _merged_sentence(several, several[merged[several]], groups.multiplicity),
        "overall": [_overall(name, cosines, several, groups.multiplicity) for name, cosines in measured.items()],
        "scatter": _scatter(contents, measured, largest) if several.size and measured else None,
    }
    return Section("collapse", "Which contexts collapsed", view)


def _merged_sentence(several: Int, merged: Int, multiplicity: Int) -> str:
    """That groups whose support has the token for merged ones need not have the same next tokens; empty without any."""
    if not merged.size:
        return ""
    which = "all" if merged.size == several.size else f"{merged.size:,}"
    contexts = count(int(multiplicity[merged].sum()), "context")
    return (
        f"{OTHER} is in the supports of {which} of these groups ({contexts}): it may be another token after each "
        "context, so that these contexts need not be followed by the same tokens."
    )


def group_cosines(run: HasFactors, contents: ReportContents) -> GroupCosines:
    """Mean cosines of a run within and between groups; NaN where a group has no pair, or there is no other group."""
    groups = contents.stats.groups
    n, m = groups.multiplicity.astype(np.float64), float(groups.label.size)
    directions = unit_columns(run.H)
    sums = group_sums(directions, groups.label.astype(np.int64))
    square = np.bincount(groups.label, np.sum(directions**2, axis=0))
    total = sums.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = (np.sum(sums**2, axis=0) - square) / (n * (n - 1.0))
        outside = (total @ sums - np.sum(sums**2, axis=0)) / (n * (m - n))
    return GroupCosines(np.where(n > 1, inside, np.nan), np.where(n < m, outside, np.nan))


def _group(contents: ReportContents, g: int, measured: Mapping[str, GroupCosines]) -> dict[str, Any]:
    stats = contents.stats
    members = stats.groups.members(g)
    frequent = members[np.argsort(-stats.pi[members], kind="stable")]
    tokens = support_tokens(contents, g)
    return {
        "size": int(members.size),
        "share": percent(float(shares_in_text(stats)[members].sum())),
        "contexts": [stats.context_text(int(j)) for j in frequent[:SHOWN_CONTEXTS]],
        "more_contexts": max(0, int(members.size) - SHOWN_CONTEXTS),
        "tokens": tokens[:SHOWN_TOKENS],
        "more_tokens": max(0, len(tokens) - SHOWN_TOKENS),
        "left_out": left_out_share(stats, members),
        "cosines": [(run, float(cosines.inside[g]), float(cosines.outside[g])) for run, cosines in measured.items()],
    }


def support_tokens(contents: ReportContents, g: int) -> list[str]:
    """Tokens of a group's support, the most frequent first."""
    stats = contents.stats
    members = stats.groups.members(g)
    weight = np.asarray(stats.P[:, members] @ stats.pi[members]).ravel()
    rows = stats.groups.S.indices[stats.groups.S.indptr[g] : stats.groups.S.indptr[g + 1]]
    return [stats.vocabulary[int(z)] for z in rows[np.argsort(-weight[rows], kind="stable")]]


def _overall(name: str, cosines: GroupCosines, several: Int, n: Int) -> dict[str, Any]:
    """Mean over pairs inside groups, and mean of the groups' cosines with others, weighted by contexts."""
    if not several.size:
        return {"run": name, "inside": float("nan"), "outside": float("nan")}
    pairs = n[several] * (n[several] - 1.0)
    outside = cosines.outside[several]
    return {
        "run": name,
        "inside": float(np.average(cosines.inside[several], weights=pairs)),
        "outside": float(np.average(outside, weights=n[several])) if np.isfinite(outside).all() else float("nan"),
    }


def _scatter(contents: ReportContents, measured: Mapping[str, GroupCosines], groups: Int) -> Picture | None:
    total, groups = groups.size, groups[:POINTS]
    if not np.isfinite(next(iter(measured.values())).outside[groups]).all():
        return None
    names = [_hover_text(contents, int(g)) for g in groups]
    points = [
        Points(name, cosines.outside[groups], cosines.inside[groups], names) for name, cosines in measured.items()
    ]
    panel = ScatterPanel(
        "Support groups of two or more contexts",
        "mean cosine with contexts of other groups",
        "mean cosine within the group",
        points,
    )
    largest = f" The {POINTS} largest groups are shown." if total > POINTS else ""
    caption = (
        "Each point is a support group. In the limit of training all are predicted at the top: cosine 1 within the "
        "group, whatever the tokens of its contexts are and however often each token follows. Hover over a point to "
        f"read its contexts and next tokens.{largest}"
    )
    return picture(Figure("collapse", "Cosines within and between groups", caption, [panel], columns=1))


def _hover_text(contents: ReportContents, g: int) -> str:
    stats = contents.stats
    contexts = [shown_name(stats.context_text(int(j)), 40) for j in stats.groups.members(g)[:3]]
    tokens = [shown_name(token, 20) for token in support_tokens(contents, g)[:6]]
    return f"{' | '.join(contexts)} → {', '.join(tokens)}"
