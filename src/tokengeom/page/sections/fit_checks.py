"""Does a run fit the theory? Four checks per run, and for each that fails its likely causes and what to try.

The papers name four signatures of failure: the loss does not approach the entropy floor, the direction does not align,
contexts with equal supports do not collapse, frequencies inside the supports are wrong [thrampoulidis2024, zhao2024].
The check of alignment is the verdict of the comparison itself (`tokengeom.comparison.verdict`); each other check
compares one number with named thresholds. Titles by level, and likely causes of a failure with what to try, of a run
and of a trained model, of which only the text can be chosen, are in ``templates/findings.json``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.logit_numbers import FiniteLogits
from tokengeom.comparison.verdict import AGREES, IN_PART, Outcome
from tokengeom.core.factors import Factors, HasFactors
from tokengeom.core.numerics import Bool
from tokengeom.page.formatting import count, listed, number, percent, texts
from tokengeom.page.report_contents import ReportContents
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.run import Run

Level = Literal["fits", "in part", "does not fit", "not judged"]
Explained = Iterator[tuple[str, ...]]
"""Causes of a failed check, each followed by what to try."""
CHECKS = ("loss", "alignment", "collapse", "frequencies")
ITEMS = {"contexts": "support_agreement", "tokens": "token_agreement"}
"""Kinds of items that are judged, and the name of their number; each pair of supports counts once."""

LOSS_FITS, LOSS_PART = 0.01, 0.1
"""Loss gap, as a share of the loss gap of a uniform guess. Geometry comes from the tokens that a run has ruled out: at
10% it has not ruled out much, below 1% nearly all."""
OF_OUTCOME: dict[Outcome, Level] = {
    "agrees": "fits",
    "agrees in part": "in part",
    "another explanation fits better": "in part",
    "does not agree": "does not fit",
    "cannot be determined": "not judged",
}
"""Level of the check of alignment, by the outcome of the verdict."""
AGREE = {
    "agrees": "agree",
    "in part": "agree in part",
    "does not agree": "do not agree",
    "not judged": "are not judged",
}
COLLAPSE_FITS, COLLAPSE_PART = 0.1, 0.5
"""Scatter of directions within support groups over the scatter between them: a tenth is visible as collapse in the
heat-map, a half is not."""
FREQUENCY_FITS, FREQUENCY_PART = 0.1, 0.5
"""Root mean square error, in nats, of log-probability ratios inside the supports: at 0.1 ratios are wrong by about 10%,
at 0.5 by about 65%."""

MORE_STEPS = "Train for more steps: directions converge slowly, for one-hot labels like 1/log(steps)."
NOT_FREE = (
    "A network's context embeddings are not free vectors: contexts that the architecture makes similar stay similar, "
    "whatever follows them."
)
MUCH_MISSING = 0.1
"""Share of further windows outside the supports from which on they are named as a cause."""
LARGEST_DECAY = 1e-5
"""Weight decay above which it is named as a cause."""


@dataclass(frozen=True)
class FitCheck:
    """One check of one run.

    ``name``                  One of `CHECKS`.
    ``sentence``              The measured number and the thresholds that it was compared with.
    ``causes``, ``remedies``  Likely causes, those that certainly apply to this run first, and what to try, in this
                              order; both empty where the check fits or could not be judged.
    """

    run: str
    name: str
    level: Level
    sentence: str
    title: str
    causes: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True)
class FitChecks:
    """All checks of all runs."""

    checks: tuple[FitCheck, ...]

    @property
    def misfits(self) -> tuple[FitCheck, ...]:
        """Checks that fail, or pass only in part; the worst first."""
        return (*self.at_level("does not fit"), *self.at_level("in part"))

    def at_level(self, level: Level) -> list[FitCheck]:
        """Checks with this outcome."""
        return [check for check in self.checks if check.level == level]

    def level(self, run: str, name: str = "alignment") -> Level:
        """Level of one check of one run."""
        levels = (check.level for check in self.checks if (check.run, check.name) == (run, name))
        return next(levels, "not judged")


def check_fit(contents: ReportContents) -> FitChecks:
    """Check every run."""
    judged = [
        _explained(contents, run, name, *judgement)
        for run in reversed(list(contents.runs))
        for name, judgement in _judgements(contents, run).items()
    ]
    return FitChecks(tuple(judged))


def _judgements(contents: ReportContents, name: str) -> dict[str, tuple[Level, str]]:
    """Level and sentence of each check of one run."""
    run = contents.runs[name]
    if isinstance(run, Run) and not is_finite(run):
        return {"loss": ("does not fit", f"The run has numbers that are not finite ({run.status}).")}
    judges = (_loss, _alignment, _collapse, _frequencies)
    return {check: judge(contents, name) for check, judge in zip(CHECKS, judges, strict=True)}


def is_finite(run: HasFactors) -> bool:
    """Whether all embeddings of a run are finite."""
    return bool(np.isfinite(run.W).all() and np.isfinite(run.H).all())


def graded(value: float, fits: float, part: float) -> Level:
    """Level of a number of which smaller is better."""
    if math.isnan(value):
        return "not judged"
    return "fits" if value <= fits else "in part" if value <= part else "does not fit"


def _loss(contents: ReportContents, name: str) -> tuple[Level, str]:
    gap = contents.runs[name].loss_gap
    uniform = math.log(contents.stats.V) - contents.stats.entropy
    if uniform <= 0:
        return "not judged", "A uniform guess is already at the entropy floor."
    share = gap / uniform
    where = f"{'ended' if name in contents.trained else 'is'} {number(gap)} nats above the entropy floor"
    sentence = (
        f"The loss {where}, {percent(share)} of the loss gap of a uniform guess (at most {percent(LOSS_FITS)} fits, "
        f"above {percent(LOSS_PART)} does not). The prediction in the limit is for a loss at the floor."
    )
    return graded(share, LOSS_FITS, LOSS_PART), sentence


def agreements_of(comparison: Comparison) -> dict[str, Agreement]:
    """The judged agreement of contexts and of tokens; only those defined."""
    return {items: one for items, one in comparison.judged_agreements.items() if math.isfinite(one.value)}


def together_of(comparison: Comparison) -> dict[str, Agreement]:
    """Agreement of contexts and of tokens with all explanations by counts together; empty where they were not made."""
    return {} if comparison.evidence is None else dict(comparison.evidence.together)


def _levels(comparison: Comparison) -> dict[str, str]:
    """How far contexts and tokens agree by themselves, as a phrase."""
    evidence = comparison.evidence
    return {} if evidence is None else {items: AGREE[evidence.levels[items]] for items in agreements_of(comparison)}


def _alignment(contents: ReportContents, name: str) -> tuple[Level, str]:
    comparison = contents.comparisons.get(name)
    if comparison is None:
        return "not judged", f"The {contents.noun} was not compared with a prediction."
    levels = _levels(comparison)
    by_items = f" By themselves, {listed(f'{items} {said}' for items, said in levels.items())}." if levels else ""
    rule = (
        f" Agreement needs an interval above chance and {AGREES:.0%} of the reproducible geometry explained; from "
        f"{IN_PART:.0%} on it is agreement in part."
    )
    sentence = contents.reasons(name)[0] + by_items + rule
    return OF_OUTCOME[comparison.verdict], sentence


def collapsing_groups(contents: ReportContents) -> Bool:
    """Groups that theory predicts to collapse: several contexts, and a support that is not the whole vocabulary."""
    groups = contents.stats.groups
    return np.asarray((groups.multiplicity > 1) & (np.diff(groups.S.indptr) < contents.stats.V))


def _collapse(contents: ReportContents, name: str) -> tuple[Level, str]:
    comparison = contents.comparisons.get(name)
    scatter = comparison.agreements.get("collapse") if comparison is not None else None
    if scatter is None:
        return "not judged", "Collapse was not measured."
    if math.isnan(scatter.value):
        why = "No two contexts share a support that leaves a token out, or all contexts do: collapse is not defined."
        return "not judged", why
    level, chance = graded(scatter.value, COLLAPSE_FITS, COLLAPSE_PART), ""
    if scatter.has_floor and not scatter.above_floor:
        # A good number that chance reaches too is no evidence; a number that is not good counts against the fit.
        few = ": they are too few or too similar for a permutation to change much" if level == "fits" else ""
        chance = f" For these groups, this is no better than chance{few}."
        level = "not judged" if level == "fits" else "does not fit"
    floor = f"; 5th percentile for random groups: {number(scatter.floor)}" if math.isfinite(scatter.floor) else ""
    sentence = (
        f"Scatter of directions within support groups over the scatter between them: {number(scatter.value)}{floor} "
        f"(at most {COLLAPSE_FITS} fits, above {COLLAPSE_PART} does not).{chance}"
    )
    return level, sentence


def frequency_error(contents: ReportContents, name: str) -> float:
    """Root mean square error of a run's centred log-probabilities inside supports; NaN if all supports are one-hot."""
    several = contents.stats.support_sizes > 1
    if not several.any():
        return float("nan")
    finite = FiniteLogits.of(contents.stats.P)
    errors = finite.squared_errors(Factors.of(contents.runs[name]))
    return float(np.sqrt(errors[several].sum() / contents.stats.support_sizes[several].sum()))


