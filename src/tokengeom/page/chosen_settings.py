"""Settings chosen for a text: tokens, context length and cuts, how much of the text they cover, and why.

Theory predicts a geometry from supports alone, so a setting is good when the supports say much, are known, and belong
to a large part of the text. The score of a context length and a cut is the mean over all windows of the text of

    [k >= 2] (1 - f / n) log(V / k) / log(V)        where the window's context is kept, and 0 elsewhere,

where k is the number of tokens in the context's support and V that of all tokens (a support of k tokens excludes the
others, which is ``log(V / k)`` nats; a support of all tokens says nothing), n is the number of windows of the context
and f of those the number whose token followed it only once (``f / n`` estimates the share of windows outside the
support, see `tokengeom.statistics.supports`). A support of one token is ordinary classification and does not count.
Longer contexts have smaller supports and a higher score per window, but the contexts that are kept then cover fewer
windows: on the English texts tried, 400 contexts cover 80 to 86% of the windows at length 1, 27 to 39% at length 2,
13 to 16% at length 3 and 9% at length 4. The score weighs both.

Contexts have at least two tokens where documents allow it: from a single token, a network has nothing to combine. More
are taken only as far as it helps to predict: up to the longest length at which each window, left out in turn, is
predicted better from the other windows of its context than from those of the context without its first token, by 0.01
nats per window kept. With c a context, s the context without its first token, and n the numbers of windows,

    gain = mean log [p(z | c) / q(z | s)],    q(z | s) = (n_sz - 1) / (n_s - 1),
                                              p(z | c) = (n_cz - 1 + q(z | s)) / (n_c - 1 + 1),

so that where the next token depends on the last two alone, no gain is expected beyond two. Of the lengths up to this
one within 10% of the best score, the longest is chosen, because it says more about each context. The cut is
the largest of a few sizes at which at most 10% of further windows are expected outside the supports. The largest has
600 contexts, which is what can be trained in a minute on two cores, and 127 tokens: with the token that stands for
all others, that is the embedding dimension of the preset models, and the predicted logits have a smaller rank.

Tokens outside the vocabulary are merged into one, as is usual in language modelling, so that no window of a context is
left out and every share is that of the text. On the same texts with 104 tokens, leaving those windows out would lose
19 to 41% of the windows of the contexts kept, and would make supports look smaller than they are. Its price is that
contexts followed by different rare tokens look alike: the cosines between centred supports correlate by 0.59 to 0.86
with those for all tokens, against 0.87 to 0.96 when the windows are left out (``rest="drop"``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.core.errors import CorpusError, InputError
from tokengeom.core.numerics import rounded_percent, seen_tokens
from tokengeom.core.progress import AbstractProgress
from tokengeom.corpus.documents import choose_tokenizer
from tokengeom.corpus.tokenizers import is_kind
from tokengeom.page.compare_models import occur_once
from tokengeom.page.settings import ReportSettings
from tokengeom.page.source_text import SourceText, TextSample
from tokengeom.results.contract import AbstractJsonResult, data_frame
from tokengeom.statistics.count import count_lengths
from tokengeom.statistics.next_token import OTHER, NextTokenStatistics
from tokengeom.statistics.supports import skipped_sentence

if TYPE_CHECKING:
    from pandas import DataFrame


LENGTHS = (1, 2, 3, 4, 5, 6)
SHORTEST = 2
"""Shortest context that is chosen, where documents allow it."""
SIZES = ((600, 127), (400, 127), (200, 60), (50, 30))
"""Contexts and next tokens to keep."""
MOST_MISSING = 0.1
NEARLY_BEST = 0.9
LEAST_GAIN = 0.01
"""Nats per window by which the first token of a context must help to predict."""
FROM_SAMPLE = "The settings were chosen from the first"


@dataclass(frozen=True, eq=False, repr=False)
class Choice(AbstractJsonResult):
    """Settings of a report's text, with the reasons for them.

    ``settings``    Tokenizer (None for token ids without one), context length, and limits of contexts and vocabulary.
    ``reasons``     Sentences about this text.
    ``candidates``  One row per candidate that was considered, all with the same keys; empty where there was only one.
    """

    kind = "tokengeom-choice"
    title = "Settings chosen for a text"
    file = "choice.json"
    repeated = ("settings",)

    settings: Mapping[str, Any]
    reasons: Sequence[str] = ()
    candidates: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        for row in (self.settings, *self.candidates):
            for name, value in row.items():
                texts_only = name in ("tokenizer", "rest", "support") and row is self.settings
                if not isinstance(value, str | None if texts_only else str | int | float | None):
                    raise ValueError(f"{name} must be a {'text' if texts_only else 'number or a text'}")
        if any(list(row) != list(self.candidates[0]) or not row for row in self.candidates):
            raise ValueError("its candidates do not have the same entries")

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

    @staticmethod
    def for_model(stats: NextTokenStatistics) -> Choice:
        """Settings of statistics that a trained model was read on, and how much of the text they are."""
        known: dict[str, Any] = {} if stats.windows is None else {"context": stats.windows.context}
        seen = seen_tokens(stats.P).size
        reasons = [
            "Tokens are those of the model's own tokenizer, and its whole vocabulary takes part: of "
            f"{stats.V:,} tokens {seen:,} follow the contexts below. No context below is followed by any of the others."
        ]
        if stats.coverage is not None:
            length = f" of {stats.windows.context} tokens" if stats.windows is not None else ""
            which = "All" if stats.coverage == 1 else f"The {stats.m:,} most frequent"
            reasons.append(
                f"{which} contexts{length} are kept; they have {_percent(stats.coverage)} of the text's windows. The "
                "model reads these tokens alone, although it may have been trained on longer texts."
            )
        once = occur_once(stats) if stats.has_counts and stats.coverage != 1 else 0
        if once:
            reasons.append(f"{once:,} of these contexts occur once in the text, and were drawn at random.")
        return Choice({"tokenizer": "the model's own", **known, "contexts": stats.m}, tuple(reasons))

    def to_dict(self) -> dict[str, Any]:
        return self.to_json()

    def to_frame(self) -> DataFrame:
        """Data frame with one row per candidate that was considered; of the settings alone where there was only one."""
        return data_frame([dict(row) for row in self.candidates or [self.settings]])

    def summary(self) -> str:
        """The reasons, one per line."""
        return "\n".join(self.reasons)

    def _facts(self) -> list[tuple[str, str]]:
        return [(name, str(value)) for name, value in self.settings.items()]

    @property
    def from_sample(self) -> bool:
        """Whether the settings were chosen from the beginning of the text."""
        return any(reason.startswith(FROM_SAMPLE) for reason in self.reasons)


@dataclass(frozen=True)
class Candidate:
    """A context length and a cut, with the supports that they give.

    ``coverage``                     Share of the text's windows that are kept.
    ``other``                        Share of these whose next token was merged with others, or left out.
    ``missing``                      Estimated share of further windows outside the supports.
    ``gain``                         Nats per window kept that the first token of a context helps to predict, as the
                                     module's docstring defines it; infinite where an older version did not measure it.
    ``one_hot``, ``shared_support``  Shares of the contexts with a single next token, and with a support of several that
                                     another context has too.
    """

    context: int
    top_contexts: int
    vocabulary_limit: int
    coverage: float
    windows: int
    contexts: int
    vocabulary: int
    support_groups: int
    median_support: float
    other: float
    missing: float
    one_hot: float
    shared_support: float
    score: float
    gain: float = np.inf

    @staticmethod
    def of(stats: NextTokenStatistics, length: int, contexts: int, vocabulary: int) -> Candidate:
        """Measure the supports of statistics that were cut to this size."""
        k, groups = stats.support_sizes, stats.groups
        shared = (groups.multiplicity[groups.label] > 1) & (k >= 2)
        return Candidate(
            context=length,
            top_contexts=contexts,
            vocabulary_limit=vocabulary,
            coverage=stats.coverage or 0.0,
            windows=stats.n,
            contexts=stats.m,
            vocabulary=stats.V,
            support_groups=groups.count,
            median_support=float(np.median(k)),
            other=_other_share(stats),
            missing=0.0 if stats.completeness is None else stats.completeness.missing_share,
            one_hot=stats.one_hot_share,
            shared_support=float(np.mean(shared)),
            score=score(stats),
            gain=first_token_gain(stats),
        )

    @property
    def size(self) -> tuple[int, int]:
        """Limits of contexts and of next tokens."""
        return self.top_contexts, self.vocabulary_limit


def score(stats: NextTokenStatistics) -> float:
    """How much the supports say per window of the text, from 0 to 1, as the module's docstring defines it."""
    assert stats.completeness is not None, "a text is counted"
    if stats.V < 2:
        return 0.0
    k = stats.support_sizes
    excluded = np.where(k >= 2, np.log(stats.V / k) / np.log(stats.V), 0.0)
    known = 1.0 - stats.completeness.missing
    return float((stats.coverage or 0.0) * np.sum(stats.pi * known * excluded))


