"""Which tokens suit a text: words where spaces part them, characters where the script has none.

From a text to good settings: context length and cuts under which supports say something, and why.

A support is *informative* when it holds two tokens or more, but at most ten (or a tenth of a large vocabulary, and
never more than half of a small one): one token is plain classification, and a support of nearly all forbids nothing.
It is *well seen* when its context came up at least five times for each of its tokens, so that a token that is missing
is likely one that does not follow. A context is *accompanied* when its support holds two tokens or more and another
context has the same: these are predicted to collapse although their probabilities differ, which can be looked at.

The cut is the largest of a few sizes at which half of the contexts are well seen. The context length has the highest

    score = (share informative and well seen + share accompanied / 2) * min(1, m / contexts asked for)

and among lengths whose score is within a twentieth of the best, the longest wins: it says more of each context.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tokengeom.errors import CorpusError, InputError, StatisticsError
from tokengeom.page.contents import Choice
from tokengeom.page.text import Text
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics, standard_cuts

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
"""Scripts whose words are written without spaces between them, by the range of their characters in Unicode."""
FEWEST_SPACES = 0.02
"""Share of white space below which spaces cannot part words: it would mean words of 50 characters."""


def choose_tokenizer(documents: Iterable[str]) -> tuple[str, str]:
    """A tokenizer's name, and the reason in a sentence."""
    seen: Counter[str] = Counter()
    for document in documents:
        seen.update(document)
    total = max(sum(seen.values()), 1)
    letters = max(sum(count for one, count in seen.items() if one.isalpha()), 1)
    by_script = {name: sum(n for one, n in seen.items() if a <= ord(one) <= b) for name, (a, b) in UNSPACED.items()}
    without_spaces = sum(by_script.values()) / letters
    spaces = sum(count for one, count in seen.items() if one.isspace()) / total
    if without_spaces > 0.5:
        script = max(by_script, key=lambda name: by_script[name])
        return "character", (
            f"Tokens are characters: {min(without_spaces, 1.0):.0%} of the letters belong to a script without spaces "
            f"between words (mostly {script})."
        )
    if spaces < FEWEST_SPACES:
        return "character", (
            f"Tokens are characters: only {spaces:.1%} of the text is white space, too little to part words."
        )
    return "word", (
        f"Tokens are words in lower case and single punctuation marks: {spaces:.0%} of the text is white space, "
        "which parts words."
    )


LENGTHS = (1, 2, 3, 4, 5, 6)
SIZES = ((400, 104), (150, 60), (50, 30))
"""Contexts and words to keep; the first is the papers' size."""
TIMES_SEEN = 5
LARGEST_SUPPORT, LARGEST_SHARE = 10, 0.1
WELL_SEEN = 0.5
NEARLY_BEST = 0.95


@dataclass(frozen=True)
class Wishes:
    """What the user fixed; None is left to the choice."""

    tokenizer: str | None = None
    context: int | None = None
    top_contexts: int | None = None
    vocabulary: int | None = None


@dataclass(frozen=True)
class Candidate:
    """One context length and cut, and what the supports look like under it; shares are of the contexts."""

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
    well_seen: float
    accompanied: float
    score: float


def choose(text: Text, wishes: Wishes, progress: AbstractProgress) -> Choice:
    """Settings for a text, with the candidates that were looked at and the reasons."""
    sample = text.sample()
    tokenizer, why_tokens = wishes.tokenizer, "Tokens are as asked for."
    if sample is not None and not any(map(str.strip, sample.documents)):
        raise CorpusError(f"The corpus is empty: {text.title} holds no text. Check the path.")
    if sample is not None and tokenizer is None:
        tokenizer, why_tokens = choose_tokenizer(sample.documents)
    corpus = text.corpus if sample is None else list(sample.documents)
    look = _Look(corpus, tokenizer or "word", text, wishes)
    candidates = look.candidates(progress)
    chosen = _best(candidates, wishes)
    reasons = [why_tokens, _why_size(chosen, candidates, wishes), _why_length(chosen, candidates, wishes)]
    if sample is not None and not sample.whole:
        reasons.insert(0, f"The settings were chosen on the first {sample.characters:,} characters of the text.")
    if sample is not None and sample.marker_found:
        reasons.append("Documents are parted at the marker <|endoftext|>, which was found in the text.")
    settings = {
        "tokenizer": tokenizer or "word",
        "context": chosen.context,
        "top_contexts": chosen.top_contexts,
        "vocabulary": chosen.vocabulary_limit,
    }
    rows = [{**asdict(one), "chosen": one is chosen} for one in candidates] if len(candidates) > 1 else []
    return Choice(settings, tuple(sentence for sentence in reasons if sentence), tuple(rows))


@dataclass(frozen=True)
class _Look:
    """Counting one text under several settings."""

    corpus: Any
    tokenizer: str
    text: Text
    wishes: Wishes

    def candidates(self, progress: AbstractProgress) -> list[Candidate]:
        """Every length with every cut; lengths that no document has, and cuts that leave nothing, are passed over."""
        lengths = LENGTHS if self.wishes.context is None else (self.wishes.context,)
        found, refused = [], []
        with progress.stage("Looking at context lengths", float(len(lengths))) as stage:
            for length in lengths:
                try:
                    found += self._of_length(length)
                except (CorpusError, StatisticsError) as error:
                    refused.append(error)
                stage.advance(1.0)
        if not found:
            raise refused[0]
        return found

    def _of_length(self, length: int) -> list[Candidate]:
        sizes = sorted({self._wished(size) for size in SIZES}, reverse=True)
        cuts = standard_cuts(max(contexts for contexts, _ in sizes))
        options: dict[str, Any] = {} if self.corpus is not self.text.corpus else {"reading": self.text.reading}
        counted = count(self.corpus, context=length, tokenizer=self.tokenizer, cuts=cuts, **options)
        return [_looked_at(counted.limited(*size), length, *size) for size in sizes]

    def _wished(self, size: tuple[int, int]) -> tuple[int, int]:
        contexts, vocabulary = size
        return self.wishes.top_contexts or contexts, self.wishes.vocabulary or vocabulary