def _frequencies(contents: ReportContents, name: str) -> tuple[Level, str]:
    error = frequency_error(contents, name)
    if math.isnan(error):
        why = "Every support is a single token: there are no frequencies inside the supports."
        return "not judged", why
    sentence = (
        f"The root mean square error of log-probabilities inside the supports is {number(error)} nats (at most "
        f"{FREQUENCY_FITS} fits, above {FREQUENCY_PART} does not)."
    )
    return graded(error, FREQUENCY_FITS, FREQUENCY_PART), sentence


def _explained(contents: ReportContents, run: str, name: str, level: Level, sentence: str) -> FitCheck:
    """A check with its title and, where it fails, causes and remedies."""
    words = texts("findings.json")[name]
    if level in ("fits", "not judged"):
        return FitCheck(run, name, level, sentence, words["titles"]["fits"])
    title, comparison = words["titles"][level], contents.comparisons.get(run)
    if name == "alignment" and comparison is not None and comparison.better_explanation:
        title = f"Another explanation fits the geometry better: {comparison.better_explanation}"
    explained = list(_causes(contents, run, name))
    remedies = dict.fromkeys(remedy for _, *remedies in explained for remedy in remedies)
    return FitCheck(run, name, level, sentence, title, tuple(cause for cause, *_ in explained), tuple(remedies))


