"""`TextComparison`: the predicted geometries of two texts on what they share, and which tokens and contexts moved most.

How far an item moved, how far beyond chance, and what halves of the texts say is defined in
`tokengeom.comparison.movement`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np

from tokengeom.ask.item_search import quoted
from tokengeom.ask.named_vectors import Items
from tokengeom.comparison.agreement import Agreement, check_permutations
from tokengeom.comparison.similarity_numbers import KINDS
from tokengeom.comparison.target import MEANINGS
from tokengeom.core.errors import InputError
from tokengeom.core.numerics import rounded_percent
from tokengeom.core.settings import check_seed, check_tolerance, option, takes
from tokengeom.results.contract import AbstractJsonResult, data_frame, html_table
from tokengeom.results.convert import Added, Digest, Number, Skipped, Vector, Within, from_plain
from tokengeom.theory.at_loss import NORMS, require_norm

if TYPE_CHECKING:
    from pandas import DataFrame

SHOWN = 10
"""Tokens, and contexts, that the summary and a notebook show."""
NUMBERS = tuple(f"{item}_{kind}" for item in ("context", "token") for kind in KINDS)
"""Names of the numbers that say how alike the two geometries are."""
_STORED = ("loss_gap", "is_proxy")
LARGEST = 2.0
"""Largest number that an item can have: 1 less the smallest correlation."""
FEWEST_WINDOWS = 5
"""Windows that an item must have in every half of the texts, for a number beyond chance."""
Count = Annotated[int, Within(0)]
Cosine = Annotated[float, Within(-1.0, 1.0)]

WHAT_MOVED = (
    "Moved by: 1 less the correlation of an item's cosines with all others in the first text and in the second, from 0 "
    "to 2. Gained and lost: from the first text to the second."
)
WHAT_IS_BEYOND_CHANCE = (
    "Beyond chance: the smallest of these numbers between a half of the one text and a half of the other, less the "
    "larger of those between the two halves of one text. Listed are tokens and contexts with at least "
    f"{FEWEST_WINDOWS} windows in every half for which it is positive, largest first."
)


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
    ``beyond``
        How far it moved beyond chance; NaN where the texts were not split.
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
    beyond: Annotated[Number, Added(None)] = float("nan")

    def cells(self) -> tuple[str, ...]:
        """Numbers, neighbours and supports as a table shows them."""
        beyond = "" if isnan(self.beyond) else f"{self.beyond:.3f}"
        cells = [
            f"{self.moved:.3f}",
            beyond,
            *(", ".join(quoted(one.name) for one in some) for some in (self.gained, self.lost)),
        ]
        for listed, count in ((self.only_first, self.in_first), (self.only_second, self.in_second)):
            more = [f"{count - len(listed):,} more"] if count > len(listed) else []
            cells.append(", ".join([*(f"{quoted(follower.name)} ({follower.count:,})" for follower in listed), *more]))
        return tuple(cells)

    @property
    def label(self) -> str:
        """Its name, and how many have the same supports."""
        return f"{quoted(self.name)}{f' and {self.alike:,} with the same supports' if self.alike else ''}"

    def sentence(self, items: Items, *, in_limit: bool) -> str:
        """Name, numbers and neighbours, then the reason in the supports."""
        _, beyond, gained, lost, first, second = self.cells()
        near = [f"{verb} {names}" for verb, names in (("gained", gained), ("lost", lost)) if names]
        far = f"{self.moved:.3f}{f' ({beyond} beyond chance)' if beyond else ''}"
        text = f"{self.label} moved by {far}: {'; '.join(near) or 'the same neighbours'}."
        verb, alone = "followed by" if items == "contexts" else "follows", (("first", first), ("second", second))
        reasons = "; ".join(f"in the {place} text alone {verb} {names}" for place, names in alone if names)
        if reasons:
            return f"{text} {reasons[:1].upper()}{reasons[1:]}."
        alike = "The same tokens follow it" if items == "contexts" else "It follows the same contexts"
        differs = "the supports of others" if in_limit else "how often, or the supports of others"
        return f"{text} {alike} in both texts; what differs: {differs}."


@dataclass(frozen=True, eq=False)
class Movement:
    """How far every shared token, or every shared context, moved.

    ``names``, ``moved``
        All of them in the order of their names, and their numbers.
    ``listed``
        Those that moved most beyond chance, with neighbours and reasons, largest first, or simply most where the texts
        were not split; of contexts with the same supports one.
    ``beyond``
        How far each of them moved beyond chance, NaN for those with fewer than `FEWEST_WINDOWS` windows in a half;
        empty where the texts were not split.
    """

    names: tuple[str, ...]
    moved: Annotated[Vector, Within(0.0, LARGEST)]
    listed: tuple[MovedItem, ...]
    items: Annotated[Items, Skipped] = "contexts"
    beyond: Annotated[tuple[Number, ...], Added(())] = ()

    def __post_init__(self) -> None:
        if len(self.names) != len(self.moved) or len(self.beyond) not in (0, len(self.names)):
            raise ValueError(f"{self.items} must have one number per name")
        if not {item.name for item in self.listed} <= set(self.names):
            raise ValueError(f"{self.items} are listed that the texts do not share")

    @property
    def seen_enough(self) -> int:
        """How many have enough windows in every half for a number beyond chance."""
        return int(np.isfinite(self.beyond).sum())

    @property
    def beyond_chance(self) -> int:
        """How many moved beyond chance."""
        return sum(number > 0 for number in self.beyond)


@dataclass(frozen=True)
class Halves:
    """What the halves of two texts have: windows in the smallest of the four, and the tokens and contexts of all."""

    windows: Annotated[int, Within(1)]
    tokens: Annotated[int, Within(1)]
    contexts: Annotated[int, Within(1)]


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
class CompareTextsSettings:
    """Settings of `compare_texts`."""

    top: int = option(20, "Tokens, and contexts, to list among those that moved most.")
    neighbours: int = option(5, "Nearest neighbours to compare.")
    norm: str = option(
        "nuclear",
        "Norm of the logits that is smallest at a loss gap: nuclear, or gamma2, which is nearer to Adam.",
        choices=lambda: tuple(NORMS),
    )
    proxy: bool | None = option(
        None, "Whether to compare the proxy instead of the prediction. By default where the prediction would be large."
    )
    tolerance: float = option(1e-4, "Proven relative gap of all predictions.")
    permutations: int = option(200, "Permutations behind the floors; at least 20, or 0 for no floors.")
    seed: int = option(0, "Seed of permutations, Gaussian embeddings and halves.")
    halves: bool | None = option(
        None,
        "Whether to split both texts at random into halves, which show how alike two samples of one text are, and what "
        "moved beyond chance; four more predictions. By default where these are not large.",
    )

    def __post_init__(self) -> None:
        require_norm(self.norm)
        check_tolerance(self.tolerance)
        check_permutations(self.permutations)
        check_seed(self.seed)
        for name in ("top", "neighbours"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1; got {getattr(self, name)}.")


@dataclass(frozen=True)
class _Saved(CompareTextsSettings):
    """Settings as they are saved, with the loss gap that was asked for."""

    loss_gap: Annotated[float, Within(0.0)] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class TextComparison(AbstractJsonResult):
    """The predicted geometries of two texts, compared on the tokens and contexts that both have.

    ``first``, ``second``
        What of each text is compared.
    ``agreements``
        `NUMBERS` -> how alike the two geometries are, with interval and floor, as `compare` gives them; where the texts
        were split, those of contexts and tokens also with what their halves say about it.
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
    ``halves``
        What the halves of both texts have in common; None where the texts were not split.
    """

    kind: ClassVar[str] = "tokengeom-texts"
    title: ClassVar[str] = "Two texts compared"
    file: ClassVar[str] = "texts.json"
    repeated: ClassVar[tuple[str, ...]] = _STORED

    saved_order: ClassVar[tuple[str, ...]] = (
        *_STORED,
        *("first", "second", "agreements", "contexts", "tokens", "limitations", "settings", "halves"),
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
    halves: Annotated[Halves | None, Added(None)] = None

    def __post_init__(self) -> None:
        if not set(NUMBERS) <= self.agreements.keys() <= MEANINGS.keys():
            raise ValueError(f"its agreements must be {', '.join(NUMBERS)}")
        if any(bool(moved.beyond) != (self.halves is not None) for moved in self.movements):
            raise ValueError("what moved beyond chance is known if and only if there are halves")

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

    @property
    def keywords(self) -> dict[str, Any]:
        """Keywords with which `compare_texts` makes it again."""
        if "halves" in self.settings:
            return dict(self.settings)
        # Version 0.1.0 did not split texts, and predicted the limit unless a loss gap was given.
        return {**self.settings, "loss_gap": self.settings["loss_gap"] or 0.0, "halves": False}

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
            "halves": None if self.halves is None else asdict(self.halves),
        }

    @takes()
    def to_frame(self, items: Items = "contexts") -> DataFrame:
        """Data frame with one row per shared token or context, indexed by name: how far it moved, largest first.

        ``beyond_chance`` is NaN for what was seen too rarely in a half of the texts, and where they were not split.

        ``items``
            "tokens" or "contexts".
        """
        movement: Movement = getattr(self, items)
        beyond = movement.beyond or [float("nan")] * len(movement.names)
        columns = {"moved": movement.moved, "beyond_chance": beyond}
        frame = data_frame(columns, index=list(movement.names)).rename_axis(items[:-1])
        return frame.sort_values("moved", ascending=False, kind="stable")

    def summary(self) -> str:
        """What is shared, how alike the geometries are, what moved most and why, then the limitations."""
        in_limit = self.loss_gap is None
        moved = [
            item.sentence(movement.items, in_limit=in_limit)
            for movement in self.movements
            for item in movement.listed[:SHOWN]
            if item.moved > 0
        ]
        return "\n".join([*self._shared(), *self._alike(), *moved, *self._what_moved(), *self.limitations])

    def _alike(self) -> list[str]:
        """What the halves say, then every number of the whole texts."""
        numbers = [
            f"{name}: {_of_whole_texts(agreement)} ({MEANINGS[name]})" for name, agreement in self.agreements.items()
        ]
        if self.halves is None:
            return numbers
        halves = (
            f"Each text is split at random into halves of about {self.halves.windows:,} windows; "
            f"{self.halves.tokens:,} tokens and {self.halves.contexts:,} contexts are in all four."
        )
        return [halves, *(self._corrected(item) for item in ("context", "token")), *numbers]

    def _corrected(self, item: str) -> str:
        known = self.agreements[f"{item}_agreement"]
        within = f"halves of the same text {known.reproducible:.2f} and {known.reliability:.2f}"
        agreed = f"{item.capitalize()}s agree {known.value:.2f}; {within}, halves of different texts {known.mean:.2f}"
        if not isfinite(known.corrected):
            return f"{agreed}. Halves of one text do not agree with each other: texts of this size cannot be compared."
        ends = f" [{known.corrected_low:.2f}, {known.corrected_high:.2f}]" if isfinite(known.corrected_low) else ""
        return f"{agreed}: corrected {known.corrected:.2f}{ends}, where 1 would be two samples of one text."

    def _what_moved(self) -> list[str]:
        if not any(movement.moved.any() for movement in self.movements):
            return ["Nothing moved: the two geometries are the same."]
        if self.halves is None:
            return [WHAT_MOVED]
        parts = [f"{one.beyond_chance:,} of {one.seen_enough:,} {one.items}" for one in self.movements]
        count = (
            f"Beyond chance moved {' and '.join(parts)} that have at least {FEWEST_WINDOWS} windows in every half; in "
            "two samples of one text, up to about 1 in 15 would."
        )
        return [count, f"{WHAT_MOVED} {WHAT_IS_BEYOND_CHANCE}"]

    def _shared(self) -> list[str]:
        parts = [
            f"{100 * text.share:.3g}% of the windows in the statistics of the {name} text ({text.windows:,} of "
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
            ("windows compared", f"{rounded_percent(self.first.share)} and {rounded_percent(self.second.share)}"),
            ("context agreement", _of_whole_texts(self.agreements["context_agreement"])),
            ("token agreement", _of_whole_texts(self.agreements["token_agreement"])),
            ("prediction", self.prediction),
        ]

    def _repr_html_(self) -> str:
        columns = (
            *("items", "name", "moved", "beyond chance", "gained", "lost"),
            *("in the first text alone", "in the second text alone"),
        )
        rows = [(moved.items, item.label, *item.cells()) for moved in self.movements for item in moved.listed[:SHOWN]]
        sentences = [*self._shared(), *self._alike(), *self.limitations]
        return html_table(self.title, rows, sentences, columns)

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        texts = super()._read(folder, manifest)
        from_plain(_Saved, {"halves": False, **texts.settings}, folder, "settings")
        numbers = {name: texts.agreements[name] for name in NUMBERS}
        return replace(texts, agreements=numbers, tokens=replace(texts.tokens, items="tokens"))


def _of_whole_texts(agreement: Agreement) -> str:
    """An agreement without what the halves say about it."""
    return str(replace(agreement, reproducible=float("nan"), corrected=float("nan")))
