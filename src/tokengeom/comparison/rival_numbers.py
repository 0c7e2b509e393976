"""Rows of a table of explanations: how well each one fits a run's contexts or tokens, all on the same pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.comparison.agreement import ITEMS, Agreement, AssessedNumbers
from tokengeom.comparison.held_out import FoldedNumbers
from tokengeom.comparison.similarity import NO_VARIATION
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.core.numerics import cosines

if TYPE_CHECKING:
    from tokengeom.comparison.explanations.base import AbstractFit, AbstractRival, Known
    from tokengeom.core.checks import Entries
    from tokengeom.core.factors import Factors
    from tokengeom.core.numerics import Float, Int
    from tokengeom.statistics.next_token import NextTokenStatistics

RESOLUTION = 1e-3
"""Differences of agreement below this are within the accuracy of the solvers."""
MOST_CHOOSING = 500
"""Contexts on which a free parameter is chosen; of more, this many drawn at random."""


@dataclass(frozen=True)
class Lead:
    """Difference in agreement between two explanations, with its paired 95% interval."""

    value: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the low end of the interval is above the resolution."""
        return self.low > RESOLUTION

    @staticmethod
    def read(stored: Entries) -> Lead:
        """The difference whose fields were saved, with null for NaN."""
        stored.only("value", "low", "high")
        return Lead(*(stored.number_or_nan(name) for name in ("value", "low", "high")))

    def __str__(self) -> str:
        interval = f" [{self.low:.3g}, {self.high:.3g}]" if np.isfinite(self.low) else ""
        return f"{self.value:.3g}{interval}"


@dataclass(frozen=True)
class ExplanationInfo:
    """What an explanation is.

    ``name``, ``meaning``
        Short name in tables, and what it is in a phrase.
    ``uses``
        What it is made from: "supports", "probabilities", "counts", "probabilities and the loss".
    ``parameters``
        Its free parameters and how they were chosen; "none" where there are none.
    ``ours``
        Whether it is the prediction itself, at a loss or in the limit.
    """

    name: str
    meaning: str
    uses: str
    parameters: str = "none"
    ours: bool = False


