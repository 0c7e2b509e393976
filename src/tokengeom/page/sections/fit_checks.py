"""Does a run fit the theory? Four checks per run, and for each that fails its likely causes and what to try.

The papers name four signatures of failure: the loss does not approach the entropy floor, the direction does not align,
contexts with equal supports do not collapse, frequencies inside the supports are wrong [thrampoulidis2024, zhao2024].
The check of alignment is the verdict of the comparison itself (`tokengeom.comparison.verdict`); each other check
compares one number with named thresholds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.logit_numbers import FiniteLogits
from tokengeom.comparison.verdict import AGREES, IN_PART, Outcome, level_of
from tokengeom.core.factors import Factors, HasFactors
from tokengeom.core.numerics import Bool
from tokengeom.page.formatting import count, listed, number, percent
from tokengeom.page.report_contents import ReportContents
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.run import Run

Level = Literal["fits", "in part", "does not fit", "not judged"]
SEVERITY: dict[Level, int] = {"does not fit": 0, "in part": 1, "not judged": 2, "fits": 3}
CHECKS = ("loss", "alignment", "collapse", "frequencies")
ITEMS = {"contexts": "context", "tokens": "token"}

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

TITLES = {
    "loss": "The loss approaches the entropy floor",
    "alignment": "The geometry agrees with the prediction",
    "collapse": "Contexts with equal supports collapse",
    "frequencies": "Frequencies inside the supports are right",
}
FAILED = {
    "loss": "The loss does not approach the entropy floor",
    "alignment": "The geometry does not agree with the prediction",
    "collapse": "Contexts with equal supports do not collapse",
    "frequencies": "Frequencies inside the supports are wrong",
}
PARTIAL = {
    "loss": "The loss is close to the entropy floor, but not there yet",
    "alignment": "The geometry agrees in part with the prediction",
    "collapse": "Contexts with equal supports collapse only partly",
    "frequencies": "Frequencies inside the supports are only roughly right",
}
MORE_STEPS = "Train for more steps: directions converge slowly, for one-hot labels like 1/log(steps)."
OTHER_TEXT = "The model was likely trained on other text, or on more of it, where other tokens follow these contexts."
OWN_TEXT = "Compare on a text that the model was trained on, as long as possible."
FEWER_CONTEXTS = "Keep only the more frequent contexts, whose supports are better known (--top-contexts)."
LONGER_CONTEXTS = "Try longer contexts (--context): the model was likely trained to read more than these tokens."
MODEL_CAUSES = {
    "loss": (OTHER_TEXT, "The model reads only the tokens of the context here, and not what comes before them."),
    "alignment": (
        OTHER_TEXT,
        "A network's context embeddings are not free vectors: contexts that the architecture makes similar stay "
        "similar, whatever follows them.",
    ),
    "collapse": (
        "Contexts that have the same next tokens in this text may have had different ones in the text that the model "
        "was trained on.",
    ),
    "frequencies": (OTHER_TEXT, "Frequencies of rare contexts are learned last, and are least certain in the text."),
}
MODEL_REMEDIES = {
    "loss": (OWN_TEXT, LONGER_CONTEXTS),
    "alignment": (OWN_TEXT, FEWER_CONTEXTS, "Read the table of rival explanations: another one may fit better."),
    "collapse": (OWN_TEXT, FEWER_CONTEXTS),
    "frequencies": (OWN_TEXT, FEWER_CONTEXTS),
}
"""Likely causes of a check of a trained model that fails, and what to try, by the name of the check."""
MUCH_MISSING = 0.1
"""Share of further windows outside the supports from which on they are named as a cause."""
LARGEST_DECAY = 1e-5
"""Weight decay above which it is named as a cause."""
FEW_GROUPS, SMALL_GROUP = 10, 3
"""Fewer groups of contexts with equal supports than this are few; groups of fewer contexts than this are small."""


@dataclass(frozen=True)
class FitCheck:
    """One check of one run.

    ``name``
        One of `CHECKS`.
    ``sentence``
        The measured number and the thresholds that it was compared with.
    """

    run: str
    name: str
    level: Level
    sentence: str


@dataclass(frozen=True)
class Finding:
    """A check with causes and remedies, both empty where it fits or could not be judged.

    ``causes``
        Likely causes; those that certainly apply to this run come first.
    ``remedies``
        What to try, in this order.
    """

    check: FitCheck
    title: str
    causes: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True)
class FitChecks:
    """All checks of all runs."""

    findings: tuple[Finding, ...]

    @property
    def misfits(self) -> tuple[Finding, ...]:
        """Checks that fail, or pass only in part; the worst first."""
        misfits = [finding for finding in self.findings if finding.check.level in ("does not fit", "in part")]
        return tuple(sorted(misfits, key=lambda finding: SEVERITY[finding.check.level]))

    def level(self, run: str, name: str = "alignment") -> Level:
        """Level of one check of one run."""
        levels = [
            finding.check.level for finding in self.findings if (finding.check.run, finding.check.name) == (run, name)
        ]
        return levels[0] if levels else "not judged"


def check_fit(contents: ReportContents) -> FitChecks:
    """Check every run."""
    return FitChecks(
        tuple(_finding(contents, check) for name in reversed(list(contents.runs)) for check in checks(contents, name))
    )


def checks(contents: ReportContents, name: str) -> list[FitCheck]:
    """The four checks of one run."""
    run = contents.runs[name]
    if isinstance(run, Run) and not is_finite(run):
        return [FitCheck(name, "loss", "does not fit", f"The run has numbers that are not finite ({run.status}).")]
    return [_loss(contents, name), _alignment(contents, name), _collapse(contents, name), _frequencies(contents, name)]


def is_finite(run: HasFactors) -> bool:
    """Whether all embeddings of a run are finite."""
    return bool(np.isfinite(run.W).all() and np.isfinite(run.H).all())


def graded(value: float, fits: float, part: float) -> Level:
    """Level of a number of which smaller is better."""
    if math.isnan(value):
        return "not judged"
    return "fits" if value <= fits else "in part" if value <= part else "does not fit"


def _loss(contents: ReportContents, name: str) -> FitCheck:
    gap = contents.runs[name].loss_gap
    uniform = math.log(contents.stats.V) - contents.stats.entropy
    if uniform <= 0:
        return FitCheck(name, "loss", "not judged", "A uniform guess is already at the entropy floor.")
    share = gap / uniform
    where = f"{'ended' if name in contents.trained else 'is'} {number(gap)} nats above the entropy floor"
    sentence = (
        f"The loss {where}, {percent(share)} of the loss gap of a uniform guess (at most {percent(LOSS_FITS)} fits, "
        f"above {percent(LOSS_PART)} does not). The prediction in the limit is for a loss at the floor."
    )
    return FitCheck(name, "loss", graded(share, LOSS_FITS, LOSS_PART), sentence)


def agreements_of(comparison: Comparison) -> dict[str, Agreement]:
    """Agreement of contexts and of tokens, at the loss reached where there is a prediction; only those defined."""
    numbers = {items: comparison.judged_numbers.get(f"{item}_agreement") for items, item in ITEMS.items()}
    return {items: number for items, number in numbers.items() if number is not None and math.isfinite(number.value)}


def _alignment(contents: ReportContents, name: str) -> FitCheck:
    comparison = contents.comparisons.get(name)
    if comparison is None:
        return FitCheck(name, "alignment", "not judged", f"The {contents.noun} was not compared with a prediction.")
    levels = {items: AGREE[level_of(agreement)] for items, agreement in agreements_of(comparison).items()}
    by_items = f" By themselves, {listed(f'{items} {said}' for items, said in levels.items())}." if levels else ""
    rule = (
        f" Agreement needs an interval above chance and {AGREES:.0%} of the way from chance to a second training (or "
        f"{AGREES} without one); {IN_PART:.0%} is agreement in part."
    )
    sentence = contents.reasons(name)[0] + by_items + rule
    return FitCheck(name, "alignment", OF_OUTCOME[comparison.verdict], sentence)


def collapsing_groups(contents: ReportContents) -> Bool:
    """Groups that theory predicts to collapse: several contexts, and a support that is not the whole vocabulary."""
    groups = contents.stats.groups
    return np.asarray((groups.multiplicity > 1) & (np.diff(groups.S.indptr) < contents.stats.V))


def _at_chance(level: Level, sentence: str) -> tuple[Level, str]:
    """A good number that chance reaches too is no evidence; a number that is not good counts against the fit."""
    if level == "fits":
        return "not judged", f"{sentence}: they are too few or too similar for a permutation to change much."
    return "does not fit", f"{sentence}."


def _collapse(contents: ReportContents, name: str) -> FitCheck:
    comparison = contents.comparisons.get(name)
    scatter = comparison.agreements.get("collapse") if comparison is not None else None
    if scatter is None:
        return FitCheck(name, "collapse", "not judged", "Collapse was not measured.")
    if math.isnan(scatter.value):
        why = "No two contexts share a support that leaves a token out, or all contexts do: collapse is not defined."
        return FitCheck(name, "collapse", "not judged", why)
    level, chance = graded(scatter.value, COLLAPSE_FITS, COLLAPSE_PART), ""
    if scatter.has_floor and not scatter.above_floor:
        level, chance = _at_chance(level, " For these groups, this is no better than chance")
    floor = f"; 5th percentile for random groups: {number(scatter.floor)}" if math.isfinite(scatter.floor) else ""
    sentence = (
        f"Scatter of directions within support groups over the scatter between them: {number(scatter.value)}{floor} "
        f"(at most {COLLAPSE_FITS} fits, above {COLLAPSE_PART} does not).{chance}"
    )
    return FitCheck(name, "collapse", level, sentence)


def frequency_error(contents: ReportContents, name: str) -> float:
    """Root mean square error of a run's centred log-probabilities inside supports; NaN if all supports are one-hot."""
    several = contents.stats.support_sizes > 1
    if not several.any():
        return float("nan")
    finite = FiniteLogits.of(contents.stats.P)
    errors = finite.squared_errors(Factors.of(contents.runs[name]))
    return float(np.sqrt(errors[several].sum() / contents.stats.support_sizes[several].sum()))


