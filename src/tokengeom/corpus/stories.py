"""The built-in corpus: any number of small children's stories, written by a grammar.

A rule of the grammar is a list of alternatives; earlier ones are chosen more often (shares fall like 1/rank).
``{name}`` stands for a rule, or for something that is the same throughout a story: the hero, the friend, their
pronouns, the thing that they look for. The most frequent contexts are followed by one token, by several or by a dozen,
and their supports overlap: the case that the theory of next-token prediction is about.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from tokengeom.core.errors import CorpusError, ResourceError
from tokengeom.core.system import require_regular
from tokengeom.corpus.documents import AbstractTextSource, Piece
from tokengeom.corpus.files import OnBytes, ignore_bytes
from tokengeom.results.folders import atomic_file

T = TypeVar("T")
GRAMMAR = "stories.json"
"""File beside this one: heroes (name, kind, pronouns), friends, things, and the rules."""
DEFAULT_STORIES = 3000
SEPARATOR = "\n\n"
_BYTES_PER_WORD = 4
"""Fewer than a word of the stories takes on average."""
_SLOT = re.compile(r"\{(\w+)\}")
_SPACE_BEFORE = re.compile(r" (?=[.,?!])")


@cache
def grammar() -> Any:
    """Heroes, friends, things and rules, by these names."""
    return json.loads(files("tokengeom.corpus").joinpath(GRAMMAR).read_text(encoding="utf-8"))


@cache
def _weights(number: int) -> list[float]:
    """Cumulative weights 1, 1/2, 1/3 ... of a list of alternatives."""
    return list(accumulate(1 / rank for rank in range(1, number + 1)))


@cache
def _parsed(rule: str) -> list[list[str]]:
    """The alternatives of a rule, each as plain text and slot names in turn."""
    return [_SLOT.split(alternative) for alternative in grammar()["rules"][rule]]


def _write(rule: str, random: Random, fixed: dict[str, str]) -> str:
    parts = _pick(_parsed(rule), random)
    written = list(parts)
    for index in range(1, len(parts), 2):
        slot = parts[index]
        written[index] = fixed[slot] if slot in fixed else _write(slot, random, fixed)
    return "".join(written)


def _pick(alternatives: list[T], random: Random) -> T:
    return random.choices(alternatives, cum_weights=_weights(len(alternatives)))[0]


def write_story(random: Random) -> str:
    """One story on one line, with the case and spacing of ordinary text."""
    hero, kind, they, them = _pick(grammar()["heroes"], random)
    fixed = {
        "hero": hero,
        "kind": kind,
        "they": they,
        "them": them,
        "friend": _pick(grammar()["friends"], random),
        "thing": _pick(grammar()["things"], random),
    }
    return _SPACE_BEFORE.sub("", _write("story", random, fixed))


def stories(seed: int = 0) -> Iterator[str]:
    """An endless stream of stories; the same seed gives the same stories."""
    random = Random(seed)
    while True:
        yield write_story(random)


def write_stories(path: str | Path, words: int, seed: int = 0) -> int:
    """Write stories of at least ``words`` words to a file, with blank lines between them; return how many words.

    A file with stories of the same seed is replaced, whatever its length; any other file is refused.
    """
    if words < 1:
        raise CorpusError(f"A file of stories needs at least one word; got {words}.")
    _require_stories(Path(path), seed)
    _require_space(Path(path), words)
    written = 0
    with atomic_file(Path(path)) as new, new.open("w", encoding="utf-8") as file:
        for story in stories(seed):
            file.write(story + SEPARATOR)
            written += story.count(" ") + 1
            if written >= words:
                break
    return written


def _require_space(path: Path, words: int) -> None:
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    free = shutil.disk_usage(folder).free
    if words * _BYTES_PER_WORD > free:
        raise ResourceError(
            f"{words:,} words take more than {words * _BYTES_PER_WORD / 1e9:,.0f} GB, and {free / 1e9:,.0f} GB are "
            f"free in {folder}. Write fewer words, or choose another disk."
        )


def _require_stories(path: Path, seed: int) -> None:
    """Refuse to replace a file that holds anything but the stories of this seed."""
    require_regular(path)
    if not path.exists():
        return
    with path.open("rb") as file:
        for story in stories(seed):
            expected = (story + SEPARATOR).encode()
            written = file.read(len(expected))
            if written == expected:
                continue
            if expected.startswith(written) and not file.read(1):
                return
            raise CorpusError(
                f"{path} exists and does not hold the stories of seed {seed}; it was not changed. Choose another name, "
                "or remove the file first."
            )


class BuiltInStories(AbstractTextSource):
    """The built-in corpus as a source."""

    def __init__(self, number: int = DEFAULT_STORIES, seed: int = 0) -> None:
        super().__init__(f"built-in corpus ({number:,} stories, seed {seed})")
        if number < 1:
            raise CorpusError(f"The built-in corpus needs at least one story; got {number}.")
        self._number, self._seed = number, seed
        self.size = number

    def pieces(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[Piece]:
        """Yield the stories; ``on_bytes`` counts stories instead of bytes."""
        for _, story in zip(range(self._number), stories(self._seed), strict=False):
            yield Piece(story)
            on_bytes(1)
