"""The page's heat-maps, and figures as compact data inside the page.

Heat-maps of supports, predictions and runs share one order. They are drawn from factors, so the number of contexts does
not matter.

The matrix of a heat-map becomes 16-bit integers in base64: value = low + integer * step, and -1 for a missing cell. Of
a symmetric matrix only the lower triangle is kept. The page's script unpacks them. Other numbers keep six digits.

Panels are boxes that fill their container (`tokengeom.figures.interactive`), for a page whose width depends on the
reader; the page writes their titles as text that wraps.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, Int, centre_columns, cosines, seen_tokens
from tokengeom.figures.base import Figure, HeatmapPanel
from tokengeom.figures.heatmaps import scaled_logits
from tokengeom.figures.interactive import Box, to_boxes
from tokengeom.figures.ordering import FeatureOrder, Order, order_groups
from tokengeom.figures.prepare import slug
from tokengeom.page.formatting import typeset
from tokengeom.page.read_model import ReadModel
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections.fit_checks import is_finite
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import proxy_factors

if TYPE_CHECKING:
    from markupsafe import Markup


MOST = 400
"""Contexts or tokens in a heat-map: more would be smaller than a pixel, and make the page heavy."""
LEVELS = 32_000
"""Steps between the smallest and the largest number of a packed matrix."""
DIGITS = 6


def page_order(contents: ReportContents) -> FeatureOrder:
    """The most frequent contexts and tokens, by support group and predicted cosine."""
    stats, prediction = contents.stats, contents.prediction
    contexts = np.sort(stats.most_frequent(MOST))
    share = np.asarray(stats.P @ stats.pi).ravel()
    seen = seen_tokens(stats.P).size
    tokens = np.sort(np.argsort(-share, kind="stable")[: min(MOST, seen)])
    rows = (
        prediction.token_groups[tokens]
        if isinstance(prediction, FeaturePrediction)
        else np.arange(tokens.size, dtype=np.int64)
    )
    across = _ordered(contexts, stats.groups.label[contexts].astype(np.int64), prediction.H[:, contexts])
    down = _ordered(tokens, rows, prediction.W[tokens].T)
    names = [stats.context_text(int(j)) for j in across.indices], [stats.vocabulary[int(z)] for z in down.indices]
    return FeatureOrder(across, down, *names, stats.m, seen)


def _ordered(chosen: Int, groups: Int, columns: Float) -> Order:
    ordered = order_groups(groups, cosines(columns))
    return Order(chosen[ordered.indices], ordered.breaks)


def order_sentence(order: FeatureOrder) -> str:
    """How the heat-maps are ordered, and what they leave out."""
    across = how_many(order.contexts.indices.size, order.m, "contexts")
    down = how_many(order.tokens.indices.size, order.V, "tokens")
    return (
        "All heat-maps have the same order: contexts with the same support are adjacent, separated by thin lines where "
        "there is space, and groups with a high predicted cosine are neighbours. They show "
        f"{across} and {down} that follow them."
    )


def how_many(shown: int, total: int, items: str) -> str:
    """``all 12 tokens``, ``the 5 most frequent of 12 tokens``."""
    return f"all {total:,} {items}" if shown == total else f"the {shown:,} most frequent of {total:,} {items}"


def supports_figure(contents: ReportContents, order: FeatureOrder) -> Figure:
    """``S | S~ | L_mm``: from the supports to the geometry."""
    stats, prediction = contents.stats, contents.prediction
    rows, columns = order.tokens.indices, order.contexts.indices
    S = np.asarray(stats.S[rows][:, columns].toarray(), dtype=np.float64)
    logits: dict[str, Float] = {}
    if prediction.W.shape[1]:
        logits["S~: the proxy, columns centred"] = S - stats.support_sizes[columns] / stats.V
        if isinstance(prediction, FeaturePrediction):
            logits["L^mm: the predicted direction"] = centre_columns(prediction.W)[rows] @ prediction.H[:, columns]
    reach = _reach(logits)
    panels = [order.panel("S: which tokens may follow", S, 0.0, 1.0, "1 = may follow")]
    panels += [order.panel(title, L, -reach, reach, "logit") for title, L in logits.items()]
    return Figure("supports", "From supports to geometry", order_sentence(order), panels, columns=3)


def geometry_figures(contents: ReportContents, order: FeatureOrder) -> list[Figure]:
    """Cosines between contexts, between tokens, and logits: each run, the predictions, the proxy."""
    sources, seen = geometry_sources(contents), seen_tokens(contents.stats.P)
    shown = order.tokens.indices, order.contexts.indices
    logits = {name: scaled_logits(factors.part(*shown).logits) for name, factors in sources.items()}
    reach = _reach(logits)
    figure = partial(Figure, columns=min(len(sources), 4))
    return [
        figure(
            "context-cosines",
            "Cosines between contexts",
            "Red: the embeddings of two contexts point in similar directions. White (black on a dark page): they are "
            "orthogonal. Blue: they point in opposite directions.",
            [order.context_cosines(name, factors.H) for name, factors in sources.items()],
        ),
        figure(
            "token-cosines",
            "Cosines between tokens",
            "The same for the embeddings of next tokens, with their mean removed, which softmax ignores.",
            # As they are compared: without the mean of the tokens that follow some context.
            [order.token_cosines(name, factors.W - factors.W[seen].mean(axis=0)) for name, factors in sources.items()],
        ),
        figure(
            "logits",
            "Logits",
            "Logits with the mean of each column removed, each matrix scaled to a root mean square of 1.",
            [order.panel(name, L, -reach, reach, "scaled") for name, L in logits.items()],
        ),
    ]


def geometry_sources(contents: ReportContents) -> dict[str, Factors]:
    """Tokens and contexts of every finite run, each followed by the prediction at its loss; then L_mm and the proxy."""
    sources: dict[str, Factors] = {}
    for name in reversed(list(contents.runs)):
        run = contents.runs[name]
        if is_finite(run):
            sources[name] = Factors(run.W, run.H, run.bias if isinstance(run, ReadModel) else None)
            at = judged_prediction(contents, name)
            if at is not None:
                sources[f"predicted for: {name}"] = Factors(at.W, at.H)
    prediction = contents.prediction
    if isinstance(prediction, FeaturePrediction):
        sources["predicted in the limit: L^mm"] = Factors(prediction.W, prediction.H)
        sources["proxy: S~"] = proxy_factors(prediction.reduction)
    else:
        sources["proxy: S~"] = Factors(prediction.W, prediction.H)
    return {name: factors for name, factors in sources.items() if factors.W.shape[1]}


def judged_prediction(contents: ReportContents, name: str) -> LossPrediction | None:
    """The prediction at the loss that the verdict on a model is about."""
    comparison = contents.comparisons.get(name)
    norm = None if comparison is None else comparison.norm
    return next((prediction for prediction in contents.at_loss.get(name, ()) if prediction.norm == norm), None)


def _reach(matrices: Mapping[str, Float]) -> float:
    """The largest number in matrices, for a scale of colours that they share."""
    return max((float(np.abs(matrix).max(initial=0.0)) for matrix in matrices.values()), default=0.0) or 1.0


@dataclass(frozen=True)
class Scale:
    """Colours that all heat-maps of a picture share, from ``-reach`` to ``reach``."""

    label: str
    reach: float


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure ready for the page.

    ``boxes``  Its panels, each with a name that is unique on the page.
    ``scale``  The colour scale that all boxes share, for the page to draw once; None where each box has its own.
    """

    name: str
    title: str
    caption: str
    columns: int
    boxes: tuple[tuple[str, Box], ...]
    scale: Scale | None = None


