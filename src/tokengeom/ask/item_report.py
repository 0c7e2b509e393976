"""`ItemReport`: what the text says about a token or context, where a geometry puts it, and what pulls it there.

The facts of the text come from the statistics: how frequent the item is, what follows it or what it follows, and which
items have exactly the same support. Logits, neighbours and pulls come from a prediction, a run or a trained model; a
prediction has pulls, because it satisfies optimality conditions (``theory.pulls``)::

    cos(x, y) = sum_i c_i + residual

where
    x, y    the item, and one of its neighbours or itself
    c_i     contribution of the i-th token to the cosine of two contexts, or of the i-th context to that of two tokens
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tokengeom.ask.item_search import Item, quoted, shown
from tokengeom.ask.neighbours import SHARED, Neighbours
from tokengeom.core.numerics import rounded_percent
from tokengeom.results.contract import html_table

if TYPE_CHECKING:
    from pandas import DataFrame

SMALLEST_SHOWN = 5e-4
"""Contribution from which on it is listed by itself."""
SMALLEST_DIVIDED = 1e-3
"""Cosine from which on contributions are shown as shares of it."""
KIND_NAMES = {
    "position": "shared positions",
    "pair": "shared pairs",
    "suffix": "shared suffixes",
    "places": "other shared sets of places",
    "self": "the contexts themselves",
    "own": "shared features",
}
"""Kinds of features (`ContextFeatures.kind`) in a sentence."""
DIFFERENT = "pairs of different features"


@dataclass(frozen=True)
class Follows:
    """A token that follows the context, or a context that the token follows.

    ``count``, ``share``
        How often, where counted, and as a share of all windows of the context in the text.
    """

    name: str
    count: int | None
    share: float


@dataclass(frozen=True)
class Support:
    """Next tokens of a context, or contexts that a token follows: how many, and the most frequent of them.

    ``left_out``
        Share of the context's windows in the text that cuts left out.
    ``merged``
        Share of them that end in the token that stands for merged ones.
    """

    size: int
    rows: tuple[Follows, ...]
    left_out: float = 0.0
    merged: float = 0.0


@dataclass(frozen=True)
class Group:
    """Items with exactly the same support: how many, itself among them, and the most frequent other ones.

    ``low``, ``high``
        Smallest and largest cosine of the item with the others; None where there are no others, or no direction.
    """

    size: int
    names: tuple[str, ...]
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Logit:
    """Logits of one token after the context, and the probabilities of the text and of the model.

    ``values``
        "finite" and "direction" in the limit; "logit" and "probability" at a loss and of a trained model.
    """

    token: str
    in_support: bool
    share: float
    values: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {"token": self.token, "in_support": self.in_support, "share": self.share, **self.values}


@dataclass(frozen=True)
class Pull:
    """Contribution of one item, or of several with the same support, to a cosine.

    ``members``
        Number of items; ``name`` is the most frequent of them.
    ``positive``
        Whether the item itself is pulled towards them (rather than away from them).
    ``windows``
        Windows of the text that it rests on: those in which they occur together with the item, and of a cosine with
        another item with both, as often as with the rarer of the two. None where not counted.
    """

    name: str
    members: int
    positive: bool
    contribution: float
    windows: int | None = None


@dataclass(frozen=True)
class Pulled:
    """A cosine as a sum of contributions.

    ``towards``, ``own``, ``cosine``
        The neighbour, or the item itself (``own``), and the cosine with it.
    ``pulls``, ``others``
        The largest contributions, those that rest on two windows or more first, and the sum of all others.
    ``mean``
        Of tokens: what removing the mean of the tokens adds.
    ``residual``
        What is left: the accuracy of the prediction.
    """

    towards: str
    own: bool
    cosine: float
    pulls: tuple[Pull, ...]
    others: float
    mean: float
    residual: float

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, with each contribution as a share."""
        return asdict(self) | {"share": [self.share(pull.contribution) for pull in self.pulls]}

    def share(self, contribution: float) -> float | None:
        """A contribution as a share of the cosine; None where the cosine is nearly 0."""
        return contribution / self.cosine if abs(self.cosine) > SMALLEST_DIVIDED else None


