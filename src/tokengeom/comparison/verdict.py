"""The verdict of a comparison: what share of the reproducible geometry the prediction explains.

With two or more trainings the share of contexts (each pair of supports counted once) and of tokens that is explained is
measured. With one training it lies between bounds: at least the square of the agreement, and at most that divided by
what all explanations by counts explain together, because all of that is reproducible. An item *agrees* when at least
75% is explained, and *in part* from 30% on. It is not judged where less than 10% is reproducible, where the interval
is too wide to tell these apart, or where there are fewer than ten groups or tokens; and it does not agree where its
interval reaches down to chance. The rules, in this order:

1. Every context has one next token, or neither contexts nor tokens can be judged: cannot be determined.
2. Another explanation agrees at least in part, is above the floor in contexts and tokens, clearly ahead of the
   prediction in one of them (by 0.02, with an interval that excludes 0), and clearly behind in neither: another
   explanation fits better.
3. The loss is not below that of the tokens' frequencies alone, and contexts or tokens do not agree at least in part:
   does not agree; cannot be determined, where contexts cannot be judged and tokens agree.
4. Neither contexts nor tokens are above the floor: agrees in part, if contexts with equal supports collapse; else does
   not agree.
5. The loss is above that of a uniform guess: cannot be determined.
6. Both agree, or one does and the other is not judged: agrees. One agrees, or agrees in part: agrees in part.
   Otherwise: does not agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Annotated, Literal

from tokengeom.comparison.agreement import TIE, Agreement
from tokengeom.comparison.explained import RivalRow
from tokengeom.comparison.target import COUNTS, FEWEST_GROUPS, Tables, Target
from tokengeom.core.numerics import rounded_percent
from tokengeom.results.convert import Added, Within

Outcome = Literal[
    "agrees", "agrees in part", "another explanation fits better", "does not agree", "cannot be determined"
]
Level = Literal["agrees", "in part", "does not agree", "not judged"]

AGREES, SURELY, IN_PART = 0.75, 0.5, 0.3
"""Explained share from which on an item agrees, which its interval must then not fall below, and agrees in part."""
WEIGHTINGS_DIFFER = 0.1
"""Difference of the agreement over pairs of contexts from that over pairs of supports that is worth a sentence."""
COLLAPSED = 0.5
"""Share of its floor below which the collapse number counts as collapse."""
CLEARLY_AHEAD = 0.02
"""Difference in agreement from which on another explanation matters."""
JUDGED = ("supports", "tokens")
"""Kinds of items that the verdict is about. Which weighting of contexts is robust was decided by simulation."""


@dataclass(frozen=True)
class Verdict:
    """The outcome, sentences that give the reasons (first the verdict itself), and the explanation that fits better."""

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
        Share of the text's windows that are kept; None where not known.
    ``merged``
        Share of the windows kept that end in the token that stands for merged ones.
    ``frequency_gap``, ``uniform_gap``
        Loss gaps of a guess by the tokens' frequencies, and of a uniform guess, in nats; None where not known.
    ``d``, ``rank``
        Dimensions of the run's embeddings, and rank of the prediction.
    ``large_groups``
        Which groups hold many of the pairs of contexts, as a phrase; None where none do.
    """

    groups: Annotated[int, Within(0)]
    V: Annotated[int, Within(0)]
    one_hot: bool
    coverage: float | None
    frequency_gap: float | None
    uniform_gap: float | None
    d: Annotated[int, Within(0)]
    rank: Annotated[int, Within(0)]
    large_groups: Annotated[str | None, Added(None)] = None
    merged: Annotated[float, Within(0.0, 1.0), Added(0.0)] = 0.0