def picture(figure: Figure, *, caption: str | None = None, bars: bool = False) -> Picture:
    """Draw the panels of a figure, with ``bars`` curves as bars; the same figure always gets the same names."""
    boxes = to_boxes(figure)
    for box in boxes:
        if bars:
            _as_bars(box.drawn)
        _typeset_labels(box.drawn)
    scale = _shared_scale(figure, boxes)
    keyed = []
    for place, box in enumerate(boxes, start=1):
        mark = sha256(f"{figure.name}/{place}/{box.title}".encode()).hexdigest()[:6]
        keyed.append((f"{slug(figure.name)}-{place}-{mark}", box))
    columns = max(1, min(figure.columns, len(boxes)))
    return Picture(slug(figure.name), figure.title, caption or figure.caption, columns, tuple(keyed), scale)


def _as_bars(drawn: dict[str, Any]) -> None:
    """Turn curves over whole numbers into bars of the same colour."""
    for trace in drawn["data"]:
        trace |= {"type": "bar", "marker": {"color": trace.pop("line")["color"]}, "textposition": "none"}
        del trace["mode"]
    drawn["layout"]["xaxis"].pop("range")
    drawn["layout"] |= {"barmode": "group", "bargap": 0.25, "bargroupgap": 0.05}


def _typeset_labels(drawn: dict[str, Any]) -> None:
    """Typeset the symbols in labels of axes and curves; names of contexts and tokens stay as they are."""
    for axis in ("xaxis", "yaxis"):
        title = drawn["layout"][axis]["title"]
        title["text"] = typeset(title["text"])
    for trace in drawn["data"]:
        if trace.get("name") and trace.get("mode", "").startswith("lines"):
            trace["name"] = typeset(trace["name"])
            trace["text"] = [trace["name"]] * len(trace["x"])


def _shared_scale(figure: Figure, boxes: list[Box]) -> Scale | None:
    """One scale for several heat-maps with the same symmetric range, whose own scales are then left out."""
    panels = [panel for panel in figure.panels if isinstance(panel, HeatmapPanel)]
    heats = [box.drawn["data"][0] for box in boxes]
    ends = {(heat.get("zmin"), heat.get("zmax")) for heat in heats}
    if len(panels) < max(2, len(boxes)) or len(ends) != 1 or heats[0]["zmin"] != -heats[0]["zmax"]:
        return None
    for heat in heats:
        heat["showscale"] = False
    return Scale(panels[0].colour_label, float(heats[0]["zmax"]))


def packed(data: object) -> Markup:
    """Plain data as JSON that is safe inside a script element, whatever text it holds."""
    from markupsafe import Markup

    text = json.dumps(_plain(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray) and value.ndim == 2:
        return _packed_matrix(value)
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def _packed_matrix(values: Any) -> dict[str, Any]:
    matrix = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(matrix)
    low = float(matrix[finite].min()) if finite.any() else 0.0
    high = float(matrix[finite].max()) if finite.any() else 0.0
    step = (high - low) / LEVELS or 1.0
    numbers = np.where(finite, np.round((np.where(finite, matrix, low) - low) / step), -1).astype("<i2")
    symmetric = matrix.shape[0] == matrix.shape[1] and bool((numbers == numbers.T).all())
    kept = numbers[np.tril_indices(matrix.shape[0])] if symmetric else numbers.ravel()
    coded = b64encode(kept.tobytes()).decode("ascii")
    return {"packed": coded, "shape": list(matrix.shape), "low": low, "step": step, "symmetric": symmetric}