def first_token_gain(stats: NextTokenStatistics) -> float:
    """Nats per window that the first token of each context helps to predict, as the module's docstring defines it.

    Only other kept contexts with the same last tokens say what the context without its first token is followed by:
    where there are none, nothing is gained.
    """
    assert stats.contexts is not None, "a text is counted"
    _, suffix, several = np.unique(stats.contexts[:, 1:], axis=0, return_inverse=True, return_counts=True)
    suffix = suffix.ravel()
    table = stats.counts.tocoo()
    pair, place = np.unique(suffix[table.col] * stats.V + table.row, return_inverse=True)
    n_c, n_cz = stats.context_counts[table.col], table.data
    n_s = np.bincount(suffix, weights=stats.context_counts)[suffix[table.col]]
    n_sz = np.bincount(place, weights=n_cz, minlength=pair.size)[place]
    # A token that followed once has q = 0, and the two probabilities have a ratio all the same.
    times = np.where(n_cz > 1, (n_cz - 1) * (n_s - 1) / np.maximum(n_sz - 1, 1), 0.0)
    gains = n_cz * np.log((times + 1.0) / n_c) * (several[suffix[table.col]] > 1)
    return float(gains.sum() / stats.n)


def _other_share(stats: NextTokenStatistics) -> float:
    total = stats.n if stats.text_counts is None else int(stats.text_counts.sum())
    return 1.0 - (1.0 - stats.merged_share) * stats.n / total


