"""Texts with known tokens, counted again by plain Python on lists of tokens: nothing here uses the package."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

K = TypeVar("K")
Vectors = Sequence[Sequence[float]]
OTHER = "(other tokens)"
"""What the package calls the token that stands for merged ones."""


@dataclass(frozen=True)
class Text:
    """Documents as lists of tokens, which the tokenizer finds in them again, and how they are cut."""

    documents: list[list[str]]
    tokenizer: str = "word"
    context: int = 2
    top_contexts: int | None = None
    vocabulary: int | None = None
    rest: str = "merge"

    @property
    def written(self) -> list[str]:
        """The documents as text."""
        return [" ".join(document) for document in self.documents]


@dataclass(frozen=True)
class Recount:
    """The numbers of a text."""

    text: Text
    windows: Counter[tuple[tuple[str, ...], str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        length = self.text.context
        for document in self.text.documents:
            for place in range(length, len(document)):
                self.windows[tuple(document[place - length : place]), document[place]] += 1

    @cached_property
    def all_windows(self) -> int:
        """Windows of the text, before any cut."""
        return sum(self.windows.values())

    @cached_property
    def in_text(self) -> Counter[str]:
        """Windows of each context in the text, by name."""
        return _added((" ".join(context), times) for (context, _), times in self.windows.items())

    @cached_property
    def top(self) -> int:
        """Contexts to keep: at most as many as asked for, such that no two around the cut are equally frequent."""
        return _without_tie(self.in_text, self.text.top_contexts)

    @cached_property
    def after_contexts(self) -> dict[tuple[str, str], int]:
        """Windows of the most frequent contexts."""
        kept = {context for context, _ in self.in_text.most_common(self.top)}
        named = {(" ".join(context), token): times for (context, token), times in self.windows.items()}
        return {pair: times for pair, times in named.items() if pair[0] in kept}

    @cached_property
    def tokens(self) -> int:
        """Next tokens to keep, chosen likewise."""
        return _without_tie(_added((token, n) for (_, token), n in self.after_contexts.items()), self.text.vocabulary)

    @cached_property
    def pairs(self) -> Counter[tuple[str, str]]:
        """Windows that are left, by context and next token."""
        often = _added((token, times) for (_, token), times in self.after_contexts.items())
        kept = {token for token, _ in often.most_common(self.tokens)}
        if self.text.rest == "drop":
            return Counter({pair: times for pair, times in self.after_contexts.items() if pair[1] in kept})
        merged = (((c, z if z in kept else OTHER), times) for (c, z), times in self.after_contexts.items())
        return _added(merged)

    @cached_property
    def n(self) -> int:
        return sum(self.pairs.values())

    @cached_property
    def contexts(self) -> Counter[str]:
        """Windows that are left of each context."""
        return _added((context, times) for (context, _), times in self.pairs.items())

    @cached_property
    def next_tokens(self) -> Counter[str]:
        """Windows that are left and end in each token."""
        return _added((token, times) for (_, token), times in self.pairs.items())

    @cached_property
    def supports(self) -> dict[str, frozenset[str]]:
        """Tokens that follow each context."""
        return {context: frozenset(z for c, z in self.pairs if c == context) for context in self.contexts}

    @cached_property
    def follows(self) -> dict[str, frozenset[str]]:
        """Contexts that each token follows."""
        return {token: frozenset(c for c, z in self.pairs if z == token) for token in self.next_tokens}

    def named(self, context: str) -> frozenset[str]:
        """Tokens that follow a context, without merged ones."""
        return self.supports[context] - {OTHER}

    @cached_property
    def groups(self) -> dict[frozenset[str], list[str]]:
        """Contexts by support."""
        found: dict[frozenset[str], list[str]] = {}
        for context, support in self.supports.items():
            found.setdefault(support, []).append(context)
        return found

    @property
    def shared(self) -> list[list[str]]:
        """Groups of two contexts or more."""
        return [group for group in self.groups.values() if len(group) > 1]

    @property
    def collapsing(self) -> list[list[str]]:
        """The same whose support is not the whole vocabulary."""
        return [group for group in self.shared if len(self.supports[group[0]]) < self.V]

    @property
    def V(self) -> int:
        return len(self.next_tokens)

    @property
    def one_token(self) -> float:
        """Share of the contexts with a support of one token."""
        return sum(len(support) == 1 for support in self.supports.values()) / len(self.supports)

    @property
    def coverage(self) -> float:
        return self.n / self.all_windows

    @property
    def merged(self) -> float:
        """Share of the windows left that end in a merged token."""
        return self.next_tokens[OTHER] / self.n

    @property
    def entropy(self) -> float:
        return entropy(self.pairs)

    @property
    def once(self) -> float:
        """Good-Turing: share of the windows whose pair occurs once."""
        return sum(times == 1 for times in self.pairs.values()) / self.n

    @property
    def score(self) -> float:
        """How much supports of several tokens exclude, per window of the text, without tokens that followed once."""
        after = {context: [n for (c, _), n in self.pairs.items() if c == context] for context in self.contexts}
        said = (
            (sum(times) - times.count(1)) * math.log(self.V / len(times)) / math.log(self.V)
            for times in after.values()
            if len(times) > 1
        )
        return sum(said) / self.all_windows

    @property
    def short(self) -> int:
        """Documents without a window."""
        return sum(len(document) <= self.text.context for document in self.text.documents)


def entropy(pairs: Counter[tuple[str, str]] | dict[tuple[str, str], int]) -> float:
    """Entropy of the next token given the context, in nats."""
    total, contexts = sum(pairs.values()), _added((context, times) for (context, _), times in pairs.items())
    return -sum(times / total * math.log(times / contexts[context]) for (context, _), times in pairs.items())


def shared(*texts: dict[tuple[str, str], int]) -> list[dict[tuple[str, str], int]]:
    """Windows of several texts whose context and token occur, among these windows, in all of them."""
    left = [dict(pairs) for pairs in texts]
    while True:
        contexts, tokens = (set.intersection(*({pair[k] for pair in pairs} for pairs in left)) for k in (0, 1))
        kept = [{(c, z): n for (c, z), n in pairs.items() if c in contexts and z in tokens} for pairs in left]
        if kept == left:
            return kept
        left = kept


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """Cosine of two vectors."""
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def agreement(first: Vectors, second: Vectors, unit: Sequence[object]) -> float:
    """Correlation of the cosines of two geometries over pairs of items of different units."""
    pairs = [(i, j) for i in range(len(unit)) for j in range(i) if unit[i] != unit[j]]
    x, y = ([cosine(vectors[i], vectors[j]) for i, j in pairs] for vectors in (first, second))
    a, b = ([value - sum(values) / len(values) for value in values] for values in (x, y))
    return cosine(a, b)


def without_mean(rows: Vectors) -> list[list[float]]:
    """Vectors without their mean."""
    means = [sum(entries) / len(rows) for entries in zip(*rows, strict=True)]
    return [[entry - mean for entry, mean in zip(row, means, strict=True)] for row in rows]


def _added(counted: Iterable[tuple[K, int]]) -> Counter[K]:
    total: Counter[K] = Counter()
    for key, times in counted:
        total[key] += times
    return total


def _without_tie(often: Counter[str], most: int | None) -> int:
    times = sorted(often.values(), reverse=True)
    if most is None or most >= len(times):
        return len(times)
    return max((k for k in range(1, most + 1) if times[k - 1] > times[k]), default=len(times))


def states(said: str, share: float) -> bool:
    """Whether a percentage, as written, is this share: 0% and 100% are exact, other numbers are rounded."""
    if said.startswith(("less than ", "more than ")):
        bound = float(said.split()[2][:-1]) / 100
        return 0 < share < bound if said.startswith("less") else bound < share < 1
    if said == "all":
        return share == 1
    digits = re.fullmatch(r"(\d+)(?:\.(\d+))?%", said)
    assert digits, said
    if float(said[:-1]) in (0, 100):
        return 100 * share == float(said[:-1])
    return abs(100 * share - float(said[:-1])) <= 0.5 * 10.0 ** -len(digits[2] or "") + 1e-9


# ---- the texts ------------------------------------------------------------------------------------------------------
def _drawn(after: dict[tuple[str, ...], list[str]], start: list[str], number: int, seed: int) -> list[str]:
    """Tokens of a grammar: what may follow the last tokens, the first of them twice as often."""
    rng, tokens, order = random.Random(seed), list(start), len(start)
    while len(tokens) < number:
        choices = after[tuple(tokens[-order:])]
        tokens.append(rng.choice([choices[0], *choices]))
    return tokens


def _grammar(words: list[str], order: int, branches: int, number: int, seed: int) -> list[str]:
    """Tokens of a random grammar of this order, each of whose contexts has so many next tokens."""
    rng = random.Random(seed)
    states: list[tuple[str, ...]] = [(a, b) for a in words for b in words] if order == 2 else [(a,) for a in words]
    after = {state: rng.sample(words, branches) for state in states}
    return _drawn(after, list(states[0]), number, seed)


def _rare(number: int, seed: int) -> list[str]:
    """A few frequent words, and a rare one after nearly each of them."""
    rng = random.Random(seed)
    tokens = []
    for _ in range(number):
        tokens += [rng.choice("abc"), rng.choice("de"), f"rare{rng.randrange(300)}"]
    return tokens


def _lines(number: int, seed: int) -> list[list[str]]:
    """Short lines, some of which are shorter than a window."""
    rng = random.Random(seed)
    return [[rng.choice("uvwxyz") for _ in range(rng.randrange(1, 7))] for _ in range(number)]


ALEPH = ["שלום", "עולם", "ספר", "בית", "مرحبا", "كتاب", "بيت", "naïve", "été", "ß"]
MARKUP = ["<b>", "</b>", "<script>", "{{x}}", "3.14", "-7", "=1+1", "&amp;", "1e-5", "L_mm", "50%", "None"]
CODE = ["x", "y", "f", "(", ")", "=", "==", "+", "return", "if", ":", "1"]
CASED = ["The", "the", "THE", "Cat", "cat", "sat", "Sat", "."]
WIKI = ["<unk>", "@-@", ",", ".", "the", "of", "town", "in", "=", "was"]
TEXTS: dict[str, Text] = {
    "a grammar of order 2": Text([_grammar(list("abcdefgh"), 2, 3, 700, 0)], top_contexts=50, rest="drop"),
    "split already": Text(
        [_grammar(WIKI, 1, 4, 160, seed) for seed in range(4)], "whitespace", top_contexts=40, vocabulary=7
    ),
    "one sentence": Text([["the", "cat", "sat", "on", "the", "mat", "."] * 150 + ["the", "dog", "ran"]], context=1),
    "right to left": Text([_grammar(ALEPH, 1, 4, 400, 3)], top_contexts=30, vocabulary=8),
    "code": Text([_grammar(CODE, 1, 5, 500, 4)], "code", top_contexts=40, vocabulary=9, rest="drop"),
    "very short": Text([["no", "man", "is", "an", "island", ",", "no", "man", "."]], context=1),
    "one document per line": Text(_lines(120, 5), context=2, top_contexts=25),
    "markup and numbers": Text([_grammar(MARKUP, 1, 4, 400, 6)], "whitespace", context=1, vocabulary=8),
    "nearly all merged": Text([_rare(200, 7)], context=1, top_contexts=5, vocabulary=2),
    "case": Text([_grammar(CASED, 2, 2, 500, 8)], "whitespace", top_contexts=45, vocabulary=6),
}
