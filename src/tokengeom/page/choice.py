"""Settings chosen for a text: tokens, context length and cuts under which supports are informative, and why.

A support is *informative* when it has at least two tokens, and at most ten (or a tenth of a large vocabulary, and never
more than half of a small one): a support of one token is plain classification, and one of nearly all tokens excludes
little. A context is *well sampled* when it was seen at least five times per token of its support, so that a token
missing from the support probably does not follow. It *shares its support* when the support has at least two tokens and
another context has the same one: theory predicts that such contexts collapse although their probabilities differ.

The cut is the largest of a few sizes at which half of the contexts are well sampled. The context length is the one with
the highest

    score = (share informative and well sampled + share with a shared support / 2) * min(1, m / contexts asked for)

where m is the number of contexts that are left. Of the lengths within 5% of the best score, the longest is chosen: it
tells more about each context.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.corpus.tokenizers import is_kind
from tokengeom.errors import CorpusError, InputError
from tokengeom.folders import as_json
from tokengeom.page.settings import ReportSettings
from tokengeom.page.text import Sample, Text
from tokengeom.progress import AbstractProgress
from tokengeom.results import AbstractResult
from tokengeom.statistics.count import count_lengths
from tokengeom.statistics.next_token import NextTokenStatistics

UNSPACED = {
    "Han": (0x3400, 0x9FFF),
    "rare Han": (0x20000, 0x323AF),
    "compatibility Han": (0xF900, 0xFAFF),
    "Hiragana or Katakana": (0x3040, 0x30FF),
    "Thai": (0x0E00, 0x0E7F),
    "Lao": (0x0E80, 0x0EFF),
    "Tibetan": (0x0F00, 0x0FFF),
    "Myanmar": (0x1000, 0x109F),
    "Khmer": (0x1780, 0x17FF),
}
"""Scripts written without spaces between words, by the range of their characters in Unicode."""
FEWEST_SPACES = 0.02
"""Share of white space below which it cannot separate words: words would have 50 characters."""
LENGTHS = (1, 2, 3, 4, 5, 6)
SIZES = ((400, 104), (150, 60), (50, 30))
"""Contexts and next tokens to keep; the first size is that of the papers."""
TIMES_SEEN = 5
LARGEST_SUPPORT, LARGEST_SHARE = 10, 0.1
WELL_SAMPLED = 0.5
NEARLY_BEST = 0.95
FILE = "choice.json"


@dataclass(frozen=True, eq=False, repr=False)
class Choice(AbstractResult):
    """Settings of a report's text, with the reasons for them.

    ``settings``
        Tokenizer (None for token ids without one), context length, and limits of contexts and vocabulary.
    ``reasons``
        Sentences about this text.
    ``candidates``
        One row per candidate that was considered, all with the same keys; empty where there was only one.
    """

    kind = "tokengeom-choice"
    title = "Settings chosen for a text"

    settings: Mapping[str, Any]
    reasons: Sequence[str] = ()
    candidates: Sequence[Mapping[str, Any]] = ()

    @staticmethod
    def given(stats: NextTokenStatistics) -> Choice:
        """Settings of given statistics, as far as they are known."""
        known: dict[str, Any] = {}
        reasons = ["The statistics were given: nothing was chosen."]
        if stats.tokenizer is not None:
            known["tokenizer"] = stats.tokenizer.kind
        elif stats.contexts is not None:
            reasons.append("Tokens are ids without a tokenizer, and are shown as numbers.")
        if stats.windows is not None:
            known["context"] = stats.windows.context
        return Choice({**known, "contexts": stats.m, "vocabulary": stats.V}, tuple(reasons))

    def to_dict(self) -> dict[str, Any]:
        """Settings, reasons and candidates as plain data."""
        candidates = [dict(one) for one in self.candidates]
        return {"settings": dict(self.settings), "reasons": list(self.reasons), "candidates": candidates}

    def summary(self) -> str:
        """The reasons, one per line."""
        return "\n".join(self.reasons)

    def _facts(self) -> list[tuple[str, str]]:
        return [(name, str(value)) for name, value in self.settings.items()]

    def _write(self, folder: Path) -> dict[str, Any]:
        (folder / FILE).write_bytes(as_json(self.to_dict()))
        return {"settings": dict(self.settings)}

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Choice:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return Choice(content["settings"], tuple(content["reasons"]), tuple(content["candidates"]))


def choose_tokenizer(documents: Iterable[str]) -> tuple[str, str]:
    """Name of the tokenizer that suits a text, and the reason in a sentence."""
    seen: Counter[str] = Counter()
    for document in documents:
        seen.update(document)
    total = max(sum(seen.values()), 1)
    letters = max(sum(count for one, count in seen.items() if one.isalpha()), 1)
    by_script = {name: sum(n for one, n in seen.items() if a <= ord(one) <= b) for name, (a, b) in UNSPACED.items()}
    unspaced = sum(by_script.values()) / letters
    spaces = sum(count for one, count in seen.items() if one.isspace()) / total
    if unspaced > 0.5:
        script = max(by_script, key=lambda name: by_script[name])
        return "character", (
            f"Tokens are characters: {min(unspaced, 1.0):.0%} of the letters belong to a script without spaces between "
            f"words (mostly {script})."
        )
    if spaces < FEWEST_SPACES:
        return "character", (
            f"Tokens are characters: only {spaces:.1%} of the text is white space, too little to separate words."
        )
    return "word", (
        "Tokens are lower-case words and punctuation marks, because the text separates words with white space "
        f"({spaces:.0%} of its characters)."
    )


@dataclass(frozen=True)
class Candidate:
    """A context length and a cut, with the supports that they give; shares are of the contexts."""

    context: int
    top_contexts: int
    vocabulary_limit: int
    windows: int
    contexts: int
    vocabulary: int
    support_groups: int
    median_support: float
    one_hot: float
    full: float
    informative: float
    well_sampled: float
    shared_support: float
    score: float

    @staticmethod
    def of(stats: NextTokenStatistics, length: int, contexts: int, vocabulary: int) -> Candidate:
        """Measure the supports of statistics that were cut to this size."""
        k, V, groups = stats.support_sizes, stats.V, stats.groups
        informative = (k >= 2) & (k <= _largest_informative(V))
        sampled = stats.context_counts >= TIMES_SEEN * k
        shared = (groups.multiplicity[groups.label] > 1) & (k >= 2)
        score = (np.mean(informative & sampled) + np.mean(shared) / 2) * min(1.0, stats.m / contexts)
        return Candidate(
            context=length,
            top_contexts=contexts,
            vocabulary_limit=vocabulary,
            windows=stats.n,
            contexts=stats.m,
            vocabulary=V,
            support_groups=groups.count,
            median_support=float(np.median(k)),
            one_hot=stats.one_hot_share,
            full=float(np.mean(k == V)),
            informative=float(np.mean(informative)),
            well_sampled=float(np.mean(sampled)),
            shared_support=float(np.mean(shared)),
            score=float(score),
        )

    @property
    def size(self) -> tuple[int, int]:
        """Limits of contexts and of next tokens."""
        return self.top_contexts, self.vocabulary_limit


def _largest_informative(V: int) -> int:
    return int(min(max(LARGEST_SUPPORT, LARGEST_SHARE * V), V / 2))


def choose(text: Text, asked: ReportSettings, progress: AbstractProgress) -> Choice:
    """Settings for a text, with the candidates that were considered and the reasons."""
    sample = text.sample()
    given = None if asked.tokenizer is None else str(asked.tokenizer)
    tokenizer, why_tokens = _tokens(text, sample, given)
    candidates = _candidates(text, sample, tokenizer, asked, progress)
    chosen = _best(candidates)
    reasons = [*why_tokens, _why_size(chosen, candidates, asked), _why_length(chosen, candidates, asked)]
    if sample is not None and not sample.complete:
        reasons.insert(0, f"The settings were chosen from the first {sample.characters:,} characters of the text.")
    if sample is not None and sample.marker_found:
        reasons.append("Documents are split at the marker <|endoftext|>, which was found in the text.")
    settings = {
        "tokenizer": tokenizer,
        "context": chosen.context,
        "top_contexts": chosen.top_contexts,
        "vocabulary": chosen.vocabulary_limit,
    }
    rows = [{**asdict(one), "chosen": one is chosen} for one in candidates] if len(candidates) > 1 else []
    return Choice(settings, tuple(reasons), tuple(rows))


def _tokens(text: Text, sample: Sample | None, given: str | None) -> tuple[str | None, list[str]]:
    """The tokenizer, and sentences about the tokens."""
    if sample is None:
        return _ids(text, given)
    if not any(map(str.strip, sample.documents)):
        raise CorpusError(f"The corpus is empty: {text.title} has no text. Check the path.")
    if given is not None:
        return given, [f"The tokenizer '{given}' was given."]
    tokenizer, why = choose_tokenizer(sample.documents)
    return tokenizer, [why]


def _ids(text: Text, given: str | None) -> tuple[str | None, list[str]]:
    """Token ids need no tokenizer; a saved one names them, and the kind of a tokenizer says nothing about them."""
    named = None if given is None or is_kind(given) else given
    shown = f"the tokenizer '{named}' gives their names" if named else "without a tokenizer they are shown as numbers"
    reasons = [f"Tokens are the ids in the file; {shown}."]
    if text.reading.separator_id is None:
        reasons.append(
            "No id was given that ends a document (separator_id): if the file has one, contexts cross the ends of "
            "documents."
        )
    return named, reasons


def _candidates(
    text: Text, sample: Sample | None, tokenizer: str | None, asked: ReportSettings, progress: AbstractProgress
) -> list[Candidate]:
    """Every length with every cut; the text is read and tokenized once. Lengths that no document has are left out."""
    sizes = sorted({(asked.top_contexts or contexts, asked.vocabulary or tokens) for contexts, tokens in SIZES})[::-1]
    lengths = LENGTHS if asked.context is None else (asked.context,)
    corpus, reading = (text.corpus, asdict(text.reading)) if sample is None else (list(sample.documents), {})
    most = max(contexts for contexts, _ in sizes)
    counted = count_lengths(corpus, lengths, progress=progress, tokenizer=tokenizer, top_contexts=most, **reading)
    return [
        Candidate.of(stats.limited(top_contexts=contexts, vocabulary=tokens), length, contexts, tokens)
        for length, stats in counted.items()
        for contexts, tokens in sizes
    ]


def _best(candidates: Sequence[Candidate]) -> Candidate:
    """The largest cut at which enough contexts are well sampled, then the longest of the nearly best lengths."""
    sizes = sorted({one.size for one in candidates}, reverse=True)
    best = {size: _longest_of_the_best([one for one in candidates if one.size == size]) for size in sizes}
    sampled = [size for size in sizes if best[size].well_sampled >= WELL_SAMPLED]
    chosen = best[sampled[0] if sampled else sizes[-1]]
    if chosen.vocabulary < 2:
        raise InputError(
            f"A report needs a vocabulary of at least 2 tokens; this text, as cut, has {chosen.vocabulary} "
            f"({chosen.windows:,} windows). Likely it repeats one token, or the cut is too small. Give another "
            "text, another --tokenizer or a larger --vocabulary."
        )
    return chosen


def _longest_of_the_best(candidates: Sequence[Candidate]) -> Candidate:
    best = max(one.score for one in candidates)
    return max((one for one in candidates if one.score >= NEARLY_BEST * best), key=lambda one: one.context)


def _why_size(chosen: Candidate, candidates: Sequence[Candidate], asked: ReportSettings) -> str:
    size = f"At most {chosen.top_contexts:,} contexts and {chosen.vocabulary_limit:,} next tokens, the most frequent"
    if asked.top_contexts is not None and asked.vocabulary is not None:
        return f"{size}, are kept, as requested."
    often = f"seen at least {TIMES_SEEN} times per token of their support"
    if chosen.well_sampled < WELL_SAMPLED:
        few = f"only {chosen.well_sampled:.0%}" if chosen.well_sampled else "none"
        return (
            f"{size}, are kept, which is the smallest cut considered. The text is short for it: {few} of these "
            f"contexts were {often}, so supports may lack tokens that a longer text would show."
        )
    larger = [one for one in candidates if one.size > chosen.size]
    papers = ", about as in the papers' experiments" if not larger and _as_in_the_papers(chosen) else ""
    fewer = " At larger cuts fewer than half were seen that often, at the context length that scores best there."
    others = fewer if larger else ""
    return (
        f"{size}, are kept{papers}. {chosen.well_sampled:.0%} of these contexts were {often}: in these, a token "
        f"missing from the support probably never follows.{others}"
    )


def _as_in_the_papers(chosen: Candidate) -> bool:
    """Whether the statistics that are left, and not only the limits, have about the papers' size."""
    contexts, vocabulary = SIZES[0]
    return 0.75 * contexts <= chosen.contexts <= 1.25 * contexts and 0.75 * vocabulary <= chosen.vocabulary


def _why_length(chosen: Candidate, candidates: Sequence[Candidate], asked: ReportSettings) -> str:
    tokens = "1 token" if chosen.context == 1 else f"{chosen.context} tokens"
    facts = (
        f"{chosen.informative:.0%} of the supports are informative (2 to {_largest_informative(chosen.vocabulary)} of "
        f"{chosen.vocabulary} tokens), {chosen.one_hot:.0%} have a single token, and {chosen.shared_support:.0%} of "
        "the contexts share a support of several tokens with another context"
    )
    if asked.context is not None:
        return f"The context length is {tokens}, as requested: {facts}."
    others = [one for one in candidates if one.size == chosen.size and one is not chosen]
    higher = max(others, key=lambda one: one.score, default=None)
    if higher is None:
        return f"The context length is {tokens}, the only one that the documents allow: {facts}."
    if higher.score > chosen.score:
        return (
            f"The context length is {tokens}: {facts}. A length of {higher.context} scores slightly higher "
            f"({higher.score:.2f} against {chosen.score:.2f}); among nearly equal scores the longest context is chosen."
        )
    return (
        f"The context length is {tokens}: {facts}. Its score of {chosen.score:.2f} is the highest of the lengths tried "
        "at this cut."
    )
