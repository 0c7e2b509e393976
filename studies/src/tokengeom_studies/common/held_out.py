"""Windows that training does not see: documents split into two parts, and the loss on the held-out part.

``loss = -sum_{j,z} c_{jz} log softmax_z(L_j) / sum_{j,z} c_{jz}``

where
    c_jz   held-out windows in which token z follows context j
    L      logits, V x m

Only windows whose context and token occur in training can be evaluated. Pairs that training saw are *known*. A pair
(j, z) with z outside the training support S_j is *new*: training drives its probability to 0, so its loss has no bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np
from scipy.special import logsumexp

from tokengeom import NextTokenStatistics, ReadingSettings, count
from tokengeom.extending import (
    AbstractProgress,
    AbstractTextSource,
    Bool,
    Float,
    InputError,
    Int,
    Probe,
    State,
    WordTokenizer,
    open_corpus,
    stories,
)
from tokengeom_studies.base import Recipe


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out windows of known contexts that end in known tokens, one entry per distinct pair.

    ``column``, ``token``, ``windows``
        Context and token of each pair, as indices into the training statistics, and how often it occurred.
    ``new``
        Whether training never saw the pair.
    ``all_windows``
        Number of held-out windows, evaluated or not.
    """

    column: Int
    token: Int
    windows: Int
    new: Bool
    all_windows: int

    @property
    def n(self) -> int:
        """Number of windows that are evaluated."""
        return int(self.windows.sum())

    @property
    def n_new(self) -> int:
        """Number of evaluated windows whose pair training never saw."""
        return int(self.windows[self.new].sum())

    def losses(self, L: Float) -> dict[str, float]:
        """Mean loss in nats under logits L (V x m): of all windows, of known pairs, and of new pairs if any."""
        each = logsumexp(L, axis=0)[self.column] - L[self.token, self.column]
        parts = {"loss": np.ones_like(self.new), "known": ~self.new, "new": self.new}
        some = {name: part for name, part in parts.items() if part.any()}
        return {name: float(np.average(each[part], weights=self.windows[part])) for name, part in some.items()}

    def known_limit(self, stats: NextTokenStatistics) -> float:
        """Loss of known pairs under the training frequencies, its limit as ``CE -> H``; 0 where there are none."""
        known = ~self.new
        shares = stats.P.toarray()[self.token[known], self.column[known]]
        return float(np.average(-np.log(shares), weights=self.windows[known])) if known.any() else 0.0

    def probe(self) -> dict[str, Probe]:
        """Record the losses as ``held_out.loss``, ``held_out.known`` and ``held_out.new``."""

        def measure(state: State) -> dict[str, float]:
            return self.losses(state.L)

        return {"held_out": measure}


def split_text(recipe: Recipe, progress: AbstractProgress) -> tuple[NextTokenStatistics, HeldOut]:
    """Statistics of the training part of a text, limited as the recipe says, and the windows of the held-out part."""
    kept, rest = count_parts(recipe, progress)
    stats = kept.limited(top_contexts=recipe["contexts"], vocabulary=recipe["vocabulary"])
    return stats, find_windows(stats, rest)


def count_parts(recipe: Recipe, progress: AbstractProgress) -> tuple[NextTokenStatistics, NextTokenStatistics]:
    """Statistics of the training part of a text, and of its held-out part, with one numbering of tokens."""
    documents = _documents(recipe)
    share, number = recipe["held_out"], len(documents)
    held = round(share * number)
    if not 0 < held < number:
        raise InputError(
            f"Both parts need at least one document; got {number} documents and held_out={share}. Give a text of "
            "several documents, or another separator between them, and a share near 0.5."
        )
    order = np.random.default_rng(recipe["seed"]).permutation(number)
    # Both parts share one tokenizer, so that an id means the same token in both.
    tokenizer = WordTokenizer()
    tokenizer.encode(documents)
    tokens = tokenizer.freeze()
    rest, kept = (
        count([documents[i] for i in sorted(part)], context=recipe["context"], tokenizer=tokens, progress=progress)
        for part in (order[:held], order[held:])
    )
    return kept, rest


def find_windows(stats: NextTokenStatistics, rest: NextTokenStatistics) -> HeldOut:
    """The pairs of held-out statistics whose context and token occur in the training statistics."""
    place = {tuple(row): j for j, row in enumerate(np.asarray(stats.contexts).tolist())}
    columns = np.array([place.get(tuple(row), -1) for row in np.asarray(rest.contexts).tolist()], np.int64)
    row_of = {token: z for z, token in enumerate(stats.vocabulary)}
    rows = np.array([row_of.get(token, -1) for token in rest.vocabulary], np.int64)
    column = np.repeat(columns, rest.support_sizes)
    token = rows[rest.counts.indices]
    found = (column >= 0) & (token >= 0)
    if not found.any():
        raise InputError(
            f"No held-out window has one of the {stats.m} contexts and {stats.V} tokens of training. The text is too "
            "short, or its contexts are too long: give more text, or a smaller context."
        )
    column, token = column[found], token[found]
    new = stats.S.toarray()[token, column] == 0
    return HeldOut(column, token, rest.counts.data[found].astype(np.int64), new, rest.n)


def _documents(recipe: Recipe) -> list[str]:
    if not recipe["text"]:
        return list(islice(stories(recipe["seed"]), recipe["stories"]))
    found: list[str] = []
    for source in open_corpus(recipe["text"], ReadingSettings(separator=recipe["separator"])):
        if not isinstance(source, AbstractTextSource):
            raise InputError(f"This study reads text; {source.name} holds token ids. Give the text itself.")
        found += _whole_documents(source)
    return found


def _whole_documents(source: AbstractTextSource) -> list[str]:
    """Documents of a source, which hands over a long one in pieces."""
    found: list[list[str]] = []
    for piece in source.pieces():
        if piece.starts or not found:
            found.append([])
        found[-1].append(piece.text)
    return ["".join(parts) for parts in found]