@dataclass(frozen=True, kw_only=True)
class Evidence(Circumstances):
    """What a verdict is based on.

    ``contexts``, ``tokens``
        Agreement at the loss reached; in the limit, where nothing was predicted at the loss. Each pair of supports
        counts once.
    ``by_pairs``
        The same for contexts, with each pair of them counted once.
    ``together``
        Agreement of all explanations by counts together, for contexts and tokens; empty where they were not made.
    ``collapse``
        Scatter within support groups over that between them; None where no two contexts share a support.
    ``rows``
        Explanations of contexts and of tokens, the prediction among them.
    ``target``, ``prediction``
        What the run is compared with: "prediction at the loss reached", "prediction in the limit", "proxy"; and its
        name among the explanations.
    ``loss_gap``
        Loss gap of the run in nats; None where not known.
    """

    contexts: Agreement
    tokens: Agreement
    by_pairs: Agreement
    together: Mapping[str, Agreement]
    collapse: Agreement | None
    rows: Sequence[RivalRow]
    target: str
    prediction: str
    loss_gap: float | None

    @staticmethod
    def of(
        tables: Tables, rows: Sequence[RivalRow], target: Target, loss_gap: float | None, circumstances: Circumstances
    ) -> Evidence:
        """What the verdict on learned features is based on; ``target`` is the one that it is about."""
        judged = tables[target.key]
        return Evidence(
            contexts=judged.get("support_agreement", judged["context_agreement"]),
            tokens=judged["token_agreement"],
            by_pairs=judged["context_agreement"],
            together=explained_together(tables, rows),
            collapse=tables.get("", {}).get("collapse"),
            rows=rows,
            target=target.subject,
            prediction=target.info.name,
            loss_gap=loss_gap,
            **asdict(circumstances),
        )

    @cached_property
    def levels(self) -> dict[str, Level]:
        """How far contexts and tokens agree, each by itself; too few of them are not judged."""
        sizes = {"contexts": self.groups, "tokens": self.V}
        return {
            items: "not judged" if few < FEWEST_GROUPS else level_of(getattr(self, items), self.together.get(items))
            for items, few in sizes.items()
        }


def explained_together(tables: Tables, rows: Sequence[RivalRow]) -> dict[str, Agreement]:
    """Agreement of all explanations by counts together, for contexts and tokens; empty where they were not made.

    Their sum is fitted on other items, so that with few items it can be worse than the best single explanation, which
    then counts.
    """
    together = {}
    for items, named in zip(JUDGED, ("contexts", "tokens"), strict=True):
        agreement = tables.get(COUNTS.key, {}).get(f"{items.removesuffix('s')}_agreement")
        if agreement is not None:
            single = [row.agreement.fair for row in rows if row.items == items and math.isfinite(row.agreement.fair)]
            together[named] = replace(agreement, value=max([agreement.value, *single]))
    return together


def _not_below(gap: float | None, other: float | None) -> bool:
    """Whether a loss gap is known to be no better than another, or is NaN."""
    return gap is not None and other is not None and not gap < other


def explained_bounds(agreement: Agreement, together: Agreement | None = None) -> tuple[float, float]:
    """Smallest and largest share of the reproducible geometry that may be explained.

    With several trainings both are the measured share. With one, whatever is explained by anything is reproducible.
    """
    if math.isfinite(agreement.explained):
        return agreement.explained, agreement.explained
    least = max(agreement.fair, 0.0) ** 2
    most = 1.0 if together is None or not together.value > 0 else least / together.value**2
    return least, min(max(most, least), 1.0)


def level_of(agreement: Agreement, together: Agreement | None = None) -> Level:
    """How far one kind of items agrees, by the rule above."""
    if not agreement.has_floor or agreement.is_hardly_reproducible:
        return "not judged"
    if not agreement.above_floor:
        return "does not agree"
    if is_too_wide(agreement):
        return "not judged"
    least, most = explained_bounds(agreement, together)
    if least >= AGREES:
        return "agrees"
    if most < IN_PART:
        return "does not agree"
    return "in part" if least >= IN_PART or most < AGREES else "not judged"


def is_too_wide(agreement: Agreement) -> bool:
    """Whether the interval of the explained share cannot tell agreement from disagreement."""
    low, high = agreement.explained_interval
    if not math.isfinite(agreement.explained) or math.isnan(low):
        return False
    return low < SURELY if agreement.explained >= AGREES else low < IN_PART / 2 and high >= AGREES


def judge(evidence: Evidence, noun: str = "run") -> Verdict:
    """The verdict by the rules above; ``noun`` is what the sentences call that which was compared."""
    outcome, why, better = _outcome(evidence)
    reasons = (_headline(evidence, outcome, why, better, noun), *_details(evidence, noun))
    return Verdict(outcome, reasons, better)


def judge_decoder(cosine: Agreement) -> Verdict:
    """The verdict on a decoder with fixed embeddings, from its cosine with W_mm."""
    sentence = "The decoder has no cosine with W_mm, or W_mm is 0."
    if math.isfinite(cosine.value):
        sentence = f"After subtracting W_star, the decoder's cosine with W_mm is {cosine}."
    outcome: Outcome = "does not agree" if cosine.has_floor else "cannot be determined"
    if cosine.above_floor and cosine.value >= IN_PART:
        outcome = "agrees" if cosine.value >= AGREES else "agrees in part"
    return Verdict(outcome, (sentence,))


