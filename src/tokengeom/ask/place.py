"""`Placed`: where contexts lie that the text may not have, and which tokens are predicted to follow them.

``h(x) = f(A phi(x))``,   ``L(x) = W h(x)``

with the last norm f of a simulation, and the identity for a prediction,
for the features ``phi(x)`` of a context x that the contexts of the text have too. A feature that none of them has says
nothing, and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.ask.explain import PULLED_TOWARDS, AnswersQuestions
from tokengeom.ask.item_report import Group, ItemReport, Logit, SharedFeatures, Support
from tokengeom.ask.item_search import Item, names_of, quoted
from tokengeom.ask.named_vectors import require_own, support_sizes
from tokengeom.ask.neighbours import Neighbour, Neighbours, checked_number, has_merged
from tokengeom.core.errors import InputError, TokenizerError
from tokengeom.core.numerics import Float, Int, log_sum_exp
from tokengeom.core.settings import is_several, takes, whole_number
from tokengeom.results.contract import data_frame
from tokengeom.statistics.windows import ABSENT, START

if TYPE_CHECKING:
    from pandas import DataFrame
    from scipy.sparse import csc_array

    from tokengeom.statistics.context_features import ContextFeatures
    from tokengeom.statistics.next_token import NextTokenStatistics

COUNTED, NEVER, CUT = "counted", "never", "cut or never"
"""Whether a context is among the statistics; whether it is not in the text, or may have been cut away."""
Contexts = str | Sequence[str] | Sequence[Sequence[int]] | NDArray[Any]
UNKNOWN = -3
"""Stands for a token that the text does not have."""
OF_FEATURES = (
    "Its vector is that of its features, which the contexts that have them share: it has no next tokens of its own."
)
NOT_MEASURED = "Runs and models are not shown beside it: their vectors are those of counted contexts."


@dataclass(frozen=True, eq=False, repr=False)
class Placed:
    """Contexts and their places.

    ``texts``, ``names``
        What was given, and the text of each context: the end of a text that has more tokens than a context.
    ``seen``, ``index``
        Whether each was counted, is not in the text (never), or may have been cut away; and its number among the
        counted contexts, or -1.
    ``H``, ``logits``
        Embeddings, d x k, and logits of all tokens, V x k. Where none of a context's features is known H is 0, and
        logits are equal, which predicts nothing.
    ``phi``
        Features that the contexts share with those of the text, F x k.
    ``of``, ``stats``
        The geometry, and the statistics that name its tokens and contexts.
    """

    texts: tuple[str, ...]
    names: tuple[str, ...]
    seen: tuple[str, ...]
    index: tuple[int, ...]
    H: Float
    logits: Float
    phi: csc_array
    of: PlacesContexts
    stats: NextTokenStatistics

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Placed({len(self)} contexts: {', '.join(self.names[:3])}{', ...' if len(self) > 3 else ''})"

    @property
    def probabilities(self) -> Float:
        """Predicted probabilities of the next token, V x k; all equal where nothing is predicted."""
        return np.asarray(np.exp(self.logits - log_sum_exp(self.logits)[None, :]))

    def is_predicted(self, i: int = 0) -> bool:
        """Whether anything is predicted for context i: one of its features is known."""
        return bool(self._features_of(i).nnz)

    @takes()
    def next_tokens(self, i: int = 0, k: int = 10) -> list[tuple[str, float]]:
        """The ``k`` most probable next tokens of context i, with their probabilities; none without a known feature."""
        if not self.is_predicted(i):
            return []
        p = self.probabilities[:, i]
        return [(self.stats.vocabulary[z], float(p[z])) for z in np.argsort(-p, kind="stable")[:k]]

    @takes()
    def neighbours(self, i: int = 0, k: int = 10) -> list[tuple[str, float]]:
        """The ``k`` counted contexts nearest to context i, with their cosines."""
        names = names_of(self.stats, "contexts")
        return [(names[j], cosine) for j, cosine in self._nearest(i, k)]

    def _nearest(self, i: int, k: int) -> list[tuple[int, float]]:
        known, here = self.of.context_vectors, self.of.parts_of(self._features_of(i)).sum(axis=1)
        lengths = np.linalg.norm(known, axis=0) * np.linalg.norm(here)
        cosine = np.where(lengths > 0, (here @ known) / np.where(lengths > 0, lengths, 1.0), -np.inf)
        order = [j for j in np.argsort(-cosine, kind="stable")[: k + 1] if np.isfinite(cosine[j])]
        return [(int(j), float(cosine[j])) for j in order if j != self.index[i]][:k]

    def nearest(self, item: Item, k: int = 10) -> Neighbours:
        """The ``k`` counted contexts nearest to the only context here, which is ``item``: what `neighbours` returns."""
        names, merged = names_of(self.stats, "contexts"), has_merged(self.stats, "contexts")
        sizes = support_sizes(self.stats, "contexts") - merged
        near = self._nearest(0, checked_number(k))
        rows = tuple(Neighbour(names[j], j, cosine, None, int(sizes[j])) for j, cosine in near)
        total = int((np.linalg.norm(self.of.context_vectors, axis=0) > 0).sum())
        return Neighbours(item, rows, total, 0, (item.note,), merged=bool(merged.any()))

    def report(self, item: Item, source: str, k: int, measured: Mapping[str, object]) -> ItemReport:
        """What is known about the only context here, which is ``item``: what `explain` returns."""
        nearest, phi, logits = self.nearest(item, k), self._features_of(0), self.logits[:, 0]
        p, centred, names = self.probabilities[:, 0], logits - logits.mean(), self.stats.vocabulary
        first = np.argsort(-p, kind="stable")[:k]
        after = (Logit(names[z], False, 0.0, {"logit": float(centred[z]), "probability": float(p[z])}) for z in first)
        itself = shared_features(self.of, phi, phi, item.name, self.stats.text)
        return ItemReport(
            item,
            source,
            share=0.0,
            count=0 if self.stats.has_counts else None,
            support=Support(0, ()),
            group=Group(0, ()),
            companions=(),
            logits=tuple(after),
            context_gap=None,
            neighbours=nearest,
            pulled=(),
            measured={},
            notes=(OF_FEATURES, *([NOT_MEASURED] if measured else [])),
            features=(itself, *(self.why(row.index) for row in nearest.rows[:PULLED_TOWARDS])),
        )

    def shared_features(self, i: int = 0) -> list[tuple[str, float]]:
        """Features of context i that the text has, and what each gives of its squared length; they sum to 1."""
        phi = self._features_of(i)
        parts = self.of.parts_of(phi)
        here = parts.sum(axis=1)
        shares = parts.T @ here / max(float(here @ here), 1e-300)
        order = np.argsort(-np.abs(shares), kind="stable")
        return [(self.of.features.name(int(phi.indices[n]), self.stats.text), float(shares[n])) for n in order]

    def why(self, j: int, i: int = 0) -> SharedFeatures:
        """The cosine of context i with context j of the statistics, by the features that they share."""
        j = _number("j", j, self.stats.m, "a context of the statistics, in their order")
        name = names_of(self.stats, "contexts")[j]
        return shared_features(self.of, self._features_of(i), self.of.features.matrix[:, [j]], name, self.stats.text)

    def _features_of(self, i: int) -> csc_array:
        return self.phi[:, [_number("i", i, len(self), "one of these contexts, in the order in which they were given")]]

    def sentence(self, i: int = 0) -> str:
        """Whether context i was counted and whether anything is predicted for it, in words."""
        nothing = "" if self.is_predicted(i) else " None of its features is in the text: nothing is predicted for it."
        name = quoted(self.names[i])
        longer = "" if self.names[i] == self.texts[i] else f"The last tokens of {quoted(self.texts[i])} count: "
        if self.seen[i] == COUNTED:
            return f"{longer}{name} is a context of these statistics."
        if self.seen[i] == NEVER:
            return f"{longer}{name} is not in the text.{nothing}"
        kept, all_of = self.stats.m, self.stats.effects[0].before.m
        cut = f"or was cut away: the cuts kept {kept:,} of its {all_of:,} contexts."
        return f"{longer}{name} is not in the text, {cut}{nothing}"

    @takes()
    def to_dict(self, k: int = 10) -> list[dict[str, Any]]:
        """For each context: whether it was counted, its features, neighbours and next tokens."""
        return [
            {
                "context": name,
                "seen": self.seen[i],
                "sentence": self.sentence(i),
                "predicted": self.is_predicted(i),
                "features": [{"name": feature, "share": share} for feature, share in self.shared_features(i)],
                "neighbours": [{"name": other, "cosine": cosine} for other, cosine in self.neighbours(i, k)],
                "next_tokens": [{"token": token, "probability": p} for token, p in self.next_tokens(i, k)],
            }
            for i, name in enumerate(self.names)
        ]

    @takes()
    def to_frame(self, k: int = 10) -> DataFrame:
        """Data frame with one row per context and predicted next token."""
        rows = [(name, *pair) for i, name in enumerate(self.names) for pair in self.next_tokens(i, k)]
        return data_frame(rows, columns=["context", "token", "probability"])


class PlacesContexts(AnswersQuestions):
    """A geometry in which contexts have the vectors of their features: it places contexts of any text."""

    if TYPE_CHECKING:

        @property
        def context_vectors(self) -> Float:
            """Vectors of the counted contexts whose cosines are compared, d x m."""

        @property
        def features(self) -> ContextFeatures:
            """The features."""

        def embeddings_of(self, Phi: csc_array) -> Float:
            """Embeddings of contexts with these features (F x k), d x k, as H has those of the counted ones."""

        def logits_of(self, Phi: csc_array) -> Float:
            """Logits of contexts with these features (F x k), V x k."""

        def parts_of(self, phi: csc_array) -> Float:
            """What each feature of one context (F x 1) adds to its vector, d x features; their sum is the vector."""

    @takes()
    def place(self, texts: Contexts, stats: NextTokenStatistics | None = None) -> Placed:
        """Where contexts lie that the text may not have: their embeddings, neighbours and next tokens.

        ``texts`` are texts of contexts, of which the last tokens count, or token ids, one context per row.
        """
        named, length = self._named_by(stats), self.features.length
        given: Any = texts
        require_own(self, named)
        given = list(given) if is_several(given) else [given]
        if given and all(isinstance(text, str) for text in given):
            ids = [_tokens(text, named) for text in given]
            cut = [row[-length:] if len(row) > length and UNKNOWN not in row[-length:] else None for row in ids]
            names = [text if end is None else named.text(end) for text, end in zip(given, cut, strict=True)]
            contexts = np.array([([ABSENT] * length + row)[len(row) :] for row in ids], np.int64)
        else:
            contexts = _checked_ids(given, named)
            given = names = [named.text(row) for row in contexts.tolist()]
        phi = self.features.of(contexts)
        index = [_index(row, named) for row in contexts]
        seen = [COUNTED if j >= 0 else _unseen(row, named) for row, j in zip(contexts, index, strict=True)]
        known = self.embeddings_of(phi), self.logits_of(phi), phi
        return Placed(tuple(map(str, given)), tuple(names), tuple(seen), tuple(index), *known, self, named)

    def _placed_item(self, stats: NextTokenStatistics, text: str) -> Item | None:
        if stats.tokenizer is None or not self.features.weights or set(_tokens(text, stats)) == {UNKNOWN}:
            return None
        placed = self.place(text, stats)
        if placed.index[0] >= 0:
            return Item("contexts", placed.index[0], placed.names[0], placed.sentence())
        return Item("contexts", -1, placed.names[0], placed.sentence(), placed) if placed.is_predicted() else None

    def _features(self, item: Item, near: Sequence[int], stats: NextTokenStatistics) -> tuple[SharedFeatures, ...]:
        if item.items == "tokens":
            return ()
        names, Phi = names_of(stats, "contexts"), self.features.matrix
        return tuple(
            shared_features(self, Phi[:, [item.index]], Phi[:, [other]], names[other], stats.text)
            for other in (item.index, *near)
        )


def shared_features(
    of: PlacesContexts, first: csc_array, second: csc_array, name: str, text: Callable[[list[int]], str]
) -> SharedFeatures:
    """The cosine of two contexts, given by their columns of Phi, as a sum over the features that both have."""
    ours, theirs = of.parts_of(first), of.parts_of(second)
    h, k = ours.sum(axis=1), theirs.sum(axis=1)
    size = max(float(np.linalg.norm(h) * np.linalg.norm(k)), 1e-300)
    both, place, other = np.intersect1d(first.indices, second.indices, return_indices=True)
    parts = (ours[:, place] * theirs[:, other]).sum(axis=0) / size
    order = np.argsort(-parts, kind="stable")
    rows = ((of.features.kind(int(both[n])), of.features.name(int(both[n]), text), float(parts[n])) for n in order)
    cosine = float(h @ k) / size
    return SharedFeatures(name, cosine, tuple(rows), cosine - float(parts.sum()), of.features.kinds)


def _number(name: str, given: int, count: int, what: str) -> int:
    """A number from 0 to count - 1."""
    number = whole_number(name, given)
    if not 0 <= number < count:
        raise InputError(f"{name} must be the number of {what}: 0 to {count - 1:,}; got {number}.")
    return number


def _checked_ids(given: list[Any], stats: NextTokenStatistics) -> Int:
    """Token ids, one context per row; anything else is refused."""
    try:
        ids = np.asarray(given)
    except ValueError:
        ids = np.empty(0)
    if ids.ndim != 2 or ids.dtype.kind not in "iu" or 0 in ids.shape:
        raise InputError(
            "Contexts are placed by their texts, such as place('up on the hill') or place(['a b', 'c d']), or by token "
            "ids with one context per row and as many in each, such as place([[3, 5], [5, 8]]); got "
            f"{f'something of type {type(given[0]).__name__}' if given else 'no context'}."
        )
    known = 0 if stats.contexts is None else int(stats.contexts.max()) + 1
    size = known if stats.tokenizer is None else max(stats.tokenizer.size, known)
    unknown = ids[(ids < ABSENT) | (ids >= size)]
    if unknown.size:
        raise InputError(
            f"Token ids must be from 0 to {size - 1:,}, or {START} for the start of a document, or {ABSENT} for no "
            f"token; got {int(unknown[0])}. Contexts with tokens that the text does not have are given as texts."
        )
    return ids.astype(np.int64)


def _tokens(text: str, stats: NextTokenStatistics) -> list[int]:
    """Tokens of a text; of one that has unknown ones, word by word, with `UNKNOWN` for them."""
    if stats.tokenizer is None:
        raise InputError("These statistics have no tokenizer to read a text with: give an array of token ids instead.")
    try:
        ids = [int(token) for token in stats.tokenizer.encode([text])[0]]
    except TokenizerError:
        words = text.split()
        ids = [token for word in words for token in _tokens(word, stats)] if len(words) > 1 else [UNKNOWN]
    if not ids:
        raise InputError(f"A context must have at least one token; got {text!r}.")
    return ids


def _index(context: Int, stats: NextTokenStatistics) -> int:
    """Number of a context among the counted ones; -1 where it is not one."""
    same = np.flatnonzero([] if stats.contexts is None else (stats.contexts == context).all(axis=1))
    return int(same[0]) if same.size else -1


def _unseen(context: Int, stats: NextTokenStatistics) -> str:
    cut = bool(stats.effects) and stats.effects[0].before.m > stats.m
    return CUT if cut and UNKNOWN not in context else NEVER