@dataclass(frozen=True)
class RivalRow:
    """One explanation, evaluated on one kind of items of a run.

    ``rival``, ``meaning``, ``uses``, ``parameters``, ``ours``
        As in `ExplanationInfo`.
    ``items``
        "contexts", "tokens" or "held-out contexts".
    ``agreement``, ``cka``, ``similarity``
        As in `SimilarityNumbers`, with intervals and, where they were asked for, floors and ceiling.
    ``behind``
        How far its agreement is behind that of the best explanation of these items; 0 for the best itself.
    ``ahead``
        How far its agreement is ahead of the prediction's; NaN where no prediction was among the explanations.
    ``without_direction``
        Number of items without a direction; they count as unlike all others.
    """

    rival: str
    meaning: str
    uses: str
    parameters: str
    ours: bool
    items: str
    agreement: Agreement
    cka: Agreement
    similarity: Agreement
    behind: Lead
    ahead: Lead
    without_direction: int

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, nested."""
        numbers = {name: getattr(self, name).to_dict() for name in _NUMBERS}
        return asdict(self) | numbers

    @staticmethod
    def read(stored: Entries) -> RivalRow:
        """The row that `to_dict` described, with null for NaN."""
        stored.only(*(one.name for one in fields(RivalRow)))
        return RivalRow(
            rival=stored.text("rival"),
            meaning=stored.text("meaning"),
            uses=stored.text("uses"),
            parameters=stored.text("parameters"),
            ours=stored.flag("ours"),
            items=stored.text("items", ITEMS),
            agreement=Agreement.read(stored.inside("agreement")),
            cka=Agreement.read(stored.inside("cka")),
            similarity=Agreement.read(stored.inside("similarity")),
            behind=Lead.read(stored.inside("behind")),
            ahead=Lead.read(stored.inside("ahead")),
            without_direction=stored.whole("without_direction"),
        )


_NUMBERS = ("agreement", "cka", "similarity")


def rival_rows(
    assessed: AssessedNumbers,
    explanations: Mapping[str, ExplanationInfo],
    prediction: str | None,
    agreements: Mapping[str, Agreement] | None = None,
) -> list[RivalRow]:
    """Rows of the explanations, best first; of equal ones, the first in the mapping.

    ``explanations``
        Prefix of its numbers -> what it is, simplest first.
    ``prediction``
        Prefix of the prediction that the others are compared with.
    ``agreements``
        The agreements with more references than `assessed` knows: the untrained model and the ceiling.
    """
    numbers, found = assessed.numbers, assessed.agreements() if agreements is None else agreements
    assert isinstance(numbers, SimilarityNumbers | FoldedNumbers)
    item = numbers.items.removesuffix("s").removeprefix("held-out ")

    def name(prefix: str, kind: str = "agreement") -> str:
        return f"{prefix}{item}_{kind}"

    order = sorted(explanations, key=lambda prefix: -np.nan_to_num(found[name(prefix)].value, nan=-2.0))
    unknown = (float("nan"),) * 3
    return [
        RivalRow(
            **_facts(explanations[prefix]),
            items=numbers.items,
            agreement=found[name(prefix)],
            cka=found[name(prefix, "cka")],
            similarity=found[name(prefix, "similarity")],
            behind=Lead(*assessed.difference(name(order[0]), name(prefix))),
            ahead=Lead(*(unknown if prediction is None else assessed.difference(name(prefix), name(prediction)))),
            without_direction=numbers.without_direction(prefix),
        )
        for prefix in order
    ]


def _facts(info: ExplanationInfo) -> dict[str, Any]:
    facts = asdict(info)
    return {"rival": facts.pop("name"), **facts}


def best_candidate(
    kind: type[AbstractRival], stats: NextTokenStatistics, known: Known, run: Factors, kept: Int, groups: Int
) -> tuple[ExplanationInfo, AbstractFit] | None:
    """An explanation with the free parameters at which its contexts agree best with the run; None where left out.

    ``kept``
        Contexts on which that is decided.
    ``groups``
        Support group of each context, m.
    """
    candidates = kind.candidates(replace(known, has_counts=stats.has_counts))
    if not candidates:
        return None
    fits = [one.fit(stats) for one in candidates]
    best = 0
    if len(fits) > 1:
        if kept.size > MOST_CHOOSING:
            kept = np.sort(np.random.default_rng(0).choice(kept, MOST_CHOOSING, replace=False))
        values = context_agreements(run.H[:, kept], [fit.contexts(kept) for fit in fits], groups[kept])
        best = int(np.argmax(np.nan_to_num(values, nan=-2.0)))
    chosen = kind.parameters
    if candidates[best].chosen:
        chosen = f"{candidates[best].chosen}, the best of {len(candidates)} for this run's contexts"
    return ExplanationInfo(kind.name, kind.meaning, kind.uses, chosen, kind.ours), fits[best]


def context_agreements(run: Float, targets: Sequence[Float], groups: Int) -> Float:
    """Agreement of each of several candidates over pairs of contexts with different supports; NaN where undefined."""
    apart = np.triu(groups[:, None] != groups[None, :])
    x = cosines(run)[apart]
    found = []
    for target in targets:
        y = cosines(target)[apart]
        varied = x.size > 1 and min(np.var(x), np.var(y)) > NO_VARIATION
        found.append(np.corrcoef(x, y)[0, 1] if varied else np.nan)
    return np.array(found)


def best_rival(rows: Sequence[RivalRow], items: str) -> RivalRow | None:
    """The best explanation of these items that is not the prediction itself."""
    others = [row for row in rows if row.items == items and not row.ours and np.isfinite(row.agreement.value)]
    return max(others, key=lambda row: row.agreement.value, default=None)
