"""`Placed`: where contexts lie that the text may not have, and which tokens are predicted to follow them.

``h(x) = f(A phi(x))``,   ``L(x) = W h(x)``

with the last norm f of a simulation, and the identity for a prediction,
for the features ``phi(x)`` of a context x that the contexts of the text have too. A feature that none of them has says
nothing, and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.ask.explain import AnswersQuestions
from tokengeom.ask.item_report import SharedFeatures
from tokengeom.ask.item_search import names_of, quoted
from tokengeom.core.errors import InputError, TokenizerError
from tokengeom.core.numerics import Float, Int, log_sum_exp
from tokengeom.results.contract import data_frame
from tokengeom.statistics.windows import ABSENT

if TYPE_CHECKING:
    from pandas import DataFrame
    from scipy.sparse import csc_array

    from tokengeom.statistics.context_features import ContextFeatures
    from tokengeom.statistics.next_token import NextTokenStatistics

COUNTED, NEVER, CUT = "counted", "never", "cut or never"
"""Whether a context is among the statistics; whether it is not in the text, or may have been cut away."""
UNKNOWN = -3
"""Stands for a token that the text does not have."""


@dataclass(frozen=True, eq=False, repr=False)
class Placed:
    """Contexts and their places.

    ``names``, ``seen``
        Text of each context, and whether it was counted, is not in the text (never), or may have been cut away.
    ``H``, ``logits``
        Embeddings, d x k, and logits of all tokens, V x k.
    ``phi``
        Features that the contexts share with those of the text, F x k.
    ``of``, ``stats``
        The geometry, and the statistics that name its tokens and contexts.
    """

    names: tuple[str, ...]
    seen: tuple[str, ...]
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
        """Predicted probabilities of the next token, V x k."""
        return np.asarray(np.exp(self.logits - log_sum_exp(self.logits)[None, :]))

    def next_tokens(self, i: int = 0, k: int = 10) -> list[tuple[str, float]]:
        """The ``k`` most probable next tokens of context i, with their probabilities."""
        p = self.probabilities[:, i]
        return [(self.stats.vocabulary[z], float(p[z])) for z in np.argsort(-p, kind="stable")[:k]]

    def neighbours(self, i: int = 0, k: int = 10) -> list[tuple[str, float]]:
        """The ``k`` counted contexts nearest to context i, with their cosines."""
        known, here = self.of.context_vectors, self.H[:, i]
        lengths = np.linalg.norm(known, axis=0) * np.linalg.norm(here)
        cosine = np.where(lengths > 0, (here @ known) / np.where(lengths > 0, lengths, 1.0), -np.inf)
        order = [j for j in np.argsort(-cosine, kind="stable")[: k + 1] if np.isfinite(cosine[j])]
        names = names_of(self.stats, "contexts")
        return [(names[j], float(cosine[j])) for j in order if names[j] != self.names[i]][:k]

    def shared_features(self, i: int = 0) -> list[tuple[str, float]]:
        """Features of context i that the text has, and what each gives of its squared length; they sum to 1."""
        part = slice(self.phi.indptr[i], self.phi.indptr[i + 1])
        rows = self.phi.indices[part]
        size = max(float(self.H[:, i] @ self.H[:, i]), 1e-300)
        shares = self.of.parts_of(self.phi[:, [i]]).T @ self.H[:, i] / size
        text = text_of(self.stats)
        order = np.argsort(-np.abs(shares), kind="stable")
        return [(self.of.features.name(int(rows[n]), text), float(shares[n])) for n in order]

    def why(self, j: int, i: int = 0) -> SharedFeatures:
        """The cosine of context i with context j of the statistics, by the features that they share."""
        other = self.of.features.matrix[:, [j]]
        name = names_of(self.stats, "contexts")[j]
        return shared_features(self.of, self.phi[:, [i]], other, name, text_of(self.stats))

    def sentence(self, i: int = 0) -> str:
        """Whether context i was counted, in words."""
        name = quoted(self.names[i])
        if self.seen[i] == COUNTED:
            return f"{name} is a context of these statistics."
        if self.seen[i] == NEVER:
            return f"{name} is not in the text."
        kept, all_of = self.stats.m, self.stats.effects[0].before.m
        return f"{name} is not in the text, or was cut away: the cuts kept {kept:,} of its {all_of:,} contexts."

    def to_dict(self, k: int = 10) -> list[dict[str, Any]]:
        """For each context: whether it was counted, its features, neighbours and next tokens."""
        return [
            {
                "context": name,
                "seen": self.seen[i],
                "features": [{"name": feature, "share": share} for feature, share in self.shared_features(i)],
                "neighbours": [{"name": other, "cosine": cosine} for other, cosine in self.neighbours(i, k)],
                "next_tokens": [{"token": token, "probability": p} for token, p in self.next_tokens(i, k)],
            }
            for i, name in enumerate(self.names)
        ]

    def to_frame(self, k: int = 10) -> DataFrame:
        """Data frame with one row per context and predicted next token."""
        rows = [(name, *pair) for i, name in enumerate(self.names) for pair in self.next_tokens(i, k)]
        return data_frame(rows, columns=["context", "token", "probability"])


class PlacesContexts(AnswersQuestions):
    """A geometry in which contexts have the vectors of their features: it places contexts of any text."""

    if TYPE_CHECKING:

        @property
        def context_vectors(self) -> Float:
            """Vectors of the counted contexts, d x m."""

        @property
        def features(self) -> ContextFeatures:
            """The features."""

        def logits_of(self, Phi: csc_array) -> Float:
            """Logits of contexts with these features (F x k), V x k."""

        def parts_of(self, phi: csc_array) -> Float:
            """What each feature of one context (F x 1) adds to its vector, d x features; their sum is the vector."""

    def place(self, texts: str | Sequence[str] | Int, stats: NextTokenStatistics | None = None) -> Placed:
        """Where contexts lie that the text may not have: their embeddings, neighbours and next tokens.

        ``texts`` are texts of contexts, of which the last tokens count, or an array of token ids, one context per row.
        """
        named = self._named_by(stats)
        if isinstance(texts, np.ndarray) and texts.ndim == 2:
            contexts, names = texts, tuple(text_of(named)([int(t) for t in row]) for row in texts)
        else:
            names = (texts,) if isinstance(texts, str) else tuple(map(str, texts))
            contexts = np.array([_last_tokens(text, self.features.length, named) for text in names])
        phi = self.features.of(contexts)
        H = np.stack([self.parts_of(phi[:, [i]]).sum(axis=1) for i in range(len(names))], axis=1)
        return Placed(names, tuple(_seen(row, named) for row in contexts), H, self.logits_of(phi), phi, self, named)


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
    return SharedFeatures(name, cosine, tuple(rows), cosine - float(parts.sum()))


def text_of(stats: NextTokenStatistics) -> Callable[[list[int]], str]:
    """From token ids to text."""

    def text(ids: list[int]) -> str:
        known = [token for token in ids if token >= 0]
        return stats.tokenizer.decode(known) if stats.tokenizer is not None else " ".join(map(str, known))

    return text


def _last_tokens(text: str, length: int, stats: NextTokenStatistics) -> NDArray[np.int64]:
    """The last ``length`` tokens of a text; absent ones before a shorter text."""
    if stats.tokenizer is None:
        raise InputError("These statistics have no tokenizer to read a text with: give an array of token ids instead.")
    try:
        ids = [int(token) for token in stats.tokenizer.encode([text])[0]]
    except TokenizerError:
        ids = _known_tokens(text, stats)
    if not ids:
        raise InputError(f"A context must have at least one token; got {text!r}.")
    return np.array(([ABSENT] * length + ids)[-length:], np.int64)


def _known_tokens(text: str, stats: NextTokenStatistics) -> list[int]:
    """Tokens of a text that has unknown ones, which `UNKNOWN` stands for: its words one by one."""
    assert stats.tokenizer is not None
    ids: list[int] = []
    for word in text.split():
        try:
            ids += [int(token) for token in stats.tokenizer.encode([word])[0]]
        except TokenizerError:
            ids.append(UNKNOWN)
    return ids


def _seen(context: Int, stats: NextTokenStatistics) -> str:
    if UNKNOWN in context:
        return NEVER
    if stats.contexts is not None and bool((stats.contexts == context).all(axis=1).any()):
        return COUNTED
    cut = bool(stats.effects) and stats.effects[0].before.m > stats.m
    return CUT if cut else NEVER
