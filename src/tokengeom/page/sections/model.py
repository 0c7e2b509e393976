"""The trained model that a page is about: what was read, its loss, and a curve over several checkpoints."""

from __future__ import annotations

from typing import Any

from tokengeom.figures.comparisons import checkpoints
from tokengeom.page.contents import Contents
from tokengeom.page.diagnosis import agreements_of
from tokengeom.page.figures import picture
from tokengeom.page.formatting import number
from tokengeom.page.read_model import ReadModel
from tokengeom.page.sections.base import Page, Section


def model(page: Page) -> Section:
    """The checkpoints in numbers, what W and H are, and the curve over training."""
    contents = page.contents
    curve, last = contents.curve, list(contents.models.values())[-1]
    order = "in the order of training" if all(one.step is not None for one in contents.models.values()) else "as given"
    view = {
        "rows": [_row(contents, one) for one in contents.models.values()],
        "steps": any(one.step is not None for one in contents.models.values()),
        "order": order,
        "facts": _facts(last),
        "sentences": _sentences(last),
        "curve": None if curve is None else picture(checkpoints(curve)),
    }
    return Section("model", "The model" if len(contents.models) == 1 else "The checkpoints", view)


def _row(contents: Contents, one: ReadModel) -> dict[str, Any]:
    comparison = contents.comparisons.get(one.name)
    found = {} if comparison is None else agreements_of(comparison)
    return {
        "name": one.name,
        "step": one.step,
        "loss": one.loss,
        "gap": one.loss_gap,
        "contexts": found["contexts"].value if "contexts" in found else float("nan"),
        "tokens": found["tokens"].value if "tokens" in found else float("nan"),
        "verdict": "not compared" if comparison is None else comparison.verdict,
    }


def _facts(one: ReadModel) -> list[tuple[str, str]]:
    """Name and value of what is known of the model."""
    (V, d), info = one.W.shape, one.info
    found = [] if info is None else [("architecture", info.architecture), ("parameters", f"{info.parameters:,}")]
    found += [("embedding dimension d", f"{d:,}"), ("rows of the head", f"{V if info is None else info.rows:,}")]
    return found if info is None else [*found, ("read on", info.device)]


def _sentences(one: ReadModel) -> list[str]:
    """What W and H are, what the model read, and how to read its loss."""
    return [
        *(f"{part}." for part in one.states.convention.rstrip(".").split(". ")),
        one.bos_sentence(),
        f"On these windows its loss is {number(one.loss, 5)} nats, {number(one.loss_gap, 4)} above the entropy floor, "
        "with the softmax over all rows of the head.",
        "The entropy floor is that of the windows counted here. Only a model that has memorised these windows reaches "
        "it: one that was trained on other text, or to read longer contexts, is expected to stay above it.",
        f"{_training(one)} A second training of it was not given.",
    ]


def _training(one: ReadModel) -> str:
    """What is known of how the model was trained: the step at most."""
    if one.step is None:
        return "On which text, how and for how long the model was trained is not known here."
    return f"The model was saved at training step {one.step:,}. On which text and how it was trained is not known here."