@dataclass(frozen=True, eq=False)
class Measured:
    """The same item in a run or trained model.

    ``neighbours``, ``cosines``, ``common``
        Its neighbours there, the cosines of the predicted neighbours, and how many of these are neighbours there.
    ``group``
        Cosines within the support group.
    ``probabilities``, ``context_gap``
        Of a context: probabilities of the tokens in `ItemReport.logits`, and its loss above its entropy, in nats.
    """

    neighbours: Neighbours
    cosines: tuple[float, ...]
    common: int
    group: Group
    probabilities: tuple[float, ...] = ()
    context_gap: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return vars(self) | {"neighbours": self.neighbours.to_dict()["neighbours"], "group": asdict(self.group)}


@dataclass(frozen=True)
class SharedFeatures:
    """The cosine of two contexts as a sum over pairs of their features, where contexts are tied.

    ``towards``, ``cosine``
        Name of the other context, and the cosine.
    ``rows``
        Kind and name of each feature that both have, and what it contributes by itself.
    ``others``
        What pairs of different features contribute, by the tokens that follow them.
    ``kinds``
        Kinds of features that contexts have here.
    """

    towards: str
    cosine: float
    rows: tuple[tuple[str, str, float], ...]
    others: float
    kinds: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        shared = [{"kind": kind, "name": name, "contribution": part} for kind, name, part in self.rows]
        named = {"towards": self.towards, "cosine": self.cosine, "shared": shared, "others": self.others}
        return named | {"by_kind": self.by_kind}

    @property
    def by_kind(self) -> dict[str, float]:
        """What the shared features of each kind contribute together; with ``others`` they add up to the cosine."""
        sums = dict.fromkeys(self.kinds, 0.0)
        for kind, _, part in self.rows:
            sums[kind] += part
        return sums

    @property
    def sentence(self) -> str:
        """The cosine and what it consists of, by feature and by kind of feature."""
        listed = ", ".join(f"{name} {part:+.3f}" for _, name, part in self.rows) or "none"
        return (
            f"Its cosine with {quoted(self.towards)}, {self.cosine:.3f}, by features that both have: {listed}; by "
            f"different features, through the tokens that follow them: {self.others:+.3f}.{self._shares()}"
        )

    def _shares(self) -> str:
        """Shares of the kinds, as a sentence; empty where the cosine is nearly 0, or there is one kind alone."""
        if abs(self.cosine) < SMALLEST_DIVIDED or len(self.kinds) < 2:
            return ""
        parts = {KIND_NAMES[kind]: part for kind, part in self.by_kind.items()} | {DIFFERENT: self.others}
        return f" By kind: {', '.join(f'{name} {rounded_percent(x / self.cosine)}' for name, x in parts.items())}."