def _outcome(evidence: Evidence) -> tuple[Outcome, str, str | None]:
    """Outcome, why where that is not clear from the numbers, and the better explanation."""
    levels = set(evidence.levels.values())
    if evidence.one_hot:
        return "cannot be determined", "every context has one next token, so that there is only classification", None
    if levels == {"not judged"}:
        return "cannot be determined", _why_not_judged(evidence), None
    above = [getattr(evidence, items).above_floor for items, level in evidence.levels.items() if level != "not judged"]
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
    if levels & {"agrees", "in part"}:
        return "agrees in part", "", None
    return "does not agree", "", None


def _why_not_judged(evidence: Evidence) -> str:
    """Why neither contexts nor tokens are judged: what is said of both."""
    why = [_not_judged(evidence, items) for items in ("contexts", "tokens")]
    return why[0] if why[0] == why[1] else f"contexts: {why[0]}; tokens: {why[1]}"


def _not_judged(evidence: Evidence, items: str) -> str:
    """Why the contexts or tokens are not judged."""
    agreement: Agreement = getattr(evidence, items)
    count, units = (evidence.groups, "support groups") if items == "contexts" else (evidence.V, "tokens")
    low, high = agreement.explained_interval
    if count < FEWEST_GROUPS:
        return f"there are only {count} {units}"
    if not math.isfinite(agreement.value):
        return "the predicted cosines do not vary, so that there is nothing to correlate"
    if not agreement.has_floor:
        return "floors were not asked for (permutations=0)"
    if agreement.is_hardly_reproducible:
        return f"too little is reproducible (trainings agree {agreement.reproducible:.2f})"
    if is_too_wide(agreement):
        return f"the interval of the explained share, {rounded_percent(low)} to {rounded_percent(high)}, is too wide"
    least, most = explained_bounds(agreement, evidence.together.get(items))
    return (
        f"with one training the explained share is only known to be between {rounded_percent(least)} and "
        f"{rounded_percent(most)}; further trainings with other seeds would show it"
    )


def _collapses(evidence: Evidence) -> bool:
    collapse = evidence.collapse
    return collapse is not None and collapse.above_floor and collapse.value <= COLLAPSED * collapse.floor


def better_explanation(rows: Sequence[RivalRow]) -> str | None:
    """The explanation that fits, is clearly ahead of the prediction in something, and is behind in nothing.

    It fits where it is above the floor in contexts and in tokens (in one, where the other is not defined), and explains
    enough to agree at least in part in one of them. Of several, the one with the largest lead over both together.
    """
    by_name: dict[str, list[RivalRow]] = {}
    for row in rows:
        if not row.ours and row.items in JUDGED:
            by_name.setdefault(row.rival, []).append(row)
    leads: dict[str, float] = {}
    for name, of_rival in by_name.items():
        ahead = any(row.ahead.is_clear and row.ahead.value >= CLEARLY_AHEAD for row in of_rival)
        behind = any(row.ahead.high < 0.0 and row.ahead.value <= -CLEARLY_AHEAD for row in of_rival)
        at_chance = any(row.agreement.has_floor and not row.agreement.above_floor for row in of_rival)
        fits = not at_chance and any(explained_bounds(row.agreement)[0] >= IN_PART for row in of_rival)
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
    shares = [_share(evidence, items) for items in ("contexts", "tokens")]
    explains = f" The prediction explains {shares[0]}, and {shares[1]}"
    text = "" if evidence.coverage is None else f", on contexts that cover {_percent(evidence.coverage)} of the text"
    merged = f"; {_percent(evidence.merged)} of these windows end in a merged token" if text and evidence.merged else ""
    return f"{said}{reason}.{explains}{text}{merged}."


def _share(evidence: Evidence, items: str) -> str:
    """What share of contexts or tokens is explained, as in "88% [82, 93] of ...", with the agreement."""
    agreement: Agreement = getattr(evidence, items)
    if not math.isfinite(agreement.value):
        return f"nothing of {items}, whose agreement is not defined"
    floor = f", chance {agreement.floor:.2f}" if math.isfinite(agreement.floor) else ""
    if agreement.is_hardly_reproducible:
        return f"{items} to an unknown share, because trainings agree only {agreement.reproducible:.2f} on them"
    if math.isfinite(agreement.reproducible):
        share = agreement.explained_text() or "none"
        scale = f"agreement {agreement.mean:.2f}{floor}, attainable {agreement.attainable:.2f}"
        return f"{share} of the reproducible geometry of {items} ({scale})"
    together = evidence.together.get(items)
    counts = ""
    if together is not None and together.value > 0:
        counts = f"; all explanations by counts together {rounded_percent(together.value**2)}"
    share = rounded_percent(max(agreement.value, 0.0) ** 2)
    return f"{share} of the geometry of {items} in this training (agreement {agreement.value:.2f}{floor}{counts})"