def _looked_at(stats: NextTokenStatistics, length: int, contexts: int, vocabulary: int) -> Candidate:
    k, V, groups = stats.support_sizes, stats.V, stats.groups
    informative = (k >= 2) & (k <= _largest_informative(V))
    seen = stats.context_counts >= TIMES_SEEN * k
    accompanied = (groups.multiplicity[groups.label] > 1) & (k >= 2)
    score = (np.mean(informative & seen) + np.mean(accompanied) / 2) * min(1.0, stats.m / contexts)
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
        well_seen=float(np.mean(seen)),
        accompanied=float(np.mean(accompanied)),
        score=float(score),
    )


def _largest_informative(V: int) -> int:
    return int(min(max(LARGEST_SUPPORT, LARGEST_SHARE * V), V / 2))


def _best(candidates: Sequence[Candidate], wishes: Wishes) -> Candidate:
    """The largest cut that is well enough seen, then the longest of the nearly best lengths."""
    sizes = sorted({_size(one) for one in candidates}, reverse=True)
    best = {size: _longest_of_the_best([one for one in candidates if _size(one) == size]) for size in sizes}
    seen = [size for size in sizes if best[size].well_seen >= WELL_SEEN]
    chosen = best[seen[0] if seen else sizes[-1]]
    if chosen.vocabulary < 2:
        raise InputError(
            f"A report needs a vocabulary of at least 2 tokens; this text, as cut, has {chosen.vocabulary} "
            f"({chosen.windows:,} windows). Likely it repeats one token, or the cut is too small. Give another "
            "text, another --tokenizer or a larger --vocabulary."
        )
    return chosen


def _size(one: Candidate) -> tuple[int, int]:
    return one.top_contexts, one.vocabulary_limit


def _longest_of_the_best(candidates: Sequence[Candidate]) -> Candidate:
    best = max(one.score for one in candidates)
    return max((one for one in candidates if one.score >= NEARLY_BEST * best), key=lambda one: one.context)


def _why_size(chosen: Candidate, candidates: Sequence[Candidate], wishes: Wishes) -> str:
    contexts, words = f"{chosen.top_contexts:,}", f"{chosen.vocabulary_limit:,}"
    size = f"up to {contexts} of the most frequent contexts and up to {words} of the commonest next tokens"
    if wishes.top_contexts is not None and wishes.vocabulary is not None:
        return f"Kept are {size}, as asked for."
    seen = (
        f"{chosen.well_seen:.0%} of these contexts were seen at least {TIMES_SEEN} times for each token of their "
        "support, so that a token that is missing there is likely one that does not follow"
    )
    if chosen.well_seen < WELL_SEEN:
        few = f"only {chosen.well_seen:.0%}" if chosen.well_seen else "none"
        return (
            f"Kept are {size}, the smallest cut tried. The text is short for it: {few} of these contexts were seen at "
            f"least {TIMES_SEEN} times for each token of their support, so that supports may lack tokens that a longer "
            "text would show."
        )
    larger = [one for one in candidates if _size(one) > _size(chosen)]
    if not larger:
        papers = ", about the size of the papers' experiments" if _as_in_the_papers(chosen) else ""
        return f"Kept are {size}{papers}: {seen}."
    return f"Kept are {size}: {seen}. Under larger cuts, at the length that scores best there, fewer than half were."


def _as_in_the_papers(chosen: Candidate) -> bool:
    """Whether what is left, and not only what was asked for, has about the papers' size."""
    contexts, vocabulary = SIZES[0]
    return 0.75 * contexts <= chosen.contexts <= 1.25 * contexts and 0.75 * vocabulary <= chosen.vocabulary


def _why_length(chosen: Candidate, candidates: Sequence[Candidate], wishes: Wishes) -> str:
    tokens = "1 token" if chosen.context == 1 else f"{chosen.context} tokens"
    facts = (
        f"{chosen.informative:.0%} of the supports are informative (2 to {_largest_informative(chosen.vocabulary)} of "
        f"{chosen.vocabulary} tokens), {chosen.one_hot:.0%} hold one token alone, and {chosen.accompanied:.0%} of the "
        "contexts share a support of several tokens with another"
    )
    if wishes.context is not None:
        return f"A context is {tokens} long, as asked for: {facts}."
    rivals = [one for one in candidates if _size(one) == _size(chosen) and one is not chosen]
    higher = max(rivals, key=lambda one: one.score, default=None)
    if higher is None:
        return f"A context is {tokens} long, the only length that the documents allow: {facts}."
    if higher.score > chosen.score:
        return (
            f"A context is {tokens} long: {facts}. A length of {higher.context} scores a little higher "
            f"({higher.score:.2f} against {chosen.score:.2f}); of nearly equal lengths the longest is taken."
        )
    return (
        f"A context is {tokens} long: {facts}. The score of {chosen.score:.2f} is the highest of the lengths tried "
        "under this cut."
    )