def _frequencies(contents: ReportContents, name: str) -> FitCheck:
    error = frequency_error(contents, name)
    if math.isnan(error):
        why = "Every context has a single next token: there are no frequencies inside the supports."
        return FitCheck(name, "frequencies", "not judged", why)
    sentence = (
        f"The root mean square error of log-probabilities inside the supports is {number(error)} nats (at most "
        f"{FREQUENCY_FITS} fits, above {FREQUENCY_PART} does not)."
    )
    return FitCheck(name, "frequencies", graded(error, FREQUENCY_FITS, FREQUENCY_PART), sentence)


def _finding(contents: ReportContents, check: FitCheck) -> Finding:
    if check.level in ("fits", "not judged"):
        return Finding(check, TITLES[check.name])
    causes, remedies = _explanation(contents, check)
    title = (FAILED if check.level == "does not fit" else PARTIAL)[check.name]
    comparison = contents.comparisons.get(check.run)
    if check.name == "alignment" and comparison is not None and comparison.better_explanation:
        title = f"Another explanation fits the geometry better: {comparison.better_explanation}"
    return Finding(check, title, tuple(causes), tuple(remedies))


def _explanation(contents: ReportContents, check: FitCheck) -> tuple[list[str], list[str]]:
    """Causes and remedies of a failed check."""
    if check.run not in contents.trained:
        return _model_explanation(contents, check)
    run = contents.trained[check.run]
    if not is_finite(run):
        return ["The steps were too large, and numbers overflowed."], ["Reduce the learning rate, for example tenfold."]
    causes, remedies = _certain_causes(contents, check.run)
    general = {
        "loss": _loss_causes,
        "alignment": _alignment_causes,
        "collapse": _collapse_causes,
        "frequencies": _frequency_causes,
    }
    more_causes, more_remedies = general[check.name](contents, check.run)
    return [*causes, *more_causes], [*dict.fromkeys([*remedies, *more_remedies])]