def _percent(share: float) -> str:
    return rounded_percent(share, 0 if 0.1 <= share < 0.995 or share == 1 else 1)


def _details(evidence: Evidence, noun: str) -> list[str]:
    sentences = [_best_sentence(evidence, items) for items in JUDGED]
    sentences.append(_weighting_sentence(evidence))
    if math.isnan(evidence.contexts.reproducible):
        sentences += [_counts_sentence(evidence, items) for items in JUDGED]
        sentences.append(
            "There is one training: compare with further ones, trained with other seeds, to see how much of the "
            "geometry is reproducible."
        )
    if evidence.d < evidence.rank:
        sentences.append(
            f"The {noun} has d={evidence.d} dimensions and the prediction needs {evidence.rank}: some disagreement is "
            "expected, and is not evidence against the prediction."
        )
    unjudged = [items for items, level in evidence.levels.items() if level == "not judged"]
    if len(unjudged) == 1:
        sentences.append(f"The {unjudged[0]} are not judged: {_not_judged(evidence, unjudged[0])}.")
    return [sentence for sentence in sentences if sentence]


def _counts_sentence(evidence: Evidence, items: str) -> str:
    """What share of all that counts explain the prediction has, and the best single explanation."""
    named, own, others = _rows_of(evidence, items)
    together = evidence.together.get(named)
    if own is None or not others or together is None or not together.value > 0:
        return ""
    best = max([own, *others], key=lambda row: row.agreement.fair)

    def share(row: RivalRow) -> str:
        return rounded_percent(min(max(row.agreement.fair, 0.0) / together.value, 1.0) ** 2)

    single = "" if best is own else f", and the best single explanation, {best.rival}, {share(best)}"
    return f"Of what counts explain of the {named}, all explanations together, the prediction has {share(own)}{single}."


def _rows_of(evidence: Evidence, items: str) -> tuple[str, RivalRow | None, list[RivalRow]]:
    """What the items are called, the row of the judged prediction, and the rows of other explanations."""
    known = [row for row in evidence.rows if row.items == items and math.isfinite(row.agreement.value)]
    own = next((row for row in known if row.rival == evidence.prediction), None)
    return "contexts" if items == "supports" else items, own, [row for row in known if not row.ours]


def _weighting_sentence(evidence: Evidence) -> str:
    """Where each pair of contexts counted once gives another answer, and which groups make the difference."""
    once, pairs = evidence.contexts, evidence.by_pairs
    if not abs(once.value - pairs.value) >= WEIGHTINGS_DIFFER:
        return ""
    interval = f" [{pairs.low:.2f}, {pairs.high:.2f}]" if math.isfinite(pairs.low) else ""
    groups = f" Then {evidence.large_groups}." if evidence.large_groups else ""
    return (
        f"Each pair of supports counts once here ({once.value:.2f}). With each pair of contexts counted once, the "
        f"agreement is {pairs.value:.2f}{interval}.{groups}"
    )


def _best_sentence(evidence: Evidence, items: str) -> str:
    """Which explanation is best for these items, and whether the difference to the prediction is clear.

    Of the predictions only the judged one counts; what the other norm gives is said elsewhere. Explanations that are
    trained are in the table of `rivals` alone.
    """
    named, own, others = _rows_of(evidence, items)
    if own is None or not others:
        return ""
    best = max(others, key=lambda row: row.agreement.fair)
    pair = f"{best.rival} ({best.meaning}; {best.agreement.fair:.2f})", f"the prediction ({own.agreement.fair:.2f})"
    if abs(best.ahead.value) <= TIE:
        return f"Of the explanations that need no training, the best for {named} are equal: {pair[1]} and {pair[0]}."
    leads = best.ahead.value > 0
    first, second = pair if leads else pair[::-1]
    is_clear = best.ahead.is_clear if leads else best.ahead.high < 0
    return (
        f"Of the explanations that need no training, the best for {named} is {first}, "
        f"{'clearly' if is_clear else 'not clearly'} ahead of {second}: difference "
        f"{best.ahead if leads else best.ahead.turned}."
    )
