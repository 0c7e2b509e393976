"""The verdict of a comparison: whether the prediction agrees, on a scale from chance to a second training.

The scale of an item (contexts, tokens) runs from its floor (0) to its ceiling (1), or to a perfect agreement of 1 where
there is no second training. An item *agrees* when its whole interval is above the floor and it has come 80% of the way;
without a ceiling, when its value is at least 0.8 and it has come half of the way. It agrees *in part* from 30% on. The
rules, in this order:

1. Every context has one next token, or neither contexts nor tokens can be judged: cannot be determined.
2. Another explanation agrees at least in part, is above the floor in contexts and tokens, clearly ahead of the
   prediction in one of them (by 0.02, with an interval that excludes 0), and clearly behind in neither: another
   explanation fits better.
3. The loss is not below that of the tokens' frequencies alone, and contexts or tokens do not agree at least in part:
   does not agree; cannot be determined, where contexts cannot be judged and tokens agree.
4. Neither contexts nor tokens are above the floor: agrees in part, if contexts with equal supports collapse; else does
   not agree.
5. The loss is above that of a uniform guess: cannot be determined.
6. Both agree: agrees. One agrees: agrees in part. One agrees in part: agrees in part, and cannot be determined without
   a ceiling. Otherwise: does not agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.rival_table import RivalRow
from tokengeom.comparison.target import Tables, Target
from tokengeom.results.convert import Within

Outcome = Literal[
    "agrees", "agrees in part", "another explanation fits better", "does not agree", "cannot be determined"
]
Level = Literal["agrees", "in part", "does not agree", "not judged"]

AGREES, HALF_WAY, IN_PART = 0.8, 0.5, 0.3
"""Value without a ceiling, or share of the way from floor to ceiling, from which on an item agrees (in part)."""
COLLAPSED = 0.5
"""Share of its floor below which the collapse number counts as collapse."""
CLEARLY_AHEAD = 0.02
"""Difference in agreement from which on another explanation matters."""
FEWEST_GROUPS = 10
"""Support groups or tokens below which their arrangement is not judged."""


@dataclass(frozen=True)
class Verdict:
    """The outcome, and sentences that give the reasons; the first one is the verdict as a sentence.

    ``better``
        Name of the explanation that fits better, where the outcome says that one does.
    """

    outcome: Outcome
    reasons: tuple[str, ...]
    better: str | None = None


@dataclass(frozen=True)
class Circumstances:
    """What a verdict depends on besides the numbers.

    ``groups``, ``V``
        Number of support groups and of tokens.
    ``one_hot``
        Whether every context has one next token.
    ``coverage``
        Share of the text's windows that the contexts stand for; None where not known.
    ``frequency_gap``, ``uniform_gap``
        Loss gaps of a guess by the tokens' frequencies, and of a uniform guess, in nats; None where not known.
    ``d``, ``rank``
        Dimensions of the run's embeddings, and rank of the prediction.
    """

    groups: Annotated[int, Within(0)]
    V: Annotated[int, Within(0)]
    one_hot: bool
    coverage: float | None
    frequency_gap: float | None
    uniform_gap: float | None
    d: Annotated[int, Within(0)]
    rank: Annotated[int, Within(0)]


@dataclass(frozen=True, kw_only=True)
class Evidence(Circumstances):
    """What a verdict is based on.

    ``contexts``, ``tokens``
        Agreement at the loss reached; in the limit, where nothing was predicted at the loss.
    ``collapse``
        Scatter within support groups over that between them; None where no two contexts share a support.
    ``rows``
        Explanations of contexts and of tokens, the prediction among them.
    ``target``
        What the run is compared with: "prediction at the loss reached", "prediction in the limit", "proxy".
    ``loss_gap``
        Loss gap of the run in nats; None where not known.
    """

    contexts: Agreement
    tokens: Agreement
    collapse: Agreement | None
    rows: Sequence[RivalRow]
    target: str
    loss_gap: float | None

    @staticmethod
    def of(
        tables: Tables,
        rows: Sequence[RivalRow],
        target: Target,
        loss_gap: float | None,
        circumstances: Circumstances,
    ) -> Evidence:
        """What the verdict on learned features is based on; ``target`` is the one that it is about."""
        judged = tables[target.key]
        return Evidence(
            contexts=judged["context_agreement"],
            tokens=judged["token_agreement"],
            collapse=tables.get("", {}).get("collapse"),
            rows=rows,
            target=target.subject,
            loss_gap=loss_gap,
            **asdict(circumstances),
        )


def _not_below(gap: float | None, other: float | None) -> bool:
    """Whether a loss gap is known to be no better than another, or is NaN."""
    return gap is not None and other is not None and not gap < other


def level_of(agreement: Agreement) -> Level:
    """How far one kind of items agrees, by the rule above."""
    if not agreement.has_floor:
        return "not judged"
    if not agreement.above_floor:
        return "does not agree"
    share = agreement.position
    agrees = share >= AGREES
    if math.isnan(share):
        share = (agreement.value - agreement.floor) / max(1.0 - agreement.floor, 1e-9)
        agrees = agreement.value >= AGREES and share >= HALF_WAY
    return "agrees" if agrees else "in part" if share >= IN_PART else "does not agree"


def judge(evidence: Evidence, noun: str = "run") -> Verdict:
    """The verdict by the rules above; ``noun`` is what the sentences call that which was compared."""
    contexts = "not judged" if evidence.groups < FEWEST_GROUPS else level_of(evidence.contexts)
    tokens = "not judged" if evidence.V < FEWEST_GROUPS else level_of(evidence.tokens)
    outcome, why, better = _outcome(evidence, contexts, tokens)
    return Verdict(
        outcome, (_headline(evidence, outcome, why, better, noun), *_details(evidence, better, noun)), better
    )


def judge_decoder(cosine: Agreement) -> Verdict:
    """The verdict on a decoder with fixed embeddings, from its cosine with W_mm."""
    outcomes: dict[Level, Outcome] = {
        "agrees": "agrees",
        "in part": "agrees in part",
        "does not agree": "does not agree",
        "not judged": "cannot be determined",
    }
    sentence = "The decoder has no cosine with W_mm, or W_mm is 0."
    if math.isfinite(cosine.value):
        sentence = f"After subtracting W_star, the decoder's cosine with W_mm is {cosine}."
    return Verdict(outcomes[level_of(cosine)], (sentence,))


def _outcome(evidence: Evidence, contexts: Level, tokens: Level) -> tuple[Outcome, str, str | None]:
    """Outcome, why where that is not clear from the numbers, and the better explanation."""
    levels = {contexts, tokens}
    if evidence.one_hot:
        return "cannot be determined", "every context has one next token, so that there is only classification", None
    if levels == {"not judged"}:
        return "cannot be determined", _why_not_judged(evidence), None
    above = [
        agreement.above_floor
        for agreement, level in ((evidence.contexts, contexts), (evidence.tokens, tokens))
        if level != "not judged"
    ]
    better = better_explanation(evidence.rows)
    if better is not None:
        return "another explanation fits better", "", better
    if _not_below(evidence.loss_gap, evidence.frequency_gap) and not (all(above) and levels <= {"agrees", "in part"}):
        why = "the loss is not below that of the tokens' frequencies alone"
        return "cannot be determined" if levels == {"agrees", "not judged"} else "does not agree", why, None
    if not any(above):
        if _collapses(evidence):
            return "agrees in part", "contexts with equal supports collapse, but the arrangement is not the one", None
        return "does not agree", "it is no better than chance", None
    if _not_below(evidence.loss_gap, evidence.uniform_gap):
        return "cannot be determined", "the loss is above that of a uniform guess, where there is no prediction", None
    if levels <= {"agrees", "not judged"}:
        return "agrees", "", None
    if "agrees" in levels:
        return "agrees in part", "", None
    if "in part" in levels:
        if math.isnan(evidence.contexts.ceiling) and math.isnan(evidence.tokens.ceiling):
            why = "it is better than chance, but only a second training shows how much is reproducible"
            return "cannot be determined", why, None
        return "agrees in part", "", None
    return "does not agree", "it is only a little better than chance", None


def _why_not_judged(evidence: Evidence) -> str:
    if evidence.groups < FEWEST_GROUPS and evidence.V < FEWEST_GROUPS:
        return f"there are only {evidence.groups} support groups and {evidence.V} tokens"
    if not (math.isfinite(evidence.contexts.value) or math.isfinite(evidence.tokens.value)):
        return "the predicted cosines do not vary, so that there is nothing to correlate"
    return "floors were not asked for (permutations=0)"


def _collapses(evidence: Evidence) -> bool:
    collapse = evidence.collapse
    return collapse is not None and collapse.above_floor and collapse.value <= COLLAPSED * collapse.floor


def better_explanation(rows: Sequence[RivalRow]) -> str | None:
    """The explanation that fits, is clearly ahead of the prediction in something, and is behind in nothing.

    It fits where it is above the floor in contexts and in tokens (in one, where the other is not defined), and agrees
    at least in part in one of them. Of several, the one with the largest lead over contexts and tokens together.
    """
    by_name: dict[str, list[RivalRow]] = {}
    for row in rows:
        if not row.ours and row.items in ("contexts", "tokens"):
            by_name.setdefault(row.rival, []).append(row)
    leads: dict[str, float] = {}
    for name, of_rival in by_name.items():
        ahead = any(row.ahead.is_clear and row.ahead.value >= CLEARLY_AHEAD for row in of_rival)
        behind = any(row.ahead.high < 0.0 and row.ahead.value <= -CLEARLY_AHEAD for row in of_rival)
        at_chance = any(row.agreement.has_floor and not row.agreement.above_floor for row in of_rival)
        fits = not at_chance and any(level_of(row.agreement) in ("agrees", "in part") for row in of_rival)
        if ahead and not behind and fits:
            leads[name] = sum(row.ahead.value for row in of_rival if math.isfinite(row.ahead.value))
    return max(leads, key=leads.__getitem__, default=None)


def _headline(evidence: Evidence, outcome: Outcome, why: str, better: str | None, noun: str) -> str:
    """The verdict as one sentence: outcome, numbers on their scale, best explanation, share of the text."""
    said = {
        "agrees": f"The {evidence.target} agrees with the {noun}",
        "agrees in part": f"The {evidence.target} agrees in part with the {noun}",
        "another explanation fits better": f"Another explanation, {better}, fits the {noun} better than the "
        f"{evidence.target}",
        "does not agree": f"The {evidence.target} does not agree with the {noun}",
        "cannot be determined": f"Whether the {evidence.target} agrees with the {noun} cannot be determined",
    }[outcome]
    reason = f": {why}" if why else ""
    scale = f" (contexts {_place(evidence.contexts)}; tokens {_place(evidence.tokens)})"
    text = "" if evidence.coverage is None else f", on contexts that cover {_percent(evidence.coverage)} of the text"
    return f"{said}{reason}{scale}{text}."


def _place(agreement: Agreement) -> str:
    if not math.isfinite(agreement.value):
        return "not defined"
    floor = f", chance {agreement.floor:.2f}" if math.isfinite(agreement.floor) else ""
    ceiling = f", second training {agreement.ceiling:.2f}" if math.isfinite(agreement.ceiling) else ""
    return f"{agreement.value:.2f}{floor}{ceiling}"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def _details(evidence: Evidence, better: str | None, noun: str) -> list[str]:
    sentences = [_best_sentence(evidence.rows, items) for items in ("contexts", "tokens")]
    sentences += [_other_norm_sentence(evidence, items, better) for items in ("contexts", "tokens")]
    if math.isnan(evidence.contexts.ceiling):
        sentences.append(
            "There is no ceiling: compare with a second run of the same training, trained with another seed, to see "
            "how much of the geometry is reproducible."
        )
    if evidence.d < evidence.rank:
        sentences.append(
            f"The {noun} has d={evidence.d} dimensions and the prediction needs {evidence.rank}: some disagreement is "
            "expected, and is not evidence against the prediction."
        )
    for name, agreement, least in (
        ("contexts", evidence.contexts, evidence.groups),
        ("tokens", evidence.tokens, evidence.V),
    ):
        if least < FEWEST_GROUPS:
            units = "support groups" if name == "contexts" else "tokens"
            sentences.append(f"The {name} are not judged: there are only {least} {units}.")
        elif not math.isfinite(agreement.value):
            sentences.append(f"The {name} are not judged: their predicted cosines do not vary.")
    return [sentence for sentence in sentences if sentence]


def _other_norm_sentence(evidence: Evidence, items: str, better: str | None) -> str:
    """Where another explanation is ahead of the judged prediction, but not of the prediction in another norm."""
    known = [row for row in evidence.rows if row.items == items and math.isfinite(row.agreement.value)]
    ahead = [row for row in known if row.rival == better and row.ahead.is_clear and row.ahead.value >= CLEARLY_AHEAD]
    if not (ahead and known[0].ours):
        return ""
    return (
        f"For {items} {better} is ahead of the {evidence.target}, which the verdict is about, but not of the "
        f"prediction {known[0].rival}."
    )


def _best_sentence(rows: Sequence[RivalRow], items: str) -> str:
    """Which explanation is best for these items, and whether the difference to the prediction is clear."""
    known = [row for row in rows if row.items == items and math.isfinite(row.agreement.value)]
    if len(known) < 2:
        return ""
    first = known[0]
    if first.ours:
        others = [row for row in known if not row.ours]
        if not others:
            return ""
        second = others[0]
        clear = "clearly" if second.behind.is_clear else "not clearly"
        return (
            f"For {items} the best explanation is the prediction ({first.rival}, {first.agreement.value:.2f}), {clear} "
            f"ahead of {second.rival} ({second.agreement.value:.2f}; difference {second.behind})."
        )
    clear = "clearly" if first.ahead.is_clear else "not clearly"
    return (
        f"For {items} the best explanation is {first.rival} ({first.meaning}; {first.agreement.value:.2f}), {clear} "
        f"ahead of the prediction (difference {first.ahead})."
    )
