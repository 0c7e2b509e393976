r"""Finding a token or a context by its text: exactly, without accents and case, by its beginning; or "did you mean".

A text is compared with all names, one way after the other, until one finds something:

1. the name itself, or the name as it is printed (``\n`` for a line break);
2. the same with white space at the ends removed and every other white space one space (``▁``, which SentencePiece
   writes for a space, is one);
3. the same in NFKD without combining marks and invisible format characters, with letters folded (``casefold``);
4. the beginning of exactly one name.

Where a token and a context are found in the same way, the token is meant, unless contexts are asked for.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from tokengeom.ask.named_vectors import SPACE, Items, frequency_of, item_names
from tokengeom.core.errors import InputError

if TYPE_CHECKING:
    from tokengeom.ask.place import Placed
    from tokengeom.statistics.next_token import NextTokenStatistics

KINDS: tuple[Items, ...] = ("tokens", "contexts")
MOST_CANDIDATES = 8
"""Names that an error lists."""
LONGEST_SHOWN = 60
"""Characters of a name in a sentence."""
CLOSE = 0.6
"""Similarity (difflib) from which on a name counts as close."""
JOINER = re.compile("(?<=[^\x00-\x7f\u200c\u200d])[\u200c\u200d](?=[^\x00-\x7f\u200c\u200d])")
"""A joiner or non-joiner inside a word that is not in Latin letters: Persian and Hindi are spelled with them."""
_ESCAPE = re.compile(r"\\(?:([nrt\\])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
_NUMBERED = re.compile(r"(.*)\\#([1-9][0-9]{0,5})", re.DOTALL)


@dataclass(frozen=True)
class Item:
    """A token or a context that was found.

    ``items``, ``index``, ``name``
        "tokens" or "contexts", its number among them, and its name.
    ``note``
        What else the text could have meant, or that it was not counted; empty where there is nothing to say.
    ``placed``
        Its place, where it is a context that was not counted; its number is -1 then.
    """

    items: Items
    index: int
    name: str
    note: str = ""
    placed: Placed | None = None

    @property
    def kind(self) -> str:
        """What it is: "token" or "context"."""
        return self.items[:-1]

    @property
    def how_seen(self) -> dict[str, str]:
        """Of a context that was not counted: whether it is not in the text, or may have been cut away."""
        return {} if self.placed is None else {"seen": self.placed.seen[0]}


def find_item(
    stats: NextTokenStatistics, text: str, items: Items | None = None, place: Callable[[str], Item | None] | None = None
) -> Item:
    """The token or context that a text means, or the one of ``items`` alone.

    A text that is not a name, nor the beginning of one, is given to ``place``, which returns None where it cannot.
    """
    if not isinstance(text, str):
        raise InputError(f"A token or context is asked for by its text; got {type(text).__name__}.")
    if items is not None and items not in KINDS:
        raise InputError(f"items must be tokens or contexts; got {items!r}.")
    kinds = KINDS if items is None else (items,)
    for form in (None, *FORMS):
        indices = {kind: _names(stats, kind).equal(text, form) for kind in kinds}
        if matching := [kind for kind in kinds if indices[kind]]:
            return _chosen(stats, text, matching, indices[matching[0]], same=form is None)
    return _completed(stats, text, kinds, place)


def is_seen(name: str) -> bool:
    """Whether every character of a name is seen, or is part of the spelling of a word, as joiners are in Persian."""
    return JOINER.sub("", name).isprintable()


def shown(name: str) -> str:
    """A name as it is printed: as it is, or as a Python string where its ends or characters would not be seen."""
    return name if name and name.strip() == name and is_seen(name) else repr(name)


def quoted(name: str) -> str:
    """A name in quotation marks, for sentences: characters that would not be seen are escaped, and long names cut."""
    return f"“{_short(name) if is_seen(name) else repr(_short(name))[1:-1]}”"


def _short(name: str) -> str:
    """A name of at most `LONGEST_SHOWN` characters, without its middle where it is longer."""
    part = LONGEST_SHOWN // 2 - 2
    return name if len(name) <= LONGEST_SHOWN else f"{name[:part]} … {name[-part:]}"


def fold(name: str) -> str:
    """A name without accents, case, and invisible characters, with single spaces."""
    plain = name
    if not name.isascii():
        apart = unicodedata.normalize("NFKD", name.replace(SPACE, " "))
        plain = "".join(x for x in apart if not (unicodedata.combining(x) or unicodedata.category(x) == "Cf"))
    return " ".join(plain.casefold().split())


def _single_spaces(name: str) -> str:
    return " ".join(name.replace(SPACE, " ").split())


def _without_case(name: str) -> str:
    return _single_spaces(name).casefold()


def _without_spaces(name: str) -> str:
    """Names of contexts have spaces between all of their tokens, where people write "one day, a"."""
    return fold(name).replace(" ", "")


FORMS = (_single_spaces, _without_case, fold, _without_spaces)
"""Forms in which a text and the names are compared, one after the other."""


class _Names:
    """Names of all tokens or contexts, with the forms that are compared; each is made when it is first needed."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._forms: dict[Callable[[str], str], list[str]] = {}

    def form(self, make: Callable[[str], str]) -> list[str]:
        """All names in one form."""
        if make not in self._forms:
            self._forms[make] = list(map(make, self.names))
        return self._forms[make]

    def equal(self, text: str, make: Callable[[str], str] | None) -> list[int]:
        """Indices of the names that are equal to a text in one form; or (None) as it is, or as it is printed."""
        if make is not None:
            wanted = make(text)
            return _equal(self.form(make), wanted) if wanted else []
        same = _equal(self.names, text)
        if same or "\\" not in text:
            return same
        if match := _NUMBERED.fullmatch(text):
            return _equal(self.names, match[1])[int(match[2]) - 1 :][:1]
        return _equal(self.names, _ESCAPE.sub(_unescaped, text.strip("'")))