def choose(text: SourceText, asked: ReportSettings, progress: AbstractProgress) -> Choice:
    """Settings for a text, with the candidates that were considered and the reasons."""
    sample = text.sample()
    given = None if asked.tokenizer is None else str(asked.tokenizer)
    tokenizer, why_tokens = _tokens(text, sample, given)
    candidates = _candidates(text, sample, tokenizer, asked, progress)
    chosen = best_candidate(candidates)
    reasons = [
        *why_tokens,
        _why_length(chosen, candidates, asked),
        _why_size(chosen, candidates, asked),
        *_why_rest(chosen, asked),
    ]
    if sample is not None and not sample.complete:
        reasons.insert(0, f"{FROM_SAMPLE} {sample.characters:,} characters of the text.")
    if sample is not None and sample.marker_found:
        reasons.append("Documents are split at the marker <|endoftext|>, which was found in the text.")
    if text.skipped:
        reasons.append(skipped_sentence(text.skipped))
    settings = {
        "tokenizer": tokenizer,
        "context": chosen.context,
        "top_contexts": chosen.top_contexts,
        "vocabulary": chosen.vocabulary_limit,
        "rest": asked.rest,
        "support": asked.support,
    }
    rows = [{**asdict(candidate), "chosen": candidate is chosen} for candidate in candidates]
    return Choice(settings, tuple(reasons), tuple(rows) if len(rows) > 1 else ())


def _tokens(text: SourceText, sample: TextSample | None, given: str | None) -> tuple[str | None, list[str]]:
    """The tokenizer, and sentences about the tokens."""
    if sample is None:
        return _ids(text, given)
    if not any(map(str.strip, sample.documents)):
        raise CorpusError(f"The corpus is empty: {text.title} has no text. Check the path.")
    if given is not None:
        return given, [f"The tokenizer '{given}' was given."]
    tokenizer, why = choose_tokenizer(sample.documents)
    return tokenizer, [why]


def _ids(text: SourceText, given: str | None) -> tuple[str | None, list[str]]:
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
    text: SourceText,
    sample: TextSample | None,
    tokenizer: str | None,
    asked: ReportSettings,
    progress: AbstractProgress,
) -> list[Candidate]:
    """Every length with every cut; the text is read and tokenized once. Lengths that no document has are left out."""
    sizes = sorted({(asked.top_contexts or contexts, asked.vocabulary or tokens) for contexts, tokens in SIZES})[::-1]
    lengths = LENGTHS if asked.context is None else (asked.context,)
    corpus, reading = (text.corpus, asdict(text.reading)) if sample is None else (list(sample.documents), {})
    most = max(contexts for contexts, _ in sizes)
    counted = count_lengths(corpus, lengths, progress=progress, tokenizer=tokenizer, top_contexts=most, **reading)
    return [
        Candidate.of(
            stats.limited(top_contexts=contexts, vocabulary=tokens, rest=asked.rest, support=asked.support),
            length,
            contexts,
            tokens,
        )
        for length, stats in counted.items()
        for contexts, tokens in sizes
    ]