def _certain_causes(contents: ReportContents, name: str) -> tuple[list[str], list[str]]:
    """Causes that are known to apply to this run."""
    causes, remedies = [], []
    run = contents.trained[name]
    prediction, d = contents.prediction, run.H.shape[0]
    if run.status != "finished":
        causes.append(f"The run is not complete: {run.status}.")
        remedies.append("Let the run finish.")
    if isinstance(prediction, FeaturePrediction) and prediction.rank and not prediction.suffices(d):
        causes.append(
            f"The embeddings have {count(d, 'dimension')}, and the predicted geometry has rank {prediction.rank}."
        )
        remedies.append(f"Train with at least {prediction.smallest_dim} dimensions.")
    if isinstance(prediction, FeaturePrediction) and prediction.spread and not prediction.spread.looks_unique:
        causes.append("The predicted direction is not unique for these supports: another optimal one may fit better.")
    if still_falling(run):
        causes.append("The loss was still falling when training ended.")
        remedies.append(MORE_STEPS)
    decay = run.settings.get("weight_decay", 0.0)
    if isinstance(decay, int | float) and decay > LARGEST_DECAY:
        causes.append(f"Weight decay ({decay:g}) limits the norms; the prediction is for vanishing weight decay.")
        remedies.append("Reduce the weight decay.")
    return causes, remedies