_KNOWN: WeakKeyDictionary[NextTokenStatistics, dict[str, _Names]] = WeakKeyDictionary()


def names_of(stats: NextTokenStatistics, items: Items) -> Sequence[str]:
    """Names of all tokens or contexts; kept, because those of many contexts take seconds to make."""
    return _names(stats, items).names


def _names(stats: NextTokenStatistics, items: Items) -> _Names:
    known = _KNOWN.setdefault(stats, {})
    if items not in known:
        known[items] = _Names(item_names(stats, items))
    return known[items]


def _unescaped(match: re.Match[str]) -> str:
    return _LETTERS[match[1]] if match[1] else chr(int(match[2] or match[3], 16))


def _equal(names: Sequence[str], text: str) -> list[int]:
    """Indices of all names that are equal to a text."""
    return [index for index, name in enumerate(names) if name == text]


def _chosen(stats: NextTokenStatistics, text: str, kinds: Sequence[Items], indices: list[int], *, same: bool) -> Item:
    """The item of the first kind; of several with the same name the first, of several with different names none."""
    items, *others = kinds
    name = names_of(stats, items)[indices[0]]
    notes = [f"A {kind[:-1]} has this name too: ask with items={kind!r} (--items {kind})." for kind in others]
    if len(indices) > 1 and same:
        notes.append(f"{len(indices)} {items} have this name; this is the first, and {name}\\#2 is the second.")
    elif len(indices) > 1:
        listed = _listed(stats, {items: indices})
        raise InputError(f"{_short(text)!r} can mean {len(indices)} {items}: {listed}. Give one name in full.")
    return Item(items, indices[0], name, " ".join(notes))


