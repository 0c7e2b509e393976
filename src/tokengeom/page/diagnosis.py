"""When something does not fit: which sign of failure, its likely causes here, and what to try."""

from __future__ import annotations

from dataclasses import dataclass

from tokengeom.page.contents import Contents
from tokengeom.page.formatting import count
from tokengeom.page.geometry_figures import is_finite
from tokengeom.page.signatures import ORDER, Level, Sign, signs
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.run import Run

TITLES = {
    "loss": "The loss approaches the entropy floor",
    "alignment": "The geometry aligns with the prediction",
    "collapse": "Contexts with equal supports collapse",
    "frequencies": "Frequencies inside the supports are right",
}
MORE_STEPS = "Train for more steps: directions settle slowly, like one over the logarithm of the steps."
FAILED = {
    "loss": "The loss does not approach the entropy floor",
    "alignment": "The geometry does not align with the prediction",
    "collapse": "Contexts with equal supports do not collapse",
    "frequencies": "Frequencies inside the supports are wrong",
}


@dataclass(frozen=True)
class Finding:
    """A sign with its causes and remedies; both are empty where the sign fits.

    ``causes``
        Likely reasons, those that hold for this run for certain first.
    ``remedies``
        What to try, in this order.
    """

    sign: Sign
    title: str
    causes: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """Every sign of every run, and the worst of them in a word."""

    findings: tuple[Finding, ...]

    @property
    def misfits(self) -> tuple[Finding, ...]:
        """What does not fit, or only in part; the worst first."""
        found = [one for one in self.findings if one.sign.level in ("does not fit", "in part")]
        return tuple(sorted(found, key=lambda one: ORDER[one.sign.level]))

    def level(self, run: str, name: str = "alignment") -> Level:
        """Level of one sign of one run."""
        found = [one.sign.level for one in self.findings if (one.sign.run, one.sign.name) == (run, name)]
        return found[0] if found else "not judged"


def diagnose(contents: Contents) -> Diagnosis:
    """Judge every run."""
    return Diagnosis(tuple(_finding(contents, sign) for name in contents.runs for sign in signs(contents, name)))


def _finding(contents: Contents, sign: Sign) -> Finding:
    if sign.level in ("fits", "not judged"):
        return Finding(sign, TITLES[sign.name])
    causes, remedies = _explained(contents, sign)
    title = FAILED[sign.name] if sign.level == "does not fit" else f"{TITLES[sign.name]}, but only in part"
    return Finding(sign, title, tuple(causes), tuple(remedies))


def _explained(contents: Contents, sign: Sign) -> tuple[list[str], list[str]]:
    run = contents.runs[sign.run]
    if not is_finite(run):
        return ["The steps were too large: the numbers overflowed."], ["Lower the learning rate, for example by ten."]
    causes, remedies = _certain(contents, run)
    general = {"loss": _loss, "alignment": _alignment, "collapse": _collapse, "frequencies": _frequencies}
    more_causes, more_remedies = general[sign.name](run, _is_wide_enough(contents, run))
    return [*causes, *more_causes], [*dict.fromkeys([*remedies, *more_remedies])]


def _certain(contents: Contents, run: Run) -> tuple[list[str], list[str]]:
    """Causes that are known to hold for this run."""
    causes, remedies = [], []
    prediction, d = contents.prediction, run.H.shape[0]
    if run.status != "finished":
        causes.append(f"The run is not complete: {run.status}.")
        remedies.append("Let the run go on to its end.")
    if isinstance(prediction, FeaturePrediction) and prediction.rank and not prediction.suffices(d):
        causes.append(
            f"Embeddings have {count(d, 'dimension')}, and the predicted geometry has rank {prediction.rank}."
        )
        remedies.append(f"Train with at least {prediction.smallest_dim} dimensions.")
    if isinstance(prediction, FeaturePrediction) and prediction.spread and not prediction.spread.looks_unique:
        causes.append("The predicted direction is not unique on these supports: another optimal one may fit better.")
    if still_falling(run):
        causes.append("The loss was still falling when training ended.")
        remedies.append(MORE_STEPS)
    decay = run.settings.get("weight_decay", 0.0)
    if isinstance(decay, int | float) and decay > 1e-5:
        causes.append(f"Weight decay ({decay:g}) holds the norms back; the prediction is for vanishing weight decay.")
        remedies.append("Lower the weight decay.")
    return causes, remedies


def _is_wide_enough(contents: Contents, run: Run) -> bool:
    """Whether the predicted geometry is known to fit into the run's dimensions."""
    prediction = contents.prediction
    return isinstance(prediction, FeaturePrediction) and prediction.suffices(run.H.shape[0])


def still_falling(run: Run) -> bool:
    """Whether the loss gap fell by more than a tenth over the last half of the steps, on what was recorded."""
    if "loss_gap" not in run.trajectory.names or len(run.trajectory) < 2:
        return False
    steps, gaps = run.trajectory.steps, run.trajectory["loss_gap"]
    before = gaps[steps <= steps[-1] / 2]
    return bool(before.size and gaps[-1] < 0.9 * before[-1])


def _loss(run: Run, wide: bool) -> tuple[list[str], list[str]]:
    if wide and run.settings.get("model") == "ufm":
        return ["Training was too short, or its steps were too small."], [MORE_STEPS, "Try a larger learning rate."]
    causes = ["The model may have too few parameters for this many contexts, or training is stuck or too short."]
    remedies = [MORE_STEPS, "Try a larger learning rate, or a wider or deeper model."]
    if run.settings.get("model") == "linear":
        causes.append("With fixed embeddings the data may be neither compatible nor separable.")
        remedies.append("Ask predict with embeddings= whether they are.")
    return causes, remedies


def _alignment(run: Run, wide: bool) -> tuple[list[str], list[str]]:
    causes = ["Directions converge much later than the loss.", "Too large a learning rate can keep the direction away."]
    remedies = [MORE_STEPS, "Let the learning rate fall towards the end."]
    if run.settings.get("model") != "ufm":
        causes.append(
            "A network's contexts are not free vectors: what its architecture makes similar stays similar, whatever "
            "the supports say."
        )
        remedies.append("Hold it against a run of the unconstrained-features model, whose contexts are free.")
    return causes, remedies


def _collapse(run: Run, wide: bool) -> tuple[list[str], list[str]]:
    narrow = "" if wide else "The embedding dimension may be too small, or the groups too few and too small to tell."
    causes = [
        narrow or "The groups may be too few and too small to tell.",
        "Contexts that are met rarely move last.",
        "What the random start put into the embeddings fades only as the norms grow.",
    ]
    return causes, [MORE_STEPS, "Keep only the more frequent contexts, whose supports are surer."]


def _frequencies(run: Run, wide: bool) -> tuple[list[str], list[str]]:
    causes = [
        "The finite part of the logits has not been reached: rare contexts weigh little in the loss, and their "
        "frequencies are learned last."
    ]
    return causes, [MORE_STEPS, "Keep only the more frequent contexts."]
