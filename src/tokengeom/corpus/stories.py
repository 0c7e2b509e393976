"""The built-in corpus: any number of small children's stories, written by a grammar.

A rule of the grammar is a list of alternatives; earlier ones are chosen more often (shares fall like 1/rank).
``{name}`` stands for a rule, or for something that is the same throughout a story: the hero, the friend, their
pronouns, the thing that they look for. The most frequent contexts are followed by one token, by several or by a dozen,
and their supports overlap: the case that the theory of next-token prediction is about.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random

from tokengeom.core.errors import CorpusError, ResourceError
from tokengeom.corpus.documents import AbstractTextSource, Piece
from tokengeom.corpus.files import OnBytes, ignore_bytes
from tokengeom.results.folders import atomic_file
from tokengeom.results.manifests import require_regular

HEROES = [
    ("mia", "girl", "she", "her"),
    ("ben", "boy", "he", "his"),
    ("rosa", "girl", "she", "her"),
    ("otto", "bear", "he", "his"),
    ("pip", "mouse", "he", "his"),
    ("nell", "fox", "she", "her"),
    ("sam", "boy", "he", "his"),
    ("dot", "rabbit", "she", "her"),
]

FRIENDS = ["the old owl", "the duck", "grandma", "the frog", "the baker", "the little bird", "the cat"]

THINGS = ["ball", "kite", "hat", "boat", "cake", "drum", "key", "shell", "lamp", "book"]

RULES: dict[str, list[str]] = {
    "story": [
        "{opening} {wish} {walk} {meeting} {trouble} {help} {ending}",
        "{opening} {morning} {walk} {meeting} {talk} {ending}",
        "{opening} {wish} {morning} {trouble} {talk} {help} {ending}",
        "{opening} {morning} {walk} {trouble} {help} {walk} {ending}",
    ],
    "opening": [
        "once upon a time there was a {size} {kind} named {hero} .",
        "once upon a time there was a {kind} who lived {place} .",
        "there was a {size} {kind} named {hero} who lived {place} .",
        "a long time ago a {size} {kind} named {hero} lived {place} .",
    ],
    "wish": [
        "{hero} had a {look} {thing} and {they} loved it very much .",
        "{hero} wanted to find a {look} {thing} .",
        "{hero} loved to {play} with {friend} {place} .",
        "every day {they} liked to {play} {place} .",
        "{they} wanted to {play} but {they} was {feeling} .",
    ],
    "morning": [
        "one day {hero} went to {spot} with {friend} .",
        "one day {they} saw a {look} {thing} {place} .",
        "one day {hero} woke up and felt {feeling} .",
        "in the morning {hero} went to {spot} to {play} .",
        "in the morning the sun was {sky} and {hero} was {feeling} .",
    ],
    "walk": [
        "{they} walked to {spot} and saw {friend} .",
        "{they} walked and walked until {they} came to {spot} .",
        "{hero} went to {spot} and looked for the {thing} .",
        "{they} ran to {spot} and saw a {look} {thing} .",
        "on the way {they} saw {friend} {place} .",
    ],
    "meeting": [
        "{friend} was {feeling} and said hello to {hero} .",
        "{friend} was sitting {place} with a {look} {thing} .",
        "{friend} asked {hero} to {play} {place} .",
        "{hero} said hello to {friend} and gave {them} {thing} a hug .",
        "{hero} and {friend} wanted to {play} {place} .",
    ],
    "trouble": [
        "but then the {thing} fell into {water} and {hero} was {bad} .",
        "but the {thing} was gone and {hero} did not know what to {do} .",
        "but then it began to {weather} and {they} was {bad} .",
        "{hero} could not find the {thing} and {they} began to cry .",
        "suddenly the {thing} broke and {friend} was {bad} .",
    ],
    "talk": [
        '" can you help me find my {thing} ? " asked {hero} .',
        '" do not be {bad} , " said {friend} . " we can {play} {place} . "',
        '" what a {look} {thing} ! " said {friend} .',
        '" i want to {play} with you , " said {hero} .',
        '" let us go to {spot} , " said {friend} with a smile .',
        '" thank you , " said {hero} . " you are my best friend . "',
    ],
    "help": [
        "{friend} helped {hero} to find the {thing} {place} .",
        "{friend} had an idea and they went to {spot} .",
        "together they looked {place} and found the {thing} .",
        "{friend} took the {thing} out of {water} and {hero} was {good} .",
        "{hero} was not {bad} any more because {friend} was there .",
    ],
    "ending": [
        "{hero} was very {good} and went home to {rest} .",
        "they were all very {good} and {they} gave {friend} a hug .",
        "from that day on {hero} and {friend} were best friends .",
        "{hero} and {friend} went home and lived happily ever after .",
        "from that day on {hero} was always {virtue} .",
        "and {hero} learned that it is good to be {virtue} .",
    ],
    "size": ["little", "small", "tiny", "young", "brave", "kind"],
    "look": ["red", "big", "shiny", "blue", "small", "pretty", "round", "old"],
    "place": [
        "in the forest",
        "near the river",
        "in the garden",
        "under a big tree",
        "on the hill",
        "in a small house",
        "by the sea",
        "behind the {house}",
    ],
    "spot": [
        "the park",
        "the forest",
        "the river",
        "the big tree",
        "the market",
        "the top of the hill",
        "the {house}",
    ],
    "house": ["house", "school", "barn", "mill"],
    "water": ["the river", "the pond", "the mud", "a deep hole"],
    "play": ["play", "sing", "dance", "run", "jump", "swim", "climb", "read"],
    "do": ["do", "say", "think"],
    "weather": ["rain", "snow", "get dark"],
    "sky": ["shining", "warm", "bright"],
    "feeling": ["happy", "sad", "tired", "hungry", "excited", "scared", "lonely", "curious"],
    "good": ["happy", "proud", "glad", "excited", "tired"],
    "bad": ["sad", "scared", "angry", "lonely", "afraid"],
    "virtue": ["kind", "brave", "careful", "honest", "patient", "nice"],
    "rest": ["sleep", "eat", "rest", "tell {friend} about the {thing}"],
}


DEFAULT_STORIES = 3000
SEPARATOR = "\n\n"
_BYTES_PER_WORD = 4
"""Fewer than a word of the stories takes on average."""
_SLOT = re.compile(r"\{(\w+)\}")
_SPACE_BEFORE = re.compile(r" (?=[.,?!])")


@cache
def _weights(number: int) -> list[float]:
    """Cumulative weights 1, 1/2, 1/3 ... of a list of alternatives."""
    return list(accumulate(1 / rank for rank in range(1, number + 1)))


@cache
def _parsed(rule: str) -> list[list[str]]:
    """The alternatives of a rule, each as plain text and slot names in turn."""
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