def _completed(
    stats: NextTokenStatistics, text: str, kinds: Sequence[Items], place: Callable[[str], Item | None] | None
) -> Item:
    """The only token, or else context, whose name begins with the text; or its place; or an error with candidates."""
    wanted, said = fold(text), repr(_short(text))
    beginning = {kind: _matching(stats, kind, lambda name: name.startswith(wanted)) for kind in kinds if wanted}
    first = next((kind for kind, indices in beginning.items() if indices), None)
    if first is not None and len(beginning[first]) == 1:
        (index,) = beginning[first]
        return Item(first, index, names_of(stats, first)[index], f"No other {first[:-1]} begins with {said}.")
    what = " or ".join(kind[:-1] for kind in kinds)
    number, cut_away = sum(map(len, beginning.values())), _cut_away(stats, kinds)
    if number:
        raise InputError(
            f"No {what} is called {said}, and {number:,} names begin with it. Did you mean one of these? "
            f"{_listed(stats, beginning)}.{cut_away}"
        )
    if wanted and "contexts" in kinds and place is not None and (item := place(text)) is not None:
        return item
    inside = {kind: _matching(stats, kind, lambda name: wanted in name) for kind in kinds if wanted}
    placed = " A prediction with ties places contexts of any text: tokengeom place."
    elsewhere = placed if "contexts" in kinds and stats.contexts is not None else ""
    if near := _listed(stats, inside, [*_endings(stats, wanted, kinds), *_close(stats, wanted, kinds)]):
        raise InputError(f"No {what} is called {said}. Did you mean one of these? {near}.{cut_away}{elsewhere}")
    counted = " and ".join(f"{len(names_of(stats, kind)):,} {kind}" for kind in kinds)
    some = _listed(stats, {kind: range(len(names_of(stats, kind))) for kind in kinds}, most=4)
    nothing = f"No {what} is called {said}, nor anything like it. There are {counted}, such as {some}."
    raise InputError(f"{nothing}{cut_away}{elsewhere}")


def _cut_away(stats: NextTokenStatistics, kinds: Sequence[Items]) -> str:
    """That an unknown item may be in the text, where cuts left some out."""
    if not stats.effects:
        return ""
    before, named = stats.effects[0].before, stats.V - (stats.other is not None)
    sizes: dict[Items, tuple[int, int]] = {"tokens": (named, before.V), "contexts": (stats.m, before.m)}
    kept = [f"{sizes[kind][0]:,} of its {sizes[kind][1]:,} {kind}" for kind in kinds if sizes[kind][0] < sizes[kind][1]]
    return f" It is not in the text, or was cut away: the cuts kept {' and '.join(kept)}." if kept else ""


def _endings(stats: NextTokenStatistics, wanted: str, kinds: Sequence[Items]) -> list[str]:
    """Contexts that a text ends with, longest first: a text may be longer than any context."""
    if "contexts" not in kinds:
        return []
    indices = _matching(stats, "contexts", lambda name: bool(name) and wanted.endswith(f" {name}"))
    return sorted((names_of(stats, "contexts")[index] for index in indices), key=len, reverse=True)


def _matching(stats: NextTokenStatistics, items: Items, holds: Callable[[str], bool]) -> list[int]:
    """Indices of the names whose folded form has a property."""
    return [index for index, name in enumerate(_names(stats, items).form(fold)) if holds(name)]


def _close(stats: NextTokenStatistics, wanted: str, kinds: Sequence[Items]) -> list[str]:
    """Names that are close to a folded text, closest first; only those of about its length are compared."""
    names: dict[str, str] = {}
    for kind in kinds:
        folded = zip(_names(stats, kind).form(fold), names_of(stats, kind), strict=True)
        names |= {form: name for form, name in folded if abs(len(form) - len(wanted)) <= 2 + len(wanted) // 2}
    return [names[form] for form in get_close_matches(wanted, names, MOST_CANDIDATES, CLOSE)]


def _listed(
    stats: NextTokenStatistics,
    items: Mapping[Items, Iterable[int]],
    more: Sequence[str] = (),
    most: int = MOST_CANDIDATES,
) -> str:
    """Names as part of a sentence: those that were found, most frequent first, then further ones."""
    names: dict[str, None] = {}
    for kind, indices in items.items():
        some = np.fromiter(indices, np.int64)
        order = some[np.argsort(-frequency_of(stats, kind)[some], kind="stable")]
        names |= dict.fromkeys(names_of(stats, kind)[index] for index in order[:most])
    names |= dict.fromkeys(more)
    return ", ".join(repr(_short(name)) for name in list(names)[:most])