def _causes(contents: ReportContents, run: str, name: str) -> Explained:
    trained = contents.trained.get(run)
    if trained is not None and not is_finite(trained):
        yield "The steps were too large, and numbers overflowed.", "Reduce the learning rate, for example tenfold."
        return
    yield from _measured_causes(contents, run)
    if name == "alignment":
        yield from _disagreement_causes(contents, run)
    if trained is None or _can_be(name, trained):
        yield from map(tuple, texts("findings.json")[name]["model" if trained is None else "run"])


def _can_be(name: str, run: Run) -> bool:
    """Whether the usual causes can apply: a loss that falls is not stuck, and a rate that was lowered not too large."""
    if name == "loss":
        return not still_falling(run)
    schedule = run.settings.get("rate_schedule")
    return name != "alignment" or not isinstance(schedule, dict) or schedule.get("name") == "constant"


def _measured_causes(contents: ReportContents, name: str) -> Explained:
    """Causes that are known to apply."""
    prediction, run, missing = contents.prediction, contents.trained.get(name), contents.stats.completeness
    d = contents.runs[name].H.shape[0]
    if run is not None and run.status != "finished":
        yield f"The run is not complete: {run.status}.", "Let the run finish."
    if isinstance(prediction, FeaturePrediction) and prediction.rank and not prediction.suffices(d):
        rank = f"The embeddings have {count(d, 'dimension')}, and the predicted geometry has rank {prediction.rank}."
        wider = f"Train with at least {prediction.smallest_dim} dimensions."
        yield rank, *([] if run is None else [wider])
    if isinstance(prediction, FeaturePrediction) and prediction.spread and not prediction.spread.looks_unique:
        yield ("The predicted direction is not unique for these supports: another optimal one may fit better.",)
    if run is not None and still_falling(run):
        yield "The loss was still falling when training ended.", MORE_STEPS
    decay = 0.0 if run is None else run.settings.get("weight_decay", 0.0)
    if isinstance(decay, int | float) and decay > LARGEST_DECAY:
        limited = f"Weight decay ({decay:g}) limits the norms; the prediction is for vanishing weight decay."
        yield limited, "Reduce the weight decay."
    if run is None and missing is not None and missing.missing_share > MUCH_MISSING:
        share = percent(missing.missing_share)
        yield (f"The supports are not well known: about {share} of further windows would have a token outside them.",)


def still_falling(run: Run) -> bool:
    """Whether the recorded loss gap fell by more than a tenth over the last half of the steps."""
    if "loss_gap" not in run.trajectory.names or len(run.trajectory) < 2:
        return False
    steps, gaps = run.trajectory.steps, run.trajectory["loss_gap"]
    before = gaps[steps <= steps[-1] / 2]
    return bool(before.size and gaps[-1] < 0.9 * before[-1])


def _disagreement_causes(contents: ReportContents, name: str) -> Explained:
    """Where the comparison found that a disagreement comes from, and what is particular to the model."""
    comparison, run = contents.comparisons[name], contents.trained.get(name)
    sources = comparison.disagreement
    if sources is not None and sources.remedies():
        first, *others = sources.sentences(contents.noun)
        yield first, *([] if run is None else sources.remedies())
        yield from ((sentence,) for sentence in others)
    if run is None:
        return
    if comparison.norm is None:
        late = "The run was compared in the limit of training, and directions converge later than the loss."
        yield late, MORE_STEPS
    if run.settings.get("model") != "ufm":
        yield NOT_FREE, "Compare with a run of the unconstrained features model, whose context embeddings are free."
