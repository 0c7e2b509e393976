"""The built-in corpus: small children's stories, written by a grammar, as many as are wanted.

The grammar is made so that the commonest contexts of a few words may be followed by one word, by several, or by a
dozen, with supports that overlap: what the theory of next-token prediction is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random

from tokengeom.corpus.source import AbstractTextSource, OnBytes, Piece
from tokengeom.corpus.story_grammar import FRIENDS, HEROES, RULES, THINGS
from tokengeom.errors import CorpusError

DEFAULT_STORIES = 3000
SEPARATOR = "\n\n"
_SLOT = re.compile(r"\{(\w+)\}")
_SPACE_BEFORE = re.compile(r" (?=[.,?!])")


@cache
def _weights(number: int) -> list[float]:
    """Cumulative weights 1, 1/2, 1/3 ... of a list of alternatives."""
    return list(accumulate(1 / rank for rank in range(1, number + 1)))


@cache
def _parsed(rule: str) -> list[list[str]]:
    """The alternatives of a rule, each as plain text and slot names by turns."""
    return [_SLOT.split(alternative) for alternative in RULES[rule]]


def _write(rule: str, random: Random, fixed: dict[str, str]) -> str:
    alternatives = _parsed(rule)
    (parts,) = random.choices(alternatives, cum_weights=_weights(len(alternatives)))
    written = list(parts)
    for index in range(1, len(parts), 2):
        slot = parts[index]
        written[index] = fixed[slot] if slot in fixed else _write(slot, random, fixed)
    return "".join(written)


def _pick(alternatives: list[str], random: Random) -> str:
    return random.choices(alternatives, cum_weights=_weights(len(alternatives)))[0]


def write_story(random: Random) -> str:
    """One story on one line, with the case and spacing of ordinary text."""
    hero, kind, they, them = random.choices(HEROES, cum_weights=_weights(len(HEROES)))[0]
    fixed = {
        "hero": hero,
        "kind": kind,
        "they": they,
        "them": them,
        "friend": _pick(FRIENDS, random),
        "thing": _pick(THINGS, random),
    }
    return _SPACE_BEFORE.sub("", _write("story", random, fixed))


def stories(seed: int = 0) -> Iterator[str]:
    """Stories without end; the same seed gives the same stories."""
    random = Random(seed)
    while True:
        yield write_story(random)


def write_stories(path: str | Path, words: int, seed: int = 0) -> int:
    """Write stories to a file, blank lines between them, until it has at least ``words`` words; return how many."""
    if words < 1:
        raise CorpusError(f"A file of stories needs at least one word; got {words}.")
    written = 0
    with Path(path).open("w", encoding="utf-8") as file:
        for story in stories(seed):
            file.write(story + SEPARATOR)
            written += story.count(" ") + 1
            if written >= words:
                return written
    raise AssertionError("stories never end")


class BuiltInStories(AbstractTextSource):
    """The built-in corpus as a source."""

    def __init__(self, number: int = DEFAULT_STORIES, seed: int = 0) -> None:
        super().__init__(f"built-in corpus ({number:,} stories, seed {seed})")
        if number < 1:
            raise CorpusError(f"The built-in corpus needs at least one story; got {number}.")
        self._number, self._seed = number, seed
        self.size = number

    def pieces(self, on_bytes: OnBytes = lambda _: None) -> Iterator[Piece]:
        """Yield the stories; progress counts stories instead of bytes."""
        for _, story in zip(range(self._number), stories(self._seed), strict=False):
            yield Piece(story)
            on_bytes(1)
