"""Does a run fit the theory? Four checks per run, and for each that fails its likely causes and what to try.

The papers name four signatures of failure: the loss does not approach the entropy floor, the direction does not align,
contexts with equal supports do not collapse, frequencies inside the supports are wrong [thrampoulidis2024, zhao2024].
Each check compares one number with named thresholds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tokengeom.factors import Factors
from tokengeom.geometry.agreement import Agreement
from tokengeom.geometry.logit_numbers import FiniteLogits
from tokengeom.numerics import Bool
from tokengeom.page.contents import Contents
from tokengeom.page.formatting import count, fixed, listed, number, percent
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.run import Run

Level = Literal["fits", "in part", "does not fit", "not judged"]
SEVERITY: dict[Level, int] = {"does not fit": 0, "in part": 1, "not judged": 2, "fits": 3}
CHECKS = ("loss", "alignment", "collapse", "frequencies")

LOSS_FITS, LOSS_PART = 0.01, 0.1
"""Loss gap, as a share of the loss gap of a uniform guess. Geometry comes from the tokens that a run has ruled out: at
10% it has not ruled out much, below 1% nearly all."""
ALIGNMENT_FITS, ALIGNMENT_PART = 0.7, 0.4
"""Structural similarity, a correlation of cosines: at 0.7 half of their variance is shared (0.7^2), at 0.4 a sixth.
Whatever its size, a similarity that does not beat chance is no evidence of agreement."""
COLLAPSE_FITS, COLLAPSE_PART = 0.1, 0.5
"""Scatter of directions within support groups over the scatter between them: a tenth is visible as collapse in the
heat-map, a half is not."""
FREQUENCY_FITS, FREQUENCY_PART = 0.1, 0.5
"""Root mean square error, in nats, of log-probability ratios inside the supports: at 0.1 ratios are wrong by about 10%,
at 0.5 by about 65%."""

TITLES = {
    "loss": "The loss approaches the entropy floor",
    "alignment": "The geometry aligns with the prediction",
    "collapse": "Contexts with equal supports collapse",
    "frequencies": "Frequencies inside the supports are right",
}
FAILED = {
    "loss": "The loss does not approach the entropy floor",
    "alignment": "The geometry does not align with the prediction",
    "collapse": "Contexts with equal supports do not collapse",
    "frequencies": "Frequencies inside the supports are wrong",
}
PARTIAL = {
    "loss": "The loss is close to the entropy floor, but not there yet",
    "alignment": "The geometry agrees only partly with the prediction",
    "collapse": "Contexts with equal supports collapse only partly",
    "frequencies": "Frequencies inside the supports are only roughly right",
}
MORE_STEPS = "Train for more steps: directions converge slowly, like 1/log(steps)."
LARGEST_DECAY = 1e-5
"""Weight decay above which it is named as a cause."""
FEW_GROUPS, SMALL_GROUP = 10, 3
"""Fewer groups of contexts with equal supports than this are few; groups of fewer contexts than this are small."""


@dataclass(frozen=True)
class Check:
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

    check: Check
    title: str
    causes: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """All checks of all runs."""

    findings: tuple[Finding, ...]

    @property
    def misfits(self) -> tuple[Finding, ...]:
        """Checks that fail, or pass only in part; the worst first."""
        found = [one for one in self.findings if one.check.level in ("does not fit", "in part")]
        return tuple(sorted(found, key=lambda one: SEVERITY[one.check.level]))

    def level(self, run: str, name: str = "alignment") -> Level:
        """Level of one check of one run."""
        found = [one.check.level for one in self.findings if (one.check.run, one.check.name) == (run, name)]
        return found[0] if found else "not judged"


def diagnose(contents: Contents) -> Diagnosis:
    """Check every run."""
    return Diagnosis(tuple(_finding(contents, check) for name in contents.runs for check in checks(contents, name)))


def checks(contents: Contents, name: str) -> list[Check]:
    """The four checks of one run."""
    run = contents.runs[name]
    if not is_finite(run):
        return [Check(name, "loss", "does not fit", f"The run has numbers that are not finite ({run.status}).")]
    return [_loss(contents, name), _alignment(contents, name), _collapse(contents, name), _frequencies(contents, name)]


def is_finite(run: Run) -> bool:
    """Whether all embeddings of a run are finite."""
    return bool(np.isfinite(run.W).all() and np.isfinite(run.H).all())


def graded(value: float, fits: float, part: float) -> Level:
    """Level of a number of which smaller is better."""
    if math.isnan(value):
        return "not judged"
    return "fits" if value <= fits else "in part" if value <= part else "does not fit"


def _loss(contents: Contents, name: str) -> Check:
    gap = contents.runs[name].loss_gap
    uniform = math.log(contents.stats.V) - contents.stats.entropy
    if uniform <= 0:
        return Check(name, "loss", "not judged", "A uniform guess is already at the entropy floor.")
    share = gap / uniform
    sentence = (
        f"The loss ended {number(gap)} nats above the entropy floor, {percent(share)} of the loss gap of a uniform "
        f"guess (at most {percent(LOSS_FITS)} fits, above {percent(LOSS_PART)} does not)."
    )
    return Check(name, "loss", graded(share, LOSS_FITS, LOSS_PART), sentence)


def similarities(contents: Contents, name: str) -> dict[str, Agreement]:
    """Similarity of contexts and of tokens to L_mm, or to the proxy where L_mm was not computed."""
    comparison = contents.comparisons.get(name)
    if comparison is None:
        return {}
    prefix = "" if "context_similarity" in comparison.agreements else "proxy_"
    found = {"contexts": f"{prefix}context_similarity", "tokens": f"{prefix}token_similarity"}
    return {
        items: comparison[key]
        for items, key in found.items()
        if key in comparison.agreements and math.isfinite(comparison[key].value)
    }


def is_chance(one: Agreement) -> bool:
    """Whether a permutation test was made and the number does not beat chance."""
    return one.has_null and not one.beats_chance


def _alignment(contents: Contents, name: str) -> Check:
    found = similarities(contents, name)
    if not found:
        return Check(name, "alignment", "not judged", "There is no predicted geometry to compare the run with.")
    judged = {items: _aligned(one) for items, one in found.items()}
    levels = [level for level, _ in judged.values() if level != "not judged"]
    level: Level = min(levels, key=lambda one: SEVERITY[one]) if levels else "not judged"
    chance = "".join(f" For {items}, {said}" for items, (_, said) in judged.items() if said)
    values = listed(f"{fixed(one.value)} for {items}" for items, one in found.items())
    sentence = (
        f"Similarity to the prediction: {values} ({ALIGNMENT_FITS} or more fits; below {ALIGNMENT_PART}, or below "
        f"{ALIGNMENT_FITS} and no better than chance, does not).{chance}"
    )
    return Check(name, "alignment", level, sentence)


def _aligned(one: Agreement) -> tuple[Level, str]:
    level = graded(1 - one.value, 1 - ALIGNMENT_FITS, 1 - ALIGNMENT_PART)
    return _at_chance(level, "this is no better than chance") if is_chance(one) else (level, "")


def _at_chance(level: Level, sentence: str) -> tuple[Level, str]:
    """A good number that chance reaches too is no evidence; a number that is not good counts against the fit."""
    if level == "fits":
        return "not judged", f"{sentence}: they are too few or too similar for a permutation to change much."
    return "does not fit", f"{sentence}."


def collapsing_groups(contents: Contents) -> Bool:
    """Groups that theory predicts to collapse: several contexts, and a support that is not the whole vocabulary."""
    groups = contents.stats.groups
    return np.asarray((groups.multiplicity > 1) & (np.diff(groups.S.indptr) < contents.stats.V))


def _collapse(contents: Contents, name: str) -> Check:
    comparison = contents.comparisons.get(name)
    one = comparison.agreements.get("collapse") if comparison is not None else None
    if one is None:
        return Check(name, "collapse", "not judged", "Collapse was not measured.")
    if math.isnan(one.value):
        why = "No two contexts share a support that leaves a token out, or all contexts do: collapse is not defined."
        return Check(name, "collapse", "not judged", why)
    level, chance = graded(one.value, COLLAPSE_FITS, COLLAPSE_PART), ""
    if is_chance(one):
        level, chance = _at_chance(level, " For these groups, this is no better than chance")
    null = f"; 5th percentile for random groups: {number(one.null)}" if math.isfinite(one.null) else ""
    sentence = (
        f"Scatter of directions within support groups over the scatter between them: {number(one.value)}{null} "
        f"(at most {COLLAPSE_FITS} fits, above {COLLAPSE_PART} does not).{chance}"
    )
    return Check(name, "collapse", level, sentence)


def frequency_error(contents: Contents, name: str) -> float:
    """Root mean square error of a run's centred log-probabilities inside supports; NaN if all supports are one-hot."""
    several = contents.stats.support_sizes > 1
    if not several.any():
        return float("nan")
    finite = FiniteLogits.of(contents.stats.P)
    errors = finite.squared_errors(Factors.of(contents.runs[name]))
    return float(np.sqrt(errors[several].sum() / contents.stats.support_sizes[several].sum()))


