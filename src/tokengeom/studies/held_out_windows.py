"""Windows that training does not see: documents dealt to two sides, and the loss on the held-out side over training.

``loss = -sum_{j,z} c_{jz} log softmax_z(L_j) / sum_{j,z} c_{jz}``

where ``c_{jz}`` counts held-out windows of context j followed by token z, and ``L`` are the logits, V x m. Only windows
of contexts and tokens that training knows can be judged. Pairs that training saw are *known*; a pair (j, z) with z off
the training support S_j is *new*: training drives its probability to 0, so that its loss has no bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tokengeom.corpus.locate import ReadingOptions, open_corpus
from tokengeom.corpus.simple_tokenizers import WordTokenizer
from tokengeom.corpus.source import AbstractTextSource
from tokengeom.corpus.stories import stories
from tokengeom.errors import InputError
from tokengeom.numerics import Float, log_sum_exp
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import Recipe
from tokengeom.training.probes import Probe, State

Int = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out windows of known contexts that end in known tokens, one entry a distinct pair.

    ``column``, ``token``, ``windows``
        Context and token of each pair, in the places that training gives them, and how often it came.
    ``new``
        Whether training never saw the pair.
    ``all_windows``
        Every held-out window, judged or not.
    """

    column: Int
    token: Int
    windows: Int
    new: NDArray[np.bool_]
    all_windows: int

    @property
    def n(self) -> int:
        """Windows that are judged."""
        return int(self.windows.sum())

    @property
    def n_new(self) -> int:
        """Windows among them whose pair training never saw."""
        return int(self.windows[self.new].sum())

    def losses(self, L: Float) -> dict[str, float]:
        """Mean loss in nats under logits L (V x m): of all windows, of the known pairs, and of the new ones if any."""
        each = log_sum_exp(L)[self.column] - L[self.token, self.column]
        parts = {"loss": np.ones_like(self.new), "known": ~self.new, "new": self.new}
        some = {name: part for name, part in parts.items() if part.any()}
        return {name: float(np.average(each[part], weights=self.windows[part])) for name, part in some.items()}

    def known_limit(self, stats: NextTokenStatistics) -> float:
        """Loss of the known pairs under the training frequencies, where ``CE -> H`` leads; 0 where there are none."""
        known = ~self.new
        shares = stats.P.toarray()[self.token[known], self.column[known]]
        return float(np.average(-np.log(shares), weights=self.windows[known])) if known.any() else 0.0

    def probe(self) -> dict[str, Probe]:
        """The losses at every record, as ``held_out.loss``, ``held_out.known`` and ``held_out.new``."""

        def measure(state: State) -> dict[str, float]:
            return self.losses(state.L)

        return {"held_out": measure}


def split_text(recipe: Recipe, progress: AbstractProgress) -> tuple[NextTokenStatistics, HeldOut]:
    """Deal the documents of a text to two sides; count and cut the one, and find the other's windows among it."""
    documents = _documents(recipe)
    share, number = recipe["held_out"], len(documents)
    held = round(share * number)
    if not 0 < held < number:
        raise InputError(
            f"Both sides need at least one document; got {number} documents and held_out={share}. Take a text of "
            "several documents, or another separator between them, and a share near 0.5."
        )
    order = np.random.default_rng(recipe["seed"]).permutation(number)
    # One tokenizer for both sides, so that ids mean the same; words of the other side alone have no window on this.
    tokenizer = WordTokenizer()
    tokenizer.encode(documents)
    words = tokenizer.freeze()
    rest, kept = (
        count([documents[i] for i in sorted(part)], context=recipe["context"], tokenizer=words, progress=progress)
        for part in (order[:held], order[held:])
    )
    stats = kept.limited(contexts=recipe["contexts"], vocabulary=recipe["vocabulary"])
    return stats, find_windows(stats, rest)


def find_windows(stats: NextTokenStatistics, rest: NextTokenStatistics) -> HeldOut:
    """Find the pairs of held-out statistics among the contexts and tokens of the training statistics."""
    place = {tuple(row): j for j, row in enumerate(np.asarray(stats.contexts).tolist())}
    columns = np.array([place.get(tuple(row), -1) for row in np.asarray(rest.contexts).tolist()], np.int64)
    row_of = {word: z for z, word in enumerate(stats.vocabulary)}
    rows = np.array([row_of.get(word, -1) for word in rest.vocabulary], np.int64)
    column = np.repeat(columns, rest.support_sizes)
    token = rows[rest.counts.indices]
    judged = (column >= 0) & (token >= 0)
    if not judged.any():
        raise InputError(
            f"No held-out window has one of the {stats.m} contexts and {stats.V} words of training. The text is too "
            "short, or its contexts too long: give more text, or a smaller context."
        )
    column, token = column[judged], token[judged]
    new = stats.S.toarray()[token, column] == 0
    return HeldOut(column, token, rest.counts.data[judged].astype(np.int64), new, rest.n)


def _documents(recipe: Recipe) -> list[str]:
    if not recipe["text"]:
        return list(islice(stories(recipe["seed"]), recipe["stories"]))
    found: list[str] = []
    for source in open_corpus(recipe["text"], ReadingOptions(separator=recipe["separator"])):
        if not isinstance(source, AbstractTextSource):
            raise InputError(f"This study reads text; {source.name} holds token ids. Give the text itself.")
        found += _joined(source)
    return found


def _joined(source: AbstractTextSource) -> Sequence[str]:
    """Whole documents: a long one arrives in pieces."""
    found: list[list[str]] = []
    for piece in source.pieces():
        if piece.starts or not found:
            found.append([])
        found[-1].append(piece.text)
    return ["".join(parts) for parts in found]
