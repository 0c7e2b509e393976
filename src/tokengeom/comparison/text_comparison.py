"""`TextComparison`: the predicted geometries of two texts on what they share, and which tokens and contexts moved most.

How far an item (a token or a context) moved is a number that no rotation changes:

``moved_i = 1 - corr_j(x_ij, y_ij)``,   j over the other items

where ``x_ij`` and ``y_ij`` are the cosines of items i and j in the geometries of the first and of the second text. 0
means that all others lie around the item in the same arrangement, 1 that the two arrangements have nothing in common.
Contexts of the same support in both texts are not paired: their cosine is the same in both. Where the cosines of an
item do not vary, they have no correlation: the number is 0 where they are equal in both texts, and 1 otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.comparison import MEANINGS, nan_to_none
from tokengeom.core.checks import Entries
from tokengeom.core.errors import InputError
from tokengeom.results.contract import ALONE, AbstractResult, NearbyResults, close, data_frame, html_table
from tokengeom.results.manifests import as_json

if TYPE_CHECKING:
    from pandas import DataFrame

    from tokengeom.ask.named_vectors import Items
    from tokengeom.core.numerics import Float

FILE = "texts.json"
SHOWN = 10
"""Tokens, and contexts, that the summary and a notebook show."""
ROUNDED = 1e-6
"""Difference below which numbers are equal where items are ordered by them."""
LARGEST = 2.0
"""Largest number that an item can have: 1 less the smallest correlation."""
NUMBERS = tuple(f"{item}_{kind}" for item in ("context", "token") for kind in ("agreement", "cka", "similarity"))
"""Names of the numbers that say how alike the two geometries are."""
_STORED = ("loss_gap", "is_proxy")
_PART = ("statistics_hash", "windows", "all_windows", "tokens", "contexts", "only_pairs", "only_once")


WHAT_MOVED = (
    "Moved by: 1 less the correlation of an item's cosines with all others in the first text and in the second, from 0 "
    "to 2. Gained and lost: from the first text to the second."
)


@dataclass(frozen=True)
class ComparedText:
    """What of one text is compared.

    ``statistics_hash``
        Hash of its statistics.
    ``windows``, ``all_windows``
        Windows with a shared context and a shared next token, and all windows of the statistics.
    ``tokens``, ``contexts``
        All tokens and contexts of the statistics, shared or not.
    ``only_pairs``, ``only_once``
        Pairs of a shared context and a shared token that follows it in this text alone; those of them that occur once.
    """

    statistics_hash: str
    windows: int
    all_windows: int
    tokens: int
    contexts: int
    only_pairs: int
    only_once: int

    @property
    def share(self) -> float:
        """Share of the windows that is compared."""
        return self.windows / self.all_windows

    @staticmethod
    def read(stored: Entries) -> ComparedText:
        """What `asdict` described."""
        stored.only(*_PART)
        found = {name: stored.whole(name) for name in _PART[1:]}
        if not 0 < found["windows"] <= found["all_windows"] or found["only_once"] > found["only_pairs"]:
            raise stored.damaged(f"{stored.place}: a part is larger than the whole")
        return ComparedText(stored.digest("statistics_hash"), **found)


@dataclass(frozen=True)
class Neighbour:
    """A neighbour of an item: its name, and the cosine with the item in each text."""

    name: str
    first: float
    second: float


@dataclass(frozen=True)
class Follower:
    """A token that follows a context, or a context that a token follows, in one text alone; how often it does there."""

    name: str
    count: int


@dataclass(frozen=True)
class MovedItem:
    """A token or a context that moved, with the reason in the supports.

    ``alike``
        Number of other contexts with the same supports in both texts, which are not listed.
    ``gained``, ``lost``
        Neighbours in the second text that are none in the first, and the other way round; nearest first.
    ``only_first``, ``only_second``
        For a context, tokens that follow it in one text alone; for a token, contexts that it follows in one text alone.
        Most frequent first, the first few of ``in_first`` and ``in_second``.
    ``in_both``, ``in_first``, ``in_second``
        How many there are in both texts, in the first alone and in the second alone.
    """

    name: str
    moved: float
    alike: int
    gained: tuple[Neighbour, ...]
    lost: tuple[Neighbour, ...]
    only_first: tuple[Follower, ...]
    only_second: tuple[Follower, ...]
    in_both: int
    in_first: int
    in_second: int

    def cells(self) -> tuple[str, ...]:
        """Number, neighbours and supports as a table shows them."""
        near = (", ".join(map(quoted, some)) for some in (self.gained, self.lost))
        return (f"{self.moved:.3f}", *near, *(self._followers(k) for k in (0, 1)))

    def _followers(self, text: int) -> str:
        listed, count = (self.only_second, self.in_second) if text else (self.only_first, self.in_first)
        more = [f"{count - len(listed):,} more"] if count > len(listed) else []
        return ", ".join([*(f"{quoted(one)} ({one.count:,})" for one in listed), *more])

    @property
    def label(self) -> str:
        """Its name, and how many have the same supports."""
        return f"{quoted(self)}{f' and {self.alike:,} with the same supports' if self.alike else ''}"

    def sentence(self, items: Items, *, in_limit: bool) -> str:
        """Name, number and neighbours, then the reason in the supports."""
        _, gained, lost, first, second = self.cells()
        near = [f"gained {gained}"] if gained else []
        near += [f"lost {lost}"] if lost else []
        text = f"{self.label} moved by {self.moved:.3f}: {'; '.join(near) or 'the same neighbours'}."
        verb = "followed by" if items == "contexts" else "follows"
        reasons = [f"in the first text alone {verb} {first}"] if first else []
        reasons += [f"in the second text alone {verb} {second}"] if second else []
        if reasons:
            joined = "; ".join(reasons)
            return f"{text} {joined[:1].upper()}{joined[1:]}."
        alike = "The same tokens follow it" if items == "contexts" else "It follows the same contexts"
        differs = "the supports of others" if in_limit else "how often, or the supports of others"
        return f"{text} {alike} in both texts; what differs: {differs}."

    @staticmethod
    def read(stored: Entries) -> MovedItem:
        """What `asdict` described."""
        whole = ("alike", "in_both", "in_first", "in_second")
        stored.only("name", "moved", "gained", "lost", "only_first", "only_second", *whole)
        gained, lost = (tuple(map(_neighbour, stored.several(name))) for name in ("gained", "lost"))
        only = [tuple(map(_follower, stored.several(name))) for name in ("only_first", "only_second")]
        alike, *rest = (stored.whole(name) for name in whole)
        moved = stored.within("moved", 0.0, LARGEST)
        return MovedItem(stored.text("name"), moved, alike, gained, lost, only[0], only[1], *rest)


def quoted(one: Neighbour | Follower | MovedItem) -> str:
    """The name of an item in quotation marks: names may end in a full stop, or hold commas."""
    return f"\u201c{one.name}\u201d"


def _neighbour(stored: Entries) -> Neighbour:
    stored.only("name", "first", "second")
    return Neighbour(stored.text("name"), *(stored.within(name, -1.0, 1.0) for name in ("first", "second")))


def _follower(stored: Entries) -> Follower:
    stored.only("name", "count")
    return Follower(stored.text("name"), stored.whole("count", 1))


@dataclass(frozen=True, eq=False)
class Movement:
    """How far every shared token, or every shared context, moved.

    ``names``, ``moved``
        All of them in the order of their names, and their numbers.
    ``listed``
        Those that moved most, with neighbours and reasons, largest first; of contexts with the same supports one.
    """

    items: Items
    names: tuple[str, ...]
    moved: Float
    listed: tuple[MovedItem, ...]

    def to_json(self) -> dict[str, Any]:
        """Everything but the kind of items, as plain data."""
        return {
            "names": list(self.names),
            "moved": self.moved.tolist(),
            "listed": [asdict(one) for one in self.listed],
        }

    @staticmethod
    def read(items: Items, stored: Entries) -> Movement:
        """What `to_json` described."""
        stored.only("names", "moved", "listed")
        names, numbers = stored.texts("names"), stored.sequence("moved")
        if len(names) != len(numbers) or not all(isinstance(x, float | int) and 0 <= x <= LARGEST for x in numbers):
            raise stored.damaged(f"{items} must have one number in 0..{LARGEST:g} per name")
        listed = tuple(map(MovedItem.read, stored.several("listed")))
        if not {one.name for one in listed} <= set(names):
            raise stored.damaged(f"{items} are listed that the texts do not share")
        return Movement(items, names, np.array(numbers, dtype=np.float64), listed)

    @property
    def is_sorted(self) -> bool:
        """Whether the listed ones have their own numbers, are in order, and the one that moved most is the first."""
        place = dict(zip(self.names, self.moved.tolist(), strict=True))
        listed = [one.moved for one in self.listed]
        own = all(close(place[one.name], one.moved) for one in self.listed)
        falling = all(a >= b - ROUNDED for a, b in pairwise([float(self.moved.max(initial=0.0)), *listed]))
        return own and falling and (not listed or listed[0] >= self.moved.max() - ROUNDED)


@dataclass(frozen=True, eq=False, repr=False)
class TextComparison(AbstractResult):
    """The predicted geometries of two texts, compared on the tokens and contexts that both have.

    ``first``, ``second``
        What of each text is compared.
    ``agreements``
        `NUMBERS` -> how alike the two geometries are, with interval and floor, as `compare` gives them.
    ``tokens``, ``contexts``
        How far each token and each context moved.
    ``loss_gap``
        Loss gap of both predictions in nats; None in the limit of training.
    ``is_proxy``
        Whether the geometries are those of the proxy, because the prediction would be too large.
    ``limitations``
        Sentences: how the numbers must not be read.
    ``settings``
        Settings that it was made with; ``loss_gap`` is the one that was asked for, also where the proxy stands in.
    """

    kind: ClassVar[str] = "tokengeom-texts"
    title: ClassVar[str] = "Two texts compared"

    first: ComparedText
    second: ComparedText
    agreements: Mapping[str, Agreement]
    tokens: Movement
    contexts: Movement
    loss_gap: float | None
    is_proxy: bool
    limitations: tuple[str, ...]
    settings: Mapping[str, Any]

    @property
    def movements(self) -> tuple[Movement, Movement]:
        """Contexts, then tokens."""
        return self.contexts, self.tokens

    @property
    def prediction(self) -> str:
        """What the geometries are, as a phrase."""
        if self.is_proxy:
            return "the proxy"
        return "the limit of training" if self.loss_gap is None else f"a loss gap of {self.loss_gap:g} nats"

    def to_dict(self) -> dict[str, Any]:
        """What is shared, the agreement, what moved most, and the limitations."""
        return {
            "shared_tokens": len(self.tokens.names),
            "shared_contexts": len(self.contexts.names),
            "first": asdict(self.first) | {"share": self.first.share},
            "second": asdict(self.second) | {"share": self.second.share},
            **{name: getattr(self, name) for name in _STORED},
            "agreements": {name: one.to_dict() for name, one in self.agreements.items()},
            "moved": {
                one.items: {"mean": float(one.moved.mean()), "listed": [asdict(item) for item in one.listed]}
                for one in self.movements
            },
            "limitations": list(self.limitations),
        }

    def to_frame(self, items: Items = "contexts") -> DataFrame:
        """Data frame with one row per shared token or context, indexed by name: how far it moved, largest first.

        ``items``
            "tokens" or "contexts".
        """
        if items not in ("tokens", "contexts"):
            raise InputError(f"items must be tokens or contexts; got {items!r}.")
        one: Movement = getattr(self, items)
        frame = data_frame({"moved": one.moved}, index=list(one.names)).rename_axis(items[:-1])
        return frame.sort_values("moved", ascending=False, kind="stable")

    def summary(self) -> str:
        """What is shared, how alike the geometries are, what moved most and why, then the limitations."""
        numbers = [f"{name}: {one} ({MEANINGS[name]})" for name, one in self.agreements.items()]
        in_limit = self.loss_gap is None
        moved = [
            item.sentence(one.items, in_limit=in_limit)
            for one in self.movements
            for item in one.listed[:SHOWN]
            if item.moved > 0
        ]
        last = [WHAT_MOVED] if moved else ["Nothing moved: the two geometries are the same."]
        return "\n".join([*self._shared(), *numbers, *moved, *last, *self.limitations])

    def _shared(self) -> list[str]:
        parts = [
            f"{100 * one.share:.3g}% of the windows counted in the {name} text ({one.windows:,} of {one.all_windows:,})"
            for name, one in (("first", self.first), ("second", self.second))
        ]
        found = [
            f"The texts share {len(self.tokens.names):,} tokens and {len(self.contexts.names):,} contexts: "
            f"{' and '.join(parts)}.",
            f"The geometries are those of {self.prediction}.",
        ]
        pairs = self.first.only_pairs + self.second.only_pairs
        if pairs:
            once = self.first.only_once + self.second.only_once
            found.append(
                f"{pairs:,} pairs of a context and a next token are in one text alone ({self.first.only_pairs:,} in "
                f"the first, {self.second.only_pairs:,} in the second); {once:,} of them occur once, which may be "
                "chance."
            )
        return found

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("shared tokens", f"{len(self.tokens.names):,}"),
            ("shared contexts", f"{len(self.contexts.names):,}"),
            ("windows compared", f"{self.first.share:.0%} and {self.second.share:.0%}"),
            *(
                (name.replace("_", " "), str(self.agreements[name]))
                for name in ("context_agreement", "token_agreement")
            ),
            ("prediction", self.prediction),
        ]

    def _repr_html_(self) -> str:
        columns = ("items", "name", "moved", "gained", "lost", "in the first text alone", "in the second text alone")
        rows = [(one.items, item.label, *item.cells()) for one in self.movements for item in one.listed[:SHOWN]]
        numbers = [f"{name.replace('_', ' ')}: {one}" for name, one in self.agreements.items()]
        sentences = [*self._shared(), *numbers, *self.limitations]
        return html_table(self.title, rows, sentences, columns)

    def checks(self, beside: NearbyResults = ALONE) -> dict[str, bool | None]:
        """Whether lists and intervals fit the numbers, and whether all is the same when computed again."""
        # That module makes such comparisons, and so imports this one.
        from tokengeom.comparison.compare_texts import compare_texts_again

        return {
            "every interval contains its value": all(one.is_inside for one in self.agreements.values()),
            "the listed tokens and contexts are those that moved most": all(one.is_sorted for one in self.movements),
            **compare_texts_again(self, beside),
        }

    def to_json(self) -> dict[str, Any]:
        """Everything that is saved, as valid JSON: NaN is null."""
        content = {name: getattr(self, name) for name in _STORED}
        content |= {name: asdict(getattr(self, name)) for name in ("first", "second")}
        content["agreements"] = {name: one.to_dict() for name, one in self.agreements.items()}
        content |= {one.items: one.to_json() for one in self.movements}
        content |= {"limitations": list(self.limitations), "settings": dict(self.settings)}
        found: dict[str, Any] = nan_to_none(content)
        return found

    def _write(self, folder: Path) -> dict[str, Any]:
        (folder / FILE).write_bytes(as_json(self.to_json()))
        return {name: getattr(self, name) for name in _STORED}

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        stored = Entries(json.loads((folder / FILE).read_text(encoding="utf-8")), folder)
        stored.only(*_STORED, "first", "second", "agreements", "tokens", "contexts", "limitations", "settings")
        for name in _STORED:
            if name not in manifest or stored.value(name) != manifest[name]:
                raise stored.damaged(f"{name} is not the same in {FILE} and in the manifest")
        numbers = stored.inside("agreements")
        if sorted(numbers.names) != sorted(NUMBERS):
            raise stored.damaged(f"its agreements must be {', '.join(NUMBERS)}")
        return cls(
            first=ComparedText.read(stored.inside("first")),
            second=ComparedText.read(stored.inside("second")),
            agreements={name: Agreement.read(numbers.inside(name)) for name in NUMBERS},
            tokens=Movement.read("tokens", stored.inside("tokens")),
            contexts=Movement.read("contexts", stored.inside("contexts")),
            loss_gap=stored.within("loss_gap", 0.0) if stored.has("loss_gap") else None,
            is_proxy=stored.flag("is_proxy"),
            limitations=stored.texts("limitations"),
            settings=_settings(stored.inside("settings")),
        )


def _settings(stored: Entries) -> dict[str, Any]:
    """Saved settings, each of its type."""
    stored.only("top", "neighbours", "norm", "proxy", "tolerance", "permutations", "seed", "loss_gap")
    found: dict[str, Any] = {name: stored.whole(name) for name in ("top", "neighbours", "permutations", "seed")}
    found |= {"norm": stored.text("norm"), "tolerance": stored.within("tolerance", 0.0)}
    found["proxy"] = stored.flag("proxy") if stored.has("proxy") else None
    return found | {"loss_gap": stored.within("loss_gap", 0.0) if stored.has("loss_gap") else None}