@dataclass(frozen=True, eq=False, repr=False)
class ItemReport:
    """What is known about one token or context: what `explain` returns.

    ``item``, ``source``
        What was asked for, and what its geometry is: a prediction, a run, a model.
    ``share``, ``count``
        Share of the text's windows that have this context, or that have a context that is kept and this next token;
        and their number where counted. Of a context that was not counted 0.
    ``support``, ``group``
        What follows the context, or what the token follows; and items with exactly the same support.
    ``companions``
        Of a token: tokens that follow the most contexts together with it, with the number of these contexts.
    ``logits``, ``context_gap``
        Of a context: logits of its most frequent tokens and of the highest ones outside its support; and its loss above
        its entropy in nats, where the geometry has a loss.
    ``neighbours``
        Nearest items with another support.
    ``pulled``
        What pulls it: first the item itself, then its nearest neighbours; empty without optimality conditions.
    ``measured``
        The same item in runs and trained models, by name.
    ``notes``
        Sentences about limitations.
    ``features``
        Of a context, where contexts are tied: its length and its cosines with its nearest neighbours, by features.
    """

    item: Item
    source: str
    share: float
    count: int | None
    support: Support
    group: Group
    companions: tuple[tuple[str, int], ...]
    logits: tuple[Logit, ...]
    context_gap: float | None
    neighbours: Neighbours
    pulled: tuple[Pulled, ...]
    measured: Mapping[str, Measured]
    notes: tuple[str, ...]
    features: tuple[SharedFeatures, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        of_kind = (
            {"logits": [logit.to_dict() for logit in self.logits], "context_gap": self.context_gap}
            if self.item.items == "contexts"
            else {"companions": [{"token": name, "shared": number} for name, number in self.companions]}
        )
        return {
            "item": self.item.name,
            "items": self.item.items,
            **self.item.how_seen,
            "source": self.source,
            "share": self.share,
            "count": self.count,
            "support": asdict(self.support),
            "group": asdict(self.group),
            **of_kind,
            "neighbours": self.neighbours.to_dict()["neighbours"],
            "pulled": [pulled.to_dict() for pulled in self.pulled],
            **({"features": [shared.to_dict() for shared in self.features]} if self.features else {}),
            "measured": {name: measured.to_dict() for name, measured in self.measured.items()},
            "notes": list(self.notes),
        }

    def to_frame(self) -> DataFrame:
        """Data frame of the nearest items, as `Neighbours.to_frame` has it."""
        return self.neighbours.to_frame()

    @property
    def title(self) -> str:
        """Which item this is about, and in which geometry."""
        return f"The {self.item.kind} {quoted(self.item.name)}, {self.source}"

    @property
    def nearest_title(self) -> str:
        """Which neighbours are listed."""
        other = "" if self.item.placed is not None else " with another support"
        return f"Nearest {self.item.items}{other}"

    def facts(self) -> list[str]:
        """Sentences on the text: how frequent the item is, its support and its support group.

        Of a context that was not counted: that it was not, and which of its features the text has.
        """
        if self.item.placed is not None:
            listed = ", ".join(f"{name} {rounded_percent(part)}" for name, part in self.item.placed.shared_features())
            return [self.item.note, f"Its features in the text, as shares of its squared length: {listed}."]
        often = "" if self.count is None else f" ({_number(self.count, 'window')})"
        sentences = [self.item.note] if self.item.note else []
        windows = "all windows" if self.count is None else "the text's windows"
        begins, kept = ("begins", "") if self.item.items == "contexts" else ("ends", ", after the contexts kept")
        sentences.append(f"It {begins} {rounded_percent(self.share, 3)} of {windows}{kept}{often}.")
        size, left_out = self.support.size, self.support.left_out
        if self.item.items == "contexts":
            cut = f"; cuts left out {rounded_percent(left_out, 1)} of its windows" if left_out > 0 else ""
            named = _number(size, "token")
            if self.support.merged:
                named = "Only merged tokens" if size == 1 else f"{_number(size - 1, 'token')} and merged ones"
            sentences.append(f"{named} may follow it: {self._followed(6)}{cut}.")
        else:
            followed = f"It follows {_number(size, 'context')}, in this share of their windows: {self._followed(4)}."
            sentences.append(followed if size else "It follows no context.")
            if self.companions:
                listed = ", ".join(f"{quoted(name)} ({number:,})" for name, number in self.companions[:6])
                sentences.append(f"Tokens that follow the most of these contexts too: {listed}.")
        return [*sentences, self._group_sentence()]

    def _followed(self, most: int) -> str:
        listed = ", ".join(f"{quoted(row.name)} {rounded_percent(row.share)}" for row in self.support.rows[:most])
        more = self.support.size - min(most, len(self.support.rows))
        return listed + (f", and {more:,} more" if more > 0 else "")

    def _group_sentence(self) -> str:
        what, group = self.item.items, self.group
        alike = "the same next tokens" if what == "contexts" else "exactly the same contexts"
        if self.support.merged:
            # The merged token may stand for different ones after different contexts.
            alike = "the same support, in which one token stands for all merged ones"
        if group.size == 1:
            return f"No other {self.item.kind} has {alike}."
        verb = "has" if group.size == 2 else "have"
        others = f"{group.size - 1:,} other {what if group.size > 2 else self.item.kind}"
        cosines = "" if group.low is None or group.high is None else f" ({_range(group.low, group.high)})"
        more = group.size - 1 - len(group.names)
        listed = ", ".join(map(quoted, group.names)) + (f", and {more:,} more" if more > 0 else "")
        return f"{others} {verb} {alike}{cosines}: {listed}."

    def summary(self) -> str:
        """Everything in sentences, one per line."""
        lines = [f"{self.title}.", *self.facts()]
        if self.logits:
            shown_logits = (f"{quoted(logit.token)} {_values(logit.values)}" for logit in self.logits)
            lines.append(f"Logits: {'; '.join(shown_logits)}.")
        if self.context_gap is not None:
            lines.append(f"Its loss is {self.context_gap:.3g} nats above its entropy.")
        if self.neighbours.rows:
            nearest = ", ".join(f"{quoted(row.name)} {row.cosine:.3f}" for row in self.neighbours.rows)
            lines.append(f"{self.nearest_title}: {nearest}.")
        lines += [shared.sentence for shared in self.features]
        lines += [pulled_sentence(pulled, self.item) for pulled in self.pulled]
        lines += [measured_sentence(name, measured, self.item) for name, measured in self.measured.items()]
        return "\n".join([*lines, *self.notes])

    def __repr__(self) -> str:
        return f"ItemReport({self.item.kind} {shown(self.item.name)}, {self.source})"

    def _repr_html_(self) -> str:
        columns, sentences = (self.item.kind, "cosine", "shared", "of"), self.summary().splitlines()[1:]
        return html_table(self.title, self.neighbours.table(), sentences, columns)


Explanation = ItemReport
"""Its name in 0.1.0."""


def pulled_sentence(pulled: Pulled, item: Item) -> str:
    """A cosine and its largest contributions, with the windows that they rest on."""
    listed = ", ".join(f"{pull_name(pull)} {pull.contribution:+.3f}{pull_windows(pull)}" for pull in pulled.pulls)
    mean = f"; the mean that is removed {pulled.mean:+.3f}" if abs(pulled.mean) >= SMALLEST_SHOWN else ""
    rest = f"; all others {pulled.others:+.3f}{mean}; residual {pulled.residual:+.1e}"
    what = f"Its cosine with {quoted(pulled.towards)}, {pulled.cosine:.3f}, is a sum over {SHARED[item.items]}: "
    own = f"Its direction is a sum of pulls by {SHARED[item.items]}, as shares: "
    return f"{own if pulled.own else what}{listed}{rest}."


def pull_name(pull: Pull) -> str:
    """The name of what pulls, with the number of further items with the same support."""
    return quoted(pull.name) + (f" and {pull.members - 1:,} more" if pull.members > 1 else "")


def pull_windows(pull: Pull) -> str:
    """The number of windows that a contribution rests on, in brackets; empty where not counted."""
    return "" if pull.windows is None else f" ({_number(pull.windows, 'window')})"


def measured_sentence(name: str, measured: Measured, item: Item) -> str:
    """Neighbours of an item in a run, and how many of the predicted ones are among them."""
    nearest = ", ".join(f"{quoted(row.name)} {row.cosine:.3f}" for row in measured.neighbours.rows)
    gap = "" if measured.context_gap is None else f" Loss above the entropy: {measured.context_gap:.3g} nats."
    common = f"{measured.common} of {len(measured.cosines)} predicted neighbours are among them"
    return f"In {name} the nearest {item.items} are {nearest or 'none'}; {common}.{gap}"


def _values(values: Mapping[str, float]) -> str:
    if "direction" in values:
        finite = f"{values['finite']:+.2f} " if "finite" in values else ""
        return f"{finite}{values['direction']:+.2f}R"
    return f"{values['logit']:+.2f} ({rounded_percent(values['probability'], 1)})"


def _range(low: float, high: float) -> str:
    return f"cosine {low:.3f}" if f"{low:.3f}" == f"{high:.3f}" else f"cosines {low:.3f} to {high:.3f}"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
