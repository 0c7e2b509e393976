"""A text split by documents: statistics to train a network on, and held-out windows of any context that it can read.

``loss = -sum_{c,z} n_{cz} log softmax_z(W h(c)) / sum_{c,z} n_{cz}``

where
    n_cz   held-out windows in which token z follows context c
    h(c)   the network's state after context c, which need not occur in training

A network can read a context if each of its tokens occurs in some context of training. Held-out windows with other
contexts, or whose next token is outside the vocabulary, are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from tokengeom import NextTokenStatistics, ReadingSettings, count
from tokengeom.extending import (
    AbstractProgress,
    AbstractTextSource,
    Bool,
    InputError,
    Int,
    Network,
    SilentProgress,
    WordTokenizer,
    open_corpus,
    stories,
)
from tokengeom_studies.base import Recipe

STORIES = "stories"
"""Name of the built-in text."""


@dataclass(frozen=True, eq=False)
class SplitText:
    """Training statistics and held-out windows.

    where
        stats     statistics of the training part
        contexts  distinct held-out contexts that a network can read, n x L, by the token ids of the statistics
        known     whether each of them occurs in the training statistics, n
        place     context of each held-out pair, as an index into ``contexts``
        token     next token of each pair, as a row of the statistics
        windows   how often each pair occurs
    """

    stats: NextTokenStatistics
    contexts: Int
    known: Bool
    place: Int
    token: Int
    windows: Int

    @staticmethod
    def of(stats: NextTokenStatistics, rest: NextTokenStatistics) -> SplitText:
        """From training statistics and those of the held-out part, counted with the same tokenizer."""
        train, held = np.asarray(stats.contexts), np.asarray(rest.contexts)
        readable = np.asarray(np.isin(held, np.unique(train)).all(axis=1))
        row_of = {token: z for z, token in enumerate(stats.vocabulary)}
        other = -1 if stats.other is None else stats.other
        row = np.array([row_of.get(token, other) for token in rest.vocabulary], np.int64)
        counts = rest.counts
        place, token = np.repeat(np.arange(len(held)), np.diff(counts.indptr)), row[counts.indices]
        kept = readable[place] & (token >= 0)
        if not kept.any():
            raise InputError(
                f"No held-out window has a context of tokens that occur in the {stats.m} contexts of training. Give "
                "more text, or keep more contexts."
            )
        used, place = np.unique(place[kept], return_inverse=True)
        seen = set(map(tuple, train.tolist()))
        known = np.array([tuple(context) in seen for context in held[used].tolist()])
        return SplitText(stats, held[used], known, place.ravel(), token[kept], np.asarray(counts.data[kept], np.int64))

    def save(self, path: str | Path) -> None:
        """Write everything to an .npz file, for machines that cannot count a text."""
        table = sparse.csc_array(self.stats.table)
        parts = {name: getattr(table, name) for name in ("data", "indices", "indptr")}
        held = {f"held_{name}": getattr(self, name) for name in ("contexts", "known", "place", "token", "windows")}
        shape, contexts = np.array(table.shape), np.asarray(self.stats.contexts)
        np.savez_compressed(path, shape=shape, contexts=contexts, **parts, **held)

    @staticmethod
    def load(path: str | Path) -> SplitText:
        """Read what `save` wrote."""
        with np.load(path) as file:
            if "held_contexts" not in file:
                raise InputError(f"{path} has no held-out windows. Write it with SplitText.save.")
            parts = (file["data"], file["indices"], file["indptr"])
            table = sparse.csc_array(parts, shape=tuple(file["shape"]))
            stats = NextTokenStatistics.from_counts(table, contexts=file["contexts"])
            held = [file[f"held_{name}"] for name in ("contexts", "known", "place", "token", "windows")]
        return SplitText(stats, *held)

    def frequency_loss(self) -> float:
        """Held-out loss in nats of the training frequencies of next tokens, which ignore the context."""
        shares = np.asarray(self.stats.P @ self.stats.pi)
        return float(np.average(-np.log(shares[self.token]), weights=self.windows))


def split_text_of(recipe: Recipe, source: str) -> SplitText:
    """A text of a recipe: the built-in stories, split and counted, or an .npz file that `SplitText.save` wrote."""
    if source == STORIES:
        kept, rest = count_parts({**recipe, "text": "", "separator": "auto"}, SilentProgress())
        return SplitText.of(kept.limited(top_contexts=recipe["contexts"], vocabulary=recipe["vocabulary"]), rest)
    path = Path(source)
    if path.suffix != ".npz" or not path.is_file():
        raise InputError(f"A text must be '{STORIES}' or an .npz file of counts; got {source!r}.")
    return SplitText.load(path)


class HeldOutLoss:
    """Held-out losses of networks on one text and device."""

    def __init__(self, split: SplitText, torch: Any, device: str) -> None:
        self._torch, self._known = torch, split.known[split.place]
        ids = np.unique(np.asarray(split.stats.contexts))
        # Without a tied head a network numbers its input tokens in the order of their ids.
        self._rows = torch.as_tensor(np.searchsorted(ids, split.contexts), device=device)
        self._place = torch.as_tensor(split.place, device=device)
        self._token = torch.as_tensor(split.token, device=device)
        self._windows = split.windows

    def of(self, network: Network) -> dict[str, float]:
        """Mean loss in nats of all windows, of those with known contexts, and of those with new contexts."""
        torch, decoder = self._torch, network.decoder
        decoder.eval()
        with torch.no_grad():
            logits = decoder.head(decoder.body(self._rows)[:, -1])
            each = torch.logsumexp(logits, 1)[self._place] - logits[self._place, self._token]
        decoder.train()
        losses = each.double().cpu().numpy()
        parts = {"all": np.ones_like(self._known), "known": self._known, "new": ~self._known}
        return {
            name: float(np.average(losses[part], weights=self._windows[part]))
            for name, part in parts.items()
            if part.any()
        }


def count_parts(recipe: Recipe, progress: AbstractProgress) -> tuple[NextTokenStatistics, NextTokenStatistics]:
    """Statistics of the training part of a text, and of its held-out part, with one numbering of tokens."""
    documents = documents_of(recipe)
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


def documents_of(recipe: Recipe) -> list[str]:
    """Documents of the recipe's ``text``, a file, or as many of the built-in ``stories``."""
    if not recipe["text"]:
        return list(islice(stories(recipe["seed"]), recipe["stories"]))
    documents: list[str] = []
    for source in open_corpus(recipe["text"], ReadingSettings(separator=recipe["separator"])):
        if not isinstance(source, AbstractTextSource):
            raise InputError(f"This study reads text; {source.name} holds token ids. Give the text itself.")
        documents += _whole_documents(source)
    return documents


def _whole_documents(source: AbstractTextSource) -> list[str]:
    """Documents of a source, which hands over a long one in pieces."""
    documents: list[list[str]] = []
    for piece in source.pieces():
        if piece.starts or not documents:
            documents.append([])
        documents[-1].append(piece.text)
    return ["".join(parts) for parts in documents]
