"""`TextComparison`: the predicted geometries of two texts on what they share, and which tokens and contexts moved most.

How far an item (a token or a context) moved is a number that no rotation changes:

``moved_i = 1 - corr_j(x_ij, y_ij)``,   j over the other items

where ``x_ij`` and ``y_ij`` are the cosines of items i and j in the geometries of the first and of the second text. 0
means that all others lie around the item in the same arrangement, 1 that the two arrangements have nothing in common.
Contexts of the same support in both texts are not paired: their cosine is the same in both. Where the cosines of an
item do not vary, they have no correlation: the number is 0 where they are equal in both texts, and 1 otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from tokengeom.ask.named_vectors import Items
from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.target import MEANINGS
from tokengeom.core.errors import InputError
from tokengeom.results.contract import AbstractResult, data_frame, html_table
from tokengeom.results.convert import (
    Digest,
    Skipped,
    Vector,
    Within,
    from_plain,
    read_json_as,
    require_same_entries,
    to_plain,
    write_json,
)

if TYPE_CHECKING:
    from pandas import DataFrame

FILE = "texts.json"
SHOWN = 10
"""Tokens, and contexts, that the summary and a notebook show."""
LARGEST = 2.0
"""Largest number that an item can have: 1 less the smallest correlation."""
NUMBERS = tuple(f"{item}_{kind}" for item in ("context", "token") for kind in ("agreement", "cka", "similarity"))
"""Names of the numbers that say how alike the two geometries are."""
_STORED = ("loss_gap", "is_proxy")
Count = Annotated[int, Within(0)]
Cosine = Annotated[float, Within(-1.0, 1.0)]

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

    statistics_hash: Digest
    windows: Count
    all_windows: Count
    tokens: Count
    contexts: Count
    only_pairs: Count
    only_once: Count

    def __post_init__(self) -> None:
        if not 0 < self.windows <= self.all_windows or self.only_once > self.only_pairs:
            raise ValueError("a part is larger than the whole")

    @property
    def share(self) -> float:
        """Share of the windows that is compared."""
        return self.windows / self.all_windows


@dataclass(frozen=True)
class Neighbour:
    """A neighbour of an item: its name, and the cosine with the item in each text."""

    name: str
    first: Cosine
    second: Cosine


@dataclass(frozen=True)
class Follower:
    """A token that follows a context, or a context that a token follows, in one text alone; how often it does there."""

    name: str
    count: Annotated[int, Within(1)]


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
    moved: Annotated[float, Within(0.0, LARGEST)]
    alike: Count
    gained: tuple[Neighbour, ...]
    lost: tuple[Neighbour, ...]
    only_first: tuple[Follower, ...]
    only_second: tuple[Follower, ...]
    in_both: Count
    in_first: Count
    in_second: Count

    def cells(self) -> tuple[str, ...]:
        """Number, neighbours and supports as a table shows them."""
        cells = [f"{self.moved:.3f}", *(", ".join(map(quoted, some)) for some in (self.gained, self.lost))]
        for listed, count in ((self.only_first, self.in_first), (self.only_second, self.in_second)):
            more = [f"{count - len(listed):,} more"] if count > len(listed) else []
            cells.append(", ".join([*(f"{quoted(follower)} ({follower.count:,})" for follower in listed), *more]))
        return tuple(cells)

    @property
    def label(self) -> str:
        """Its name, and how many have the same supports."""
        return f"{quoted(self)}{f' and {self.alike:,} with the same supports' if self.alike else ''}"

    def sentence(self, items: Items, *, in_limit: bool) -> str:
        """Name, number and neighbours, then the reason in the supports."""
        _, gained, lost, first, second = self.cells()
        near = [f"{verb} {names}" for verb, names in (("gained", gained), ("lost", lost)) if names]
        text = f"{self.label} moved by {self.moved:.3f}: {'; '.join(near) or 'the same neighbours'}."
        verb, alone = "followed by" if items == "contexts" else "follows", (("first", first), ("second", second))
        reasons = "; ".join(f"in the {place} text alone {verb} {names}" for place, names in alone if names)
        if reasons:
            return f"{text} {reasons[:1].upper()}{reasons[1:]}."
        alike = "The same tokens follow it" if items == "contexts" else "It follows the same contexts"
        differs = "the supports of others" if in_limit else "how often, or the supports of others"
        return f"{text} {alike} in both texts; what differs: {differs}."


def quoted(item: Neighbour | Follower | MovedItem) -> str:
    """The name of an item in quotation marks: names may end in a full stop, or hold commas."""
    return f"\u201c{item.name}\u201d"


@dataclass(frozen=True, eq=False)
class Movement:
    """How far every shared token, or every shared context, moved.

    ``names``, ``moved``
        All of them in the order of their names, and their numbers.
    ``listed``
        Those that moved most, with neighbours and reasons, largest first; of contexts with the same supports one.
    """

    names: tuple[str, ...]
    moved: Annotated[Vector, Within(0.0, LARGEST)]
    listed: tuple[MovedItem, ...]
    items: Annotated[Items, Skipped] = "contexts"

    def __post_init__(self) -> None:
        if len(self.names) != len(self.moved):
            raise ValueError(f"{self.items} must have one number per name")
        if not {item.name for item in self.listed} <= set(self.names):
            raise ValueError(f"{self.items} are listed that the texts do not share")


@dataclass(frozen=True)
class _Settings:
    """Types of the saved settings."""

    top: Count
    neighbours: Count
    norm: str
    proxy: bool | None
    tolerance: Annotated[float, Within(0.0)]
    permutations: Count
    seed: Count
    loss_gap: Annotated[float, Within(0.0)] | None


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

    saved_order: ClassVar[tuple[str, ...]] = (
        *_STORED,
        *("first", "second", "agreements", "contexts", "tokens", "limitations", "settings"),
    )

    first: ComparedText
    second: ComparedText
    agreements: Mapping[str, Agreement]
    tokens: Movement
    contexts: Movement
    loss_gap: Annotated[float, Within(0.0)] | None
    is_proxy: bool
    limitations: tuple[str, ...]
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        if sorted(self.agreements) != sorted(NUMBERS):
            raise ValueError(f"its agreements must be {', '.join(NUMBERS)}")

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
            "agreements": {name: agreement.to_dict() for name, agreement in self.agreements.items()},
            "moved": {
                moved.items: {"mean": float(moved.moved.mean()), "listed": [asdict(item) for item in moved.listed]}
                for moved in self.movements
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
        movement: Movement = getattr(self, items)
        frame = data_frame({"moved": movement.moved}, index=list(movement.names)).rename_axis(items[:-1])
        return frame.sort_values("moved", ascending=False, kind="stable")

    def summary(self) -> str:
        """What is shared, how alike the geometries are, what moved most and why, then the limitations."""
        numbers = [f"{name}: {agreement} ({MEANINGS[name]})" for name, agreement in self.agreements.items()]
        in_limit = self.loss_gap is None
        moved = [
            item.sentence(movement.items, in_limit=in_limit)
            for movement in self.movements
            for item in movement.listed[:SHOWN]
            if item.moved > 0
        ]
        last = [WHAT_MOVED] if moved else ["Nothing moved: the two geometries are the same."]
        return "\n".join([*self._shared(), *numbers, *moved, *last, *self.limitations])

    def _shared(self) -> list[str]:
        parts = [
            f"{100 * text.share:.3g}% of the windows counted in the {name} text ({text.windows:,} of "
            f"{text.all_windows:,})"
            for name, text in (("first", self.first), ("second", self.second))
        ]
        sentences = [
            f"The texts share {len(self.tokens.names):,} tokens and {len(self.contexts.names):,} contexts: "
            f"{' and '.join(parts)}.",
            f"The geometries are those of {self.prediction}.",
        ]
        pairs = self.first.only_pairs + self.second.only_pairs
        if pairs:
            once = self.first.only_once + self.second.only_once
            sentences.append(
                f"{pairs:,} pairs of a context and a next token are in one text alone ({self.first.only_pairs:,} in "
                f"the first, {self.second.only_pairs:,} in the second); {once:,} of them occur once, which may be "
                "chance."
            )
        return sentences

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("shared tokens", f"{len(self.tokens.names):,}"),
            ("shared contexts", f"{len(self.contexts.names):,}"),
            ("windows compared", f"{self.first.share:.0%} and {self.second.share:.0%}"),
            ("context agreement", str(self.agreements["context_agreement"])),
            ("token agreement", str(self.agreements["token_agreement"])),
            ("prediction", self.prediction),
        ]

    def _repr_html_(self) -> str:
        columns = ("items", "name", "moved", "gained", "lost", "in the first text alone", "in the second text alone")
        rows = [(moved.items, item.label, *item.cells()) for moved in self.movements for item in moved.listed[:SHOWN]]
        numbers = [f"{name.replace('_', ' ')}: {agreement}" for name, agreement in self.agreements.items()]
        sentences = [*self._shared(), *numbers, *self.limitations]
        return html_table(self.title, rows, sentences, columns)

    def to_json(self) -> dict[str, Any]:
        """Everything that is saved, as valid JSON: NaN is null."""
        content: dict[str, Any] = to_plain(self)
        return content

    def _write(self, folder: Path) -> dict[str, Any]:
        write_json(folder / FILE, self)
        return {name: getattr(self, name) for name in _STORED}

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        texts = read_json_as(cls, folder / FILE)
        require_same_entries({name: getattr(texts, name) for name in _STORED}, manifest, folder, FILE)
        from_plain(_Settings, texts.settings, folder, "settings")
        numbers = {name: texts.agreements[name] for name in NUMBERS}
        return replace(texts, agreements=numbers, tokens=replace(texts.tokens, items="tokens"))