def _model_explanation(contents: ReportContents, check: FitCheck) -> tuple[list[str], list[str]]:
    """Causes and remedies of a failed check of a trained model, which is as it is: only the text can be chosen."""
    causes, comparison = list(MODEL_CAUSES[check.name]), contents.comparisons.get(check.run)
    prediction, d = contents.prediction, contents.runs[check.run].H.shape[0]
    if isinstance(prediction, FeaturePrediction) and prediction.rank and not prediction.suffices(d):
        causes.insert(0, f"The embeddings have {count(d, 'dimension')}, and L_mm has rank {prediction.rank}.")
    if check.name == "alignment" and comparison is not None and comparison.disagreement is not None:
        causes += comparison.disagreement.sentences(contents.noun) if comparison.disagreement.remedies() else []
    if check.name == "collapse":
        causes += _group_causes(contents)
    missing = contents.stats.completeness
    if missing is not None and missing.missing_share > MUCH_MISSING:
        causes.append(
            f"The supports are not well known: about {percent(missing.missing_share)} of further windows would have a "
            "token outside them."
        )
    return causes, list(MODEL_REMEDIES[check.name])


def _is_wide_enough(contents: ReportContents, run: Run) -> bool:
    """Whether the run is known to have enough dimensions for the predicted geometry."""
    prediction = contents.prediction
    return isinstance(prediction, FeaturePrediction) and prediction.suffices(run.H.shape[0])


def still_falling(run: Run) -> bool:
    """Whether the recorded loss gap fell by more than a tenth over the last half of the steps."""
    if "loss_gap" not in run.trajectory.names or len(run.trajectory) < 2:
        return False
    steps, gaps = run.trajectory.steps, run.trajectory["loss_gap"]
    before = gaps[steps <= steps[-1] / 2]
    return bool(before.size and gaps[-1] < 0.9 * before[-1])


def _loss_causes(contents: ReportContents, name: str) -> tuple[list[str], list[str]]:
    run = contents.trained[name]
    if _is_wide_enough(contents, run) and run.settings.get("model") == "ufm":
        return ["Training was too short, or its steps were too small."], [MORE_STEPS, "Try a larger learning rate."]
    causes = ["The model may have too few parameters for this many contexts, or training is stuck or too short."]
    remedies = [MORE_STEPS, "Try a larger learning rate, or a wider or deeper model."]
    if run.settings.get("model") == "linear":
        causes.append("With fixed embeddings the data may not be compatible, or not separable.")
        remedies.append("Check that with predict(stats, embeddings=H).")
    return causes, remedies


def _alignment_causes(contents: ReportContents, name: str) -> tuple[list[str], list[str]]:
    run, comparison = contents.trained[name], contents.comparisons[name]
    causes, remedies = [], []
    if comparison.disagreement is not None and comparison.disagreement.remedies():
        causes += comparison.disagreement.sentences()
        remedies += comparison.disagreement.remedies()
    if comparison.norm is None:
        causes.append("The run was compared in the limit of training, and directions converge later than the loss.")
        remedies.append(MORE_STEPS)
    causes.append("A learning rate that is too large can keep the direction from converging.")
    remedies.append("Decrease the learning rate towards the end of training.")
    if run.settings.get("model") != "ufm":
        causes.append(
            "A network's context embeddings are not free vectors: contexts that the architecture makes similar stay "
            "similar, whatever follows them."
        )
        remedies.append("Compare with a run of the unconstrained features model, whose context embeddings are free.")
    return causes, remedies


def _collapse_causes(contents: ReportContents, name: str) -> tuple[list[str], list[str]]:
    causes = [
        *([] if _is_wide_enough(contents, contents.trained[name]) else ["The embedding dimension may be too small."]),
        *_group_causes(contents),
        "Rare contexts converge last.",
        "The contribution of the random initialisation fades only as the norms grow.",
    ]
    return causes, [MORE_STEPS, "Keep only the more frequent contexts, whose supports are better known."]


def _group_causes(contents: ReportContents) -> list[str]:
    """That the groups of contexts with equal supports are few or small, where they are."""
    shared = contents.stats.groups.multiplicity[collapsing_groups(contents)]
    few = "too few" if shared.size < FEW_GROUPS else ""
    small = "too small" if shared.max(initial=0) < SMALL_GROUP else ""
    said = " and ".join(filter(None, (few, small)))
    return [f"The groups may be {said} to judge."] if said else []


def _frequency_causes(contents: ReportContents, name: str) -> tuple[list[str], list[str]]:
    causes = [
        "The finite part of the logits has not converged: rare contexts have little weight in the loss, and their "
        "frequencies are learned last."
    ]
    return causes, [MORE_STEPS, "Keep only the more frequent contexts."]