def _frequencies(contents: Contents, name: str) -> Check:
    error = frequency_error(contents, name)
    if math.isnan(error):
        why = "Every context has a single next token: there are no frequencies inside the supports."
        return Check(name, "frequencies", "not judged", why)
    sentence = (
        f"The root mean square error of log-probabilities inside the supports is {number(error)} nats (at most "
        f"{FREQUENCY_FITS} fits, above {FREQUENCY_PART} does not)."
    )
    return Check(name, "frequencies", graded(error, FREQUENCY_FITS, FREQUENCY_PART), sentence)


def _finding(contents: Contents, check: Check) -> Finding:
    if check.level in ("fits", "not judged"):
        return Finding(check, TITLES[check.name])
    causes, remedies = _explanation(contents, check)
    title = (FAILED if check.level == "does not fit" else PARTIAL)[check.name]
    return Finding(check, title, tuple(causes), tuple(remedies))


def _explanation(contents: Contents, check: Check) -> tuple[list[str], list[str]]:
    """Causes and remedies of a failed check."""
    run = contents.runs[check.run]
    if not is_finite(run):
        return ["The steps were too large, and numbers overflowed."], ["Reduce the learning rate, for example tenfold."]
    causes, remedies = _certain_causes(contents, run)
    general = {
        "loss": _loss_causes,
        "alignment": _alignment_causes,
        "collapse": _collapse_causes,
        "frequencies": _frequency_causes,
    }
    more_causes, more_remedies = general[check.name](contents, run)
    return [*causes, *more_causes], [*dict.fromkeys([*remedies, *more_remedies])]


