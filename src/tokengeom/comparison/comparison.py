"""`Comparison`: agreement of a run with a prediction, at the loss reached and in the limit, with a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NoReturn, Self

import numpy as np

from tokengeom.ask.item_search import is_seen
from tokengeom.comparison.agreement import CONTEXTS_AND_TOKENS, Agreement, ItemKind, describe_scale
from tokengeom.comparison.explained import Explained, RivalRow
from tokengeom.comparison.inputs import Inputs, MadeFrom
from tokengeom.comparison.logit_numbers import Disagreement
from tokengeom.comparison.similarity import row_correlations
from tokengeom.comparison.target import (
    AT_LOSS,
    LIMIT,
    MEANINGS,
    TARGETS,
    NormName,
    Target,
    meaning,
    split_name,
    tables_of,
)
from tokengeom.comparison.verdict import Circumstances, Evidence, Outcome, Verdict, judge, judge_decoder
from tokengeom.core.errors import ProblemError
from tokengeom.results.contract import AbstractJsonResult, data_frame, html_table
from tokengeom.results.convert import Added, Number, Skipped, Within, from_plain, to_plain
from tokengeom.theory.at_loss import LossPrediction

if TYPE_CHECKING:
    from pandas import DataFrame

    from tokengeom.statistics.next_token import NextTokenStatistics

PredictionKind = Literal["features", "linear"]

_STORED = ("prediction_kind", "verdict", "better_explanation", "norm", "loss_gap", "runs", "permutations", "seed")
_HEADLINE = ("context_agreement", "token_agreement")
_BOTH_WEIGHTINGS = ("support_agreement", *_HEADLINE)
_PAPERS = ("context_similarity", "token_similarity")
UNEXPLAINED = 10
"""Contexts, and tokens, that are listed as explained by nothing."""
NEIGHBOURS = 3
"""Their neighbours in the model that are listed."""


@dataclass(frozen=True)
class UnexplainedItem:
    """A context or token of the run that all explanations together explain worst.

    ``name``
        The token, or the tokens of the context.
    ``correlation``
        Of its cosines with all other items, in the run and as explained.
    ``neighbours``
        Items that are nearest to it in the run, with their cosines.
    """

    items: ItemKind
    name: str
    correlation: Number
    neighbours: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        near = ", ".join(f"{_in_marks(name)} {cosine:.2f}" for name, cosine in self.neighbours)
        return f"{_in_marks(self.name)} (correlation {self.correlation:.2f}; nearest in the model: {near})"


def _in_marks(name: str) -> str:
    return f"'{name}'" if is_seen(name) else repr(name)


def unexplained_items(inputs: Inputs, together: Explained) -> tuple[UnexplainedItem, ...]:
    """The contexts and tokens that all explanations together explain worst; none where names are not known."""
    if inputs.stats is None:
        return ()
    listed: list[UnexplainedItem] = []
    for items, drawn in zip(CONTEXTS_AND_TOKENS, (inputs.drawn[0], inputs.seen[inputs.drawn[1]]), strict=True):
        named: Callable[[int], str] = inputs.stats.vocabulary.__getitem__
        if items == "contexts":
            named = inputs.stats.context_text
        X = inputs.geometries[items][0].cosines
        units = inputs.units(items)
        rows = row_correlations(X, together.of(items).cosines, units[:, None] != units[None, :])
        order = np.argsort(np.nan_to_num(rows, nan=2.0), kind="stable")[:UNEXPLAINED]
        for place in (int(k) for k in order if np.isfinite(rows[k])):
            near = [int(k) for k in np.argsort(-X[place], kind="stable") if k != place][:NEIGHBOURS]
            neighbours = tuple((named(int(drawn[k])), round(float(X[place, k]), 6)) for k in near)
            listed.append(UnexplainedItem(items, named(int(drawn[place])), float(rows[place]), neighbours))
    return tuple(listed)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(AbstractJsonResult):
    """Agreement of a run with a prediction.

    ``agreements``
        Name -> number with interval, floors and what is reproducible, as in ``comparison["limit_token_agreement"]``;
        `targets` has the same numbers as one table per target.
    ``verdict``, ``reasons``
        The outcome (`tokengeom.comparison.verdict`), and the sentences behind it; the first is the verdict in full.
    ``better_explanation``
        Name of the explanation that fits better, where the verdict says that one does.
    ``prediction_kind``
        "features" (tokens and contexts learned) or "linear" (embeddings fixed).
    ``norm``
        Norm of the prediction at the loss that the verdict is about; None where there is none.
    ``loss_gap``
        ``CE - H`` of the run in nats on the statistics of the prediction; None where not known.
    ``disagreement``
        Efficiency and split; None where they were not computed.
    ``rows``
        Explanations that need no solver, beside the prediction, for contexts in both weightings and tokens.
    ``unexplained``
        Contexts and tokens that all explanations together explain worst, with their neighbours in the run.
    ``runs``
        Number of runs: trainings with different seeds, which say what is reproducible.
    ``limitations``
        Sentences: what is not unique, what was left out, how the numbers must not be read.
    ``permutations``, ``seed``
        Number of permutations behind the floors, and the seed of every random choice.
    ``circumstances``
        What the verdict depends on besides the numbers; None for a decoder with fixed embeddings.
    ``made_from``
        Hashes of the saved results behind it, and the settings; None where they are not known.
    ``measure``
        2; 1 for a comparison of version 0.1.0, which was judged by other rules.
    ``compared``, ``at``
        Prediction and run, and the predictions at the loss, for a page; empty in a comparison that was loaded.
    """

    kind: ClassVar[str] = "tokengeom-comparison"
    title: ClassVar[str] = "Comparison"
    file: ClassVar[str] = "comparison.json"
    repeated: ClassVar[tuple[str, ...]] = _STORED

    saved_order: ClassVar[tuple[str, ...]] = (
        *_STORED,
        *("agreements", "rows", "disagreement", "circumstances", "made_from", "reasons", "limitations"),
        *("unexplained", "measure"),
    )

    agreements: Mapping[str, Agreement]
    prediction_kind: PredictionKind
    verdict: Outcome
    reasons: tuple[str, ...]
    limitations: tuple[str, ...]
    permutations: Annotated[int, Within(0)]
    seed: Annotated[int, Within(0)]
    better_explanation: str | None = None
    norm: NormName | None = None
    loss_gap: float | None = None
    disagreement: Disagreement | None = None
    rows: tuple[RivalRow, ...] = ()
    runs: Annotated[int, Within(1)] = 1
    circumstances: Circumstances | None = None
    made_from: MadeFrom | None = None
    unexplained: Annotated[tuple[UnexplainedItem, ...], Added(())] = ()
    measure: Annotated[int, Added(1)] = 2
    compared: Annotated[tuple[object, object] | None, Skipped] = None
    at: Annotated[tuple[LossPrediction, ...], Skipped] = ()

    def __post_init__(self) -> None:
        """Refuse a comparison without a number that its verdict is about, or with one that has no meaning."""
        for name in self.agreements:
            if split_name(name)[1] not in MEANINGS:
                raise ValueError(f"it has a number {name!r}, which does not exist")
        if not self.reasons:
            raise ValueError("the reason of the verdict is missing")
        missing = {"cosine_without_finite"} - set(self.agreements)
        if self.prediction_kind == "features":
            missing = {*_HEADLINE} - {*self.judged_numbers} | {*_PAPERS} - {*self._papers}
            missing |= {*_HEADLINE} - {*self.in_limit} if self.in_limit else set()
        if missing:
            raise ValueError(f"{min(missing)} is missing")

    @cached_property
    def targets(self) -> dict[str, dict[str, Agreement]]:
        """Key of each target (`tokengeom.comparison.target`) -> its numbers; those of the run alone are under ""."""
        return tables_of(self.agreements)

    @property
    def target(self) -> Target | None:
        """What the verdict is about; None for a decoder with fixed embeddings."""
        if self.norm is not None:
            return AT_LOSS[self.norm]
        known = (target for key, target in TARGETS.items() if "context_agreement" in self.targets.get(key, {}))
        return next(known, None)

    @property
    def prefix(self) -> str:
        """Beginning of the names of the numbers that the verdict is about."""
        return "" if self.target is None else self.target.named("")

    @property
    def judged_numbers(self) -> dict[str, Agreement]:
        """Numbers that the verdict is about; empty for a decoder with fixed embeddings."""
        return {} if self.target is None else self.targets.get(self.target.key, {})

    @property
    def at_loss(self) -> dict[str, Agreement]:
        """Numbers at the loss reached, in the norm of the verdict; empty where there are none."""
        return {} if self.norm is None else self.targets.get(AT_LOSS[self.norm].key, {})

    @property
    def in_limit(self) -> dict[str, Agreement]:
        """Numbers in the limit of training; empty where there are none."""
        return self.targets.get(LIMIT.key, {})

    @property
    def _papers(self) -> dict[str, Agreement]:
        """Numbers among which the papers' SIM is: in the limit, or with what the run was compared with instead."""
        return self.in_limit if "context_similarity" in self.in_limit else self.judged_numbers

    @property
    def context_agreement(self) -> Agreement:
        """Agreement of the contexts across supports, at the loss reached where it is known."""
        return self.judged_numbers.get("context_agreement") or self._refuse("context_agreement")

    @property
    def support_agreement(self) -> Agreement:
        """The same with each pair of supports counted once, which the verdict is about."""
        return self.judged_numbers.get("support_agreement") or self._refuse("support_agreement")

    @property
    def judged_agreements(self) -> dict[str, Agreement]:
        """The numbers of contexts and tokens that the verdict is about; empty for a decoder."""
        if self.target is None:
            return {}
        contexts = self.judged_numbers.get("support_agreement") or self.context_agreement
        return {"contexts": contexts, "tokens": self.token_agreement}

    @property
    def token_agreement(self) -> Agreement:
        """Agreement of different tokens, at the loss reached where it is known."""
        return self.judged_numbers.get("token_agreement") or self._refuse("token_agreement")

    @property
    def context_similarity(self) -> Agreement:
        """The papers' SIM of the contexts: with L_mm, or with what the run was compared with instead."""
        return self._papers.get("context_similarity") or self._refuse("context_similarity")

    @property
    def token_similarity(self) -> Agreement:
        """The papers' SIM of the tokens: with L_mm, or with what the run was compared with instead."""
        return self._papers.get("token_similarity") or self._refuse("token_similarity")

    @property
    def efficiency(self) -> float:
        """Smallest norm of logits with this loss over that of the run's: a proven lower bound; NaN if unknown."""
        return float("nan") if self.disagreement is None else self.disagreement.efficiency

    @property
    def split(self) -> dict[str, float]:
        """Agreement of contexts and tokens with the balanced factors of the run's own logits, and the exponent."""
        split = self.disagreement
        if split is None:
            return {}
        return {"contexts": split.split_contexts, "tokens": split.split_tokens, "exponent": split.split_exponent}

    def __getitem__(self, name: str) -> Agreement:
        return self.agreements.get(name) or self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        raise ProblemError(
            f"This comparison ({self.prediction_kind}) has no number {name!r}; it has {', '.join(self.agreements)}."
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.agreements)

    def __len__(self) -> int:
        return len(self.agreements)

    def to_dict(self) -> dict[str, Any]:
        """Verdict and headline numbers, then every number by name, explanations, draws and limitations."""
        content: dict[str, Any] = {name: getattr(self, name) for name in _STORED} | {"reasons": list(self.reasons)}
        if self.prediction_kind == "features":
            shown = [name for name in _BOTH_WEIGHTINGS if name in self.judged_numbers]
            content |= {name: getattr(self, name).to_dict() for name in (*shown, *_PAPERS)}
            in_limit = self.in_limit.items()
            content["in_limit"] = {name: agreement.to_dict() for name, agreement in in_limit if name in shown}
            content |= {"efficiency": self.efficiency, "split": self.split}
            content["unexplained"] = to_plain(self.unexplained)
        content["numbers"] = {name: agreement.to_dict() for name, agreement in self.agreements.items()}
        content["explanations"] = [row.to_dict() for row in self.rows]
        return content | {"limitations": list(self.limitations)}

    def to_frame(self) -> DataFrame:
        """Data frame with one row per number: value, interval, floors, what is explained, and what it means."""
        rows = [{"number": n, **a.to_dict(), "meaning": meaning(n)} for n, a in self.agreements.items()]
        return data_frame(rows).set_index("number")

    def named_by(self, stats: NextTokenStatistics) -> Comparison:
        """The same with the names of tokens and contexts, of which a loaded prediction knows the numbers alone."""
        names = {f"context {j}": stats.context_text(j) for j in range(stats.m)}
        names |= {f"token {z}": token for z, token in enumerate(stats.vocabulary)}
        named = [
            replace(
                item,
                name=names.get(item.name, item.name),
                neighbours=tuple((names.get(name, name), cosine) for name, cosine in item.neighbours),
            )
            for item in self.unexplained
        ]
        return replace(self, unexplained=tuple(named))

    def summary(self, noun: str = "run") -> str:
        """The verdict with its reasons, every number with its meaning, and the limitations, one per line.

        ``noun`` is what sentences call that which was compared: "run" or "model".
        """
        numbers = [f"{name}: {agreement} ({meaning(name)})" for name, agreement in self.agreements.items()]
        sources = [] if self.disagreement is None else self.disagreement.sentences(noun)
        scale = describe_scale(self.permutations, self.runs)
        reasons = self.reasons_about(noun)
        return "\n".join([*reasons, *sources, *self._unexplained(), *numbers, *scale, *self.limitations])

    def reasons_about(self, noun: str) -> Sequence[str]:
        """The verdict as sentences that call what was compared by this noun, the first of which says it all."""
        verdict = None if noun == "run" else self.judged(noun)
        made = () if verdict is None else verdict.reasons
        # What a comparison says besides its verdict comes last, and does not name what was compared.
        return [*made, *self.reasons[len(made) :]]

    def _unexplained(self) -> list[str]:
        """The contexts and tokens that nothing explains, one line each."""
        lines = []
        for items in CONTEXTS_AND_TOKENS:
            listed = [str(item) for item in self.unexplained if item.items == items]
            lines += [f"The {items} that all explanations together explain worst:", *listed] if listed else []
        return lines

    def _headline(self) -> dict[str, Agreement]:
        """The numbers that the verdict is about, and those in the limit."""
        names = ["cosine_without_finite"]
        if self.target is not None:
            shown = dict.fromkeys([self.target, *([LIMIT] if self.in_limit else [])])
            names = [target.named(number) for target in shown for number in _BOTH_WEIGHTINGS]
        return {name: self[name] for name in names if name in self.agreements}

    def _facts(self) -> list[tuple[str, str]]:
        headline = [(name, str(agreement)) for name, agreement in self._headline().items()]
        efficiency = [] if math.isnan(self.efficiency) else [("efficiency", f"{self.efficiency:.3f}")]
        return [("verdict", self.verdict), *headline, *efficiency, ("numbers", str(len(self)))]

    def _repr_html_(self) -> str:
        columns = ("number", "value", "95% interval", "floor", "attainable", "meaning")
        rows = [(name, *agreement.cells(), meaning(name)) for name, agreement in self.agreements.items()]
        return html_table(self.title, rows, [*self.reasons, *self.limitations], columns)

    def judged(self, noun: str = "run") -> Verdict | None:
        """The verdict that the numbers give, in sentences about a "run" or a "model"; None where it is not derived."""
        if self.prediction_kind == "linear":
            return judge_decoder(self["cosine_without_finite"])
        return None if self.evidence is None or self.measure < 2 else judge(self.evidence, noun)

    @cached_property
    def evidence(self) -> Evidence | None:
        """What the verdict is based on; None for a decoder with fixed embeddings."""
        if self.circumstances is None or self.target is None:
            return None
        return Evidence.of(self.targets, self.rows, self.target, self.loss_gap, self.circumstances)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The comparison that `to_json` described."""
        return from_plain(cls, stored, Path(cls.file))