def best_candidate(candidates: Sequence[Candidate]) -> Candidate:
    """The largest cut whose supports are known well enough, then the longest of the nearly best lengths."""
    sizes = sorted({candidate.size for candidate in candidates}, reverse=True)
    best = [_longest_of_the_best([candidate for candidate in candidates if candidate.size == size]) for size in sizes]
    chosen = next((candidate for candidate in best if candidate.missing <= MOST_MISSING), best[-1])
    if chosen.vocabulary < 2:
        raise InputError(
            f"A report needs a vocabulary of at least 2 tokens; this text, as cut, has {chosen.vocabulary} "
            f"({chosen.windows:,} windows). Likely it repeats one token, or the cut is too small. Give another "
            "text, another --tokenizer or a larger --vocabulary."
        )
    return chosen


def _longest_of_the_best(candidates: Sequence[Candidate]) -> Candidate:
    long_enough = [candidate for candidate in candidates if candidate.context >= SHORTEST] or list(candidates)
    longest = max((candidate.context for candidate in long_enough if candidate.gain >= LEAST_GAIN), default=0)
    shortest = min(candidate.context for candidate in long_enough)
    long_enough = [candidate for candidate in long_enough if candidate.context <= max(longest, shortest)]
    best = max(candidate.score for candidate in long_enough)
    return max(
        (candidate for candidate in long_enough if candidate.score >= NEARLY_BEST * best),
        key=lambda candidate: candidate.context,
    )


def _why_size(chosen: Candidate, candidates: Sequence[Candidate], asked: ReportSettings) -> str:
    kept = (
        f"At most {chosen.top_contexts:,} contexts and {chosen.vocabulary_limit:,} next tokens, the most frequent, are "
        "kept"
    )
    covered = f"These contexts have {_percent(chosen.coverage)} of the text's windows."
    if asked.top_contexts is not None and asked.vocabulary is not None:
        return f"{kept}, as requested. {covered}"
    missing = f"{_percent(chosen.missing)} of further windows are expected to have a token outside the supports"
    if chosen.missing > MOST_MISSING:
        return f"{kept}, the smallest cut considered. {covered} The text is short for it: {missing}."
    larger = [candidate for candidate in candidates if candidate.size > chosen.size]
    why = f"; with more of them, it would be more than {MOST_MISSING:.0%}" if larger else ""
    return f"{kept}. {covered} An estimated {missing}{why}."


def _why_length(chosen: Candidate, candidates: Sequence[Candidate], asked: ReportSettings) -> str:
    tokens = "1 token" if chosen.context == 1 else f"{chosen.context} tokens"
    facts = (
        f"supports have {chosen.median_support:g} of {chosen.vocabulary} tokens in the median, "
        f"{rounded_percent(chosen.one_hot)} have a single token, and {rounded_percent(chosen.shared_support)} of the "
        "contexts share a support of several tokens with another context"
    )
    if asked.context is not None:
        return f"The context length is {tokens}, as requested: {facts}."
    others = [candidate for candidate in candidates if candidate.size == chosen.size and candidate is not chosen]
    if not others:
        return f"The context length is {tokens}, the only one that the documents allow: {facts}."
    compared = ", ".join(
        f"{candidate.context}: {_percent(candidate.coverage)} of the windows, score {candidate.score:.3f}, gain of the "
        f"first token {candidate.gain:.3f} nats"
        for candidate in sorted([chosen, *others], key=lambda candidate: candidate.context)
        if candidate.context <= max(chosen.context, 4)
    )
    return (
        f"The context length is {tokens}: {facts}. It weighs how much the supports say against how much of the text is "
        f"covered (by length, {compared}). More than {SHORTEST} tokens are taken only up to the last length at which "
        f"the first token of a context helps to predict, by {LEAST_GAIN:g} nats per window; of the lengths from "
        f"{SHORTEST} tokens on with nearly the "
        "best score, the longest is chosen."
    )


def _why_rest(chosen: Candidate, asked: ReportSettings) -> list[str]:
    share = _percent(chosen.other)
    merged = (
        f"All other next tokens are merged into one, shown as {OTHER}: it ends {share} of the windows kept. Two "
        "contexts that it follows need not be followed by the same token."
    )
    left_out = (
        f"{share} of the windows of these contexts end in a token that was left out or merged with others, as "
        "requested; the shares below are of all of a context's windows."
    )
    usual = asked.rest == "merge" and asked.support == "raw"
    return [merged if usual else left_out] if chosen.other else []


def _percent(share: float) -> str:
    """A share with two digits, or with three where two would say 100%, which only the whole is."""
    if 0.9995 <= share < 1:
        return "more than 99.9%"
    return f"{100 * share:.2g}%" if share < 0.995 else f"{100 * share:.3g}%"