def _certain_causes(contents: Contents, run: Run) -> tuple[list[str], list[str]]:
    """Causes that are known to apply to this run."""
    causes, remedies = [], []
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


def _is_wide_enough(contents: Contents, run: Run) -> bool:
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


def _loss_causes(contents: Contents, run: Run) -> tuple[list[str], list[str]]:
    if _is_wide_enough(contents, run) and run.settings.get("model") == "ufm":
        return ["Training was too short, or its steps were too small."], [MORE_STEPS, "Try a larger learning rate."]
    causes = ["The model may have too few parameters for this many contexts, or training is stuck or too short."]
    remedies = [MORE_STEPS, "Try a larger learning rate, or a wider or deeper model."]
    if run.settings.get("model") == "linear":
        causes.append("With fixed embeddings the data may not be compatible, or not separable.")
        remedies.append("Check that with predict(stats, embeddings=H).")
    return causes, remedies


def _alignment_causes(contents: Contents, run: Run) -> tuple[list[str], list[str]]:
    causes = [
        "Directions converge much later than the loss.",
        "A learning rate that is too large can keep the direction from converging.",
    ]
    remedies = [MORE_STEPS, "Decrease the learning rate towards the end of training."]
    if run.settings.get("model") != "ufm":
        causes.append(
            "A network's context embeddings are not free vectors: contexts that the architecture makes similar stay "
            "similar, whatever their supports are."
        )
        remedies.append("Compare with a run of the unconstrained features model, whose context embeddings are free.")
    return causes, remedies


def _collapse_causes(contents: Contents, run: Run) -> tuple[list[str], list[str]]:
    causes = [
        *([] if _is_wide_enough(contents, run) else ["The embedding dimension may be too small."]),
        *_group_causes(contents),
        "Rare contexts converge last.",
        "The contribution of the random initialisation fades only as the norms grow.",
    ]
    return causes, [MORE_STEPS, "Keep only the more frequent contexts, whose supports are better known."]


def _group_causes(contents: Contents) -> list[str]:
    """That the groups of contexts with equal supports are few or small, where they are."""
    shared = contents.stats.groups.multiplicity[collapsing_groups(contents)]
    few = "too few" if shared.size < FEW_GROUPS else ""
    small = "too small" if shared.max(initial=0) < SMALL_GROUP else ""
    said = " and ".join(filter(None, (few, small)))
    return [f"The groups may be {said} to judge."] if said else []


def _frequency_causes(contents: Contents, run: Run) -> tuple[list[str], list[str]]:
    causes = [
        "The finite part of the logits has not converged: rare contexts have little weight in the loss, and their "
        "frequencies are learned last."
    ]
    return causes, [MORE_STEPS, "Keep only the more frequent contexts."]
