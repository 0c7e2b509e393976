"""Explore: places, neighbours and disagreements of every token and context, as compact data for the page's script.

Sources are the prediction along the loss, the prediction in the limit, the predictions at the losses of the models, and
the models. Embeddings are determined only up to a rotation, so every source is rotated to fit one of them best, and
all are shown on the three leading axes of that one. Cosines do not depend on this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.ask.neighbours import EmbeddedItems
from tokengeom.core.factors import Factors, HasFactors
from tokengeom.core.numerics import Float, Int, seen_tokens
from tokengeom.figures.ordering import FeatureOrder
from tokengeom.page.formatting import fixed
from tokengeom.page.read_model import ReadModel
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections.base import Page, Section
from tokengeom.page.sections.corpus import shares_in_text
from tokengeom.page.sections.explorer_numbers import (
    COSINE_STEP,
    NearestItems,
    best_rotation,
    compared_items,
    cosines_between,
    leading_axes,
    nearest_items,
    on_three_axes,
    pack,
    unit_rows,
)
from tokengeom.page.sections.explorer_ties import tied_features
from tokengeom.page.sections.figures import how_many, judged_prediction
from tokengeom.page.sections.fit_checks import is_finite
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.run import Run

MOST_TOKENS, MOST_CONTEXTS = 2_000, 4_000
"""Tokens and contexts in the explorer; of more, the most frequent."""
HEAT = 48
"""Items in a heat-map."""
CONCEPTS, TYPICAL = 12, 60
"""Concepts, and the typical tokens and contexts of each side of one."""
PLACE_STEP, SHARE_STEP = 1 / 32_000, 2e-5
LOSS_ENTRIES = 50_000_000
"""Logits up to which the loss of every context is computed."""
KINDS = ("tokens", "contexts")
PAIRS = 10
"""Most similar pairs that are listed."""


def explore(page: Page) -> Section | None:
    """The explorer and its data; None where no geometry was predicted and none was measured."""
    explorer = Explorer(page.contents, page.order)
    data = explorer.data()
    if data is None:
        return None
    judged = explorer.judged
    vectors = EmbeddedItems(Factors.of(judged.given), page.contents.stats)
    pairs = {"contexts": vectors.pairs("contexts", PAIRS), "tokens": vectors.pairs("tokens", PAIRS)}
    view = {"data": data, "pairs": pairs, "of": judged.label, "merged": page.contents.stats.other}
    return Section("explore", "Explore", view)


@dataclass(frozen=True, eq=False)
class Source:
    """One geometry: unit vectors of the chosen tokens and contexts, as rows.

    ``given``          The prediction or run with all its vectors.
    ``kind``           "path", "limit", "proxy", "at-loss" or "model".
    ``gap``, ``rank``  Loss gap in nats, 0 in the limit, and the number of directions; None where they have no meaning.
    ``loss``           Of a model, how far its loss on each context is above the entropy of that context; None where not
                       computed.
    """

    given: HasFactors
    key: str
    label: str
    kind: str
    gap: float | None
    rank: int | None
    tokens: NDArray[np.float32]
    contexts: NDArray[np.float32]
    loss: Float | None = None

    @cached_property
    def stacked(self) -> NDArray[np.float32]:
        """Tokens and contexts below each other, each kind with a total weight of 1."""
        parts = (getattr(self, kind) for kind in KINDS)
        return np.concatenate([part / np.sqrt(max(len(part), 1), dtype=np.float32) for part in parts])


class Explorer:
    """Everything behind the explorer of one page."""

    def __init__(self, contents: ReportContents, order: FeatureOrder) -> None:
        stats = contents.stats
        self.contents, self.stats, self.order = contents, stats, order
        self.seen = seen_tokens(stats.P)
        share = np.asarray(stats.P @ stats.pi).ravel()
        frequent = self.seen[np.argsort(-share[self.seen], kind="stable")]
        self.share_of_tokens = share * (stats.n / stats.text_windows if stats.has_counts else 1.0)
        self.chosen = {"tokens": frequent[:MOST_TOKENS], "contexts": stats.most_frequent(MOST_CONTEXTS)}
        self.sources = list(self._sources())

    def data(self) -> dict[str, Any] | None:
        """What the page's script reads; None where nothing has a direction."""
        if not self.sources:
            return None
        places, compared = self._places(), list(self._compared())
        nearest = {
            source.key: {kind: nearest_items(getattr(source, kind)) for kind in KINDS} for source in self.sources
        }
        return {
            "counted": self.stats.has_counts,
            "summary": self._summary(),
            "rotation": self._rotation(),
            "tokens": self._tokens(),
            "contexts": self._contexts(),
            "follows": self._follows(),
            "sources": [self._source(source, places[source.key], nearest[source.key]) for source in self.sources],
            "path": self._path(),
            "models": [self._model(name, model, predicted, nearest) for name, model, predicted in compared],
            "heat": {kind: self._heat_items(kind).tolist() for kind in KINDS},
            "concepts": self._concepts(),
            "ties": tied_features(self.contents.ties, self.stats, self.chosen["contexts"]),
        }

    def _sources(self) -> Iterator[Source]:
        contents, prediction = self.contents, self.contents.prediction
        for place, point in enumerate(contents.path, start=1):
            label = f"predicted at a loss gap of {fixed(point.loss_gap, 3)} nats"
            yield self._made(f"path-{place}", label, "path", point, point.loss_gap, point.rank)
        for name in contents.runs:
            for at in contents.at_loss.get(name, ()):
                norm = "γ₂ norm" if at.norm == "gamma2" else "nuclear norm"
                label = f"predicted at the loss of {name} ({norm})"
                yield self._made(f"at-loss {at.norm} {name}", label, "at-loss", at, at.loss_gap, at.rank)
        if isinstance(prediction, FeaturePrediction):
            if prediction.rank:
                yield self._made("limit", "predicted in the limit", "limit", prediction, 0.0, prediction.rank)
        else:
            yield self._made("proxy", "predicted by the proxy", "proxy", prediction, None, None)
        for name, run in contents.runs.items():
            if is_finite(run):
                model = self._made(f"model {name}", name, "model", run, run.loss_gap, None)
                yield replace(model, loss=self._losses(run))

    def _made(self, key: str, label: str, kind: str, given: HasFactors, gap: float | None, rank: int | None) -> Source:
        W = given.W[self.chosen["tokens"]] - given.W[self.seen].mean(axis=0)
        H = given.H[:, self.chosen["contexts"]]
        return Source(given, key, label, kind, gap, rank, unit_rows(W), unit_rows(H.T))

    def _losses(self, run: Run | ReadModel) -> Float | None:
        """``KL(P_j || softmax(logits_j))`` of the chosen contexts."""
        columns, stats = self.chosen["contexts"], self.stats
        if run.W.shape[0] * columns.size > LOSS_ENTRIES:
            return None
        factors = Factors(run.W, run.H[:, columns], run.bias if isinstance(run, ReadModel) else None)
        L = factors.logits
        L -= L.max(axis=0)
        P = stats.P[:, columns].tocoo()
        rest = np.log(np.exp(L).sum(axis=0))
        terms = P.data * (np.log(P.data) - L[P.coords[0], P.coords[1]] + rest[P.coords[1]])
        return np.maximum(np.bincount(P.coords[1], weights=terms, minlength=columns.size), 0.0)

    # ---- where things lie -------------------------------------------------------------------------------------------
    @cached_property
    def judged(self) -> Source:
        """The source that the others are rotated to: the prediction that is judged, else the last prediction."""
        for _, _, predicted in self._compared():
            return predicted
        return next((source for source in reversed(self.sources) if source.kind != "model"), self.sources[0])

    def _places(self) -> dict[str, dict[str, NDArray[np.float32]]]:
        """Coordinates of every item of every source on the leading axes of the reference."""
        reference = self.judged.stacked
        axes = leading_axes(reference)
        places = {}
        for source in self.sources:
            onto = axes if source is self.judged else best_rotation(source.stacked, reference) @ axes
            places[source.key] = {kind: on_three_axes(getattr(source, kind) @ onto) for kind in KINDS}
        return places

    def _rotation(self) -> str:
        return (
            "Embeddings are determined only up to a rotation: each geometry was rotated to fit the geometry "
            f"“{self.judged.label}” best, and all are shown on its leading axes. Lengths are left out: only "
            "directions are compared."
        )

    def _path(self) -> list[int]:
        """Sources along the loss, from the largest gap to the limit."""
        on_path = [
            (place, source)
            for place, source in enumerate(self.sources)
            if source.kind in ("path", "limit") or source.key.startswith("at-loss nuclear")
        ]
        if not on_path:
            return [place for place, source in enumerate(self.sources) if source.kind != "model"][:1]
        return [place for place, source in sorted(on_path, key=lambda entry: -(entry[1].gap or 0.0))]

    def _position(self, name: str, gap: float) -> float:
        """The place of a model's loss gap on the path, fractional between two of its points."""
        path = self._path()
        own = next((place for place in path if self.sources[place].key == f"at-loss nuclear {name}"), None)
        if own is not None:
            return float(path.index(own))
        gaps = [self.sources[place].gap or 0.0 for place in path]
        after = next((k for k, position in enumerate(gaps) if position <= gap), len(gaps) - 1)
        if after == 0 or gaps[after] <= 0.0 or gaps[after] == gap:
            return float(after) if after == 0 or gaps[after] == gap else after - 0.5
        share = np.log(gaps[after - 1] / gap) / np.log(gaps[after - 1] / gaps[after])
        return round(float(after - 1 + share), 3)

    # ---- models and their predictions -------------------------------------------------------------------------------
    def _compared(self) -> Iterator[tuple[str, Source, Source]]:
        """Name of each model, the last one trained first, with the prediction that it is judged by."""
        by_key = {source.key: source for source in self.sources}
        last = next((source for source in self.sources if source.kind in ("limit", "proxy")), None)
        for name in reversed(list(self.contents.runs)):
            model, at = by_key.get(f"model {name}"), judged_prediction(self.contents, name)
            predicted = last if at is None else by_key[f"at-loss {at.norm} {name}"]
            if model is not None and predicted is not None:
                yield name, model, predicted

    def _model(
        self, name: str, model: Source, predicted: Source, nearest: Mapping[str, Mapping[str, NearestItems]]
    ) -> dict[str, Any]:
        assert model.gap is not None, "a model has a loss"
        compared = {
            kind: compared_items(
                getattr(predicted, kind), getattr(model, kind), nearest[predicted.key][kind], nearest[model.key][kind]
            )
            for kind in KINDS
        }
        return {
            "source": self.sources.index(model),
            "predicted": self.sources.index(predicted),
            "label": name,
            "gap": model.gap,
            "position": self._position(name, model.gap),
            **compared,
        }

    # ---- packed parts -----------------------------------------------------------------------------------------------
    def _source(
        self, source: Source, places: Mapping[str, NDArray[np.float32]], nearest: Mapping[str, NearestItems]
    ) -> dict[str, Any]:
        parts = {
            kind: {
                "places": pack(places[kind], "int16", PLACE_STEP),
                "neighbours": pack(nearest[kind].items, "uint16"),
                "cosines": pack(nearest[kind].cosines, "int16") | {"step": COSINE_STEP},
            }
            for kind in KINDS
        }
        return {
            **{name: getattr(source, name) for name in ("key", "label", "kind", "gap", "rank")},
            **parts,
            "heat": {
                kind: pack(cosines_between(getattr(source, kind)[self._heat_items(kind)]), "int16", COSINE_STEP)
                for kind in KINDS
            },
            "loss": None if source.loss is None else pack(source.loss, "float32"),
        }

    def _heat_items(self, kind: str) -> Int:
        """Places, among the chosen ones, of the most frequent items, in the order of the page's heat-maps."""
        ordered = self.order.tokens.indices if kind == "tokens" else self.order.contexts.indices
        place = {int(item): k for k, item in enumerate(self.chosen[kind][:HEAT])}
        return np.array([place[int(item)] for item in ordered if int(item) in place], dtype=np.int64)

    def _summary(self) -> str:
        totals = {"tokens": int(self.seen.size), "contexts": self.stats.m}
        cut = any(self.chosen[kind].size < totals[kind] for kind in KINDS)
        parts = [how_many(self.chosen[kind].size, totals[kind], kind) for kind in KINDS]
        shown = f"{parts[0][0].upper()}{parts[0][1:]} and {parts[1]} are shown"
        return f"{shown}; neighbours are among these." if cut else f"{shown}."

    def _tokens(self) -> dict[str, Any]:
        chosen, stats = self.chosen["tokens"], self.stats
        follows = np.bincount(stats.P.indices, minlength=stats.V)
        return {
            "names": [stats.vocabulary[int(z)] for z in chosen],
            "total": int(self.seen.size),
            "other": next((k for k, z in enumerate(chosen.tolist()) if z == stats.other), None),
            "share": pack(self.share_of_tokens[chosen], "float32"),
            "supports": pack(follows[chosen], "uint32"),
        }

    def _contexts(self) -> dict[str, Any]:
        chosen, stats = self.chosen["contexts"], self.stats
        full = stats.support_sizes[chosen] == stats.V
        return {
            "names": [stats.context_text(int(j)) for j in chosen],
            "total": stats.m,
            "share": pack(shares_in_text(stats)[chosen], "float32"),
            "supports": pack(stats.support_sizes[chosen], "uint32"),
            "group": pack(np.where(full, -1, stats.groups.label[chosen]), "int32"),
        }

    def _follows(self) -> dict[str, Any]:
        """The shown tokens that follow each shown context, by falling share of its windows in the text."""
        stats, columns = self.stats, self.chosen["contexts"]
        place = np.full(stats.V, -1, dtype=np.int64)
        place[self.chosen["tokens"]] = np.arange(self.chosen["tokens"].size)
        P = stats.P[:, columns]
        column = np.repeat(np.arange(columns.size), np.diff(P.indptr))
        token = place[P.indices]
        kept = np.flatnonzero(token >= 0)
        kept = kept[np.lexsort((token[kept], -P.data[kept], column[kept]))]
        starts = np.concatenate([[0], np.cumsum(np.bincount(column[kept], minlength=columns.size))])
        counts = stats.counts[:, columns].data[kept] if stats.has_counts else None
        return {
            "starts": pack(starts, "uint32"),
            "tokens": pack(token[kept], "uint16"),
            "shares": pack((P.data * (1 - stats.left_out[columns][column]))[kept], "uint16", SHARE_STEP),
            "counts": None if counts is None else pack(np.minimum(counts, 2**32 - 1), "uint32"),
        }

    def _concepts(self) -> list[dict[str, Any]]:
        places = {kind: {int(item): k for k, item in enumerate(self.chosen[kind])} for kind in KINDS}

        def shown(sides: tuple[Int, Int], kind: str) -> list[list[int]]:
            return [[places[kind][int(item)] for item in side if int(item) in places[kind]] for side in sides]

        concepts = self.contents.concepts
        strongest = [concepts.concept(k, typical=TYPICAL) for k in range(min(CONCEPTS, len(concepts)))]
        return [
            {"label": f"Concept {concept.index + 1}", **{kind: shown(getattr(concept, kind), kind) for kind in KINDS}}
            for concept in strongest
        ]
