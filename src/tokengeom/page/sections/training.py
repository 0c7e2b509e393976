"""How training went: the end of each run in numbers, and curves on logarithmic axes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tokengeom.figures.base import Figure
from tokengeom.figures.training_curves import feature_training
from tokengeom.page.formatting import in_tokens
from tokengeom.page.sections.base import Reading, Section, picture
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.run import Run

MEASURED = (
    "Each curve is a run, measured along training, over steps on a logarithmic axis; losses, norms and distances on F "
    "are on logarithmic axes too, where there is something positive to show."
)
LIMIT = (
    " Theory says, for vanishing weight decay: the loss falls to "
    "the entropy floor; norms grow without bound; inside the supports the logits converge to L_in; elsewhere they grow "
    "along L_mm, so that cosines between contexts and between tokens become those of L_mm (similarity to 1), and "
    "contexts with the same support collapse (spread to 0)."
)

NO_DIRECTION = (
    " Theory says: the loss falls to the entropy floor, which is attained, and the logits converge to L_in; no "
    "direction diverges."
)


def section(reading: Reading) -> Section:
    """Make the section."""
    runs = reading.contents.runs
    view = {
        "runs": [_row(name, run) for name, run in runs.items()],
        "curves": picture(_in_tokens(feature_training(runs)), caption=_caption(reading)) if _drawable(runs) else None,
    }
    return Section("training", "How training went", view)


def _in_tokens(figure: Figure) -> Figure:
    panels = [replace(panel, title=in_tokens(panel.title)) for panel in figure.panels]
    return replace(figure, title=in_tokens(figure.title), panels=panels)


def _caption(reading: Reading) -> str:
    prediction = reading.contents.prediction
    nothing = isinstance(prediction, FeaturePrediction) and prediction.rank == 0
    return MEASURED + (NO_DIRECTION if nothing else LIMIT)


def _drawable(runs: Any) -> bool:
    return any(len(run.trajectory) > 1 for run in runs.values())


def _row(name: str, run: Run) -> dict[str, Any]:
    finite = bool(np.isfinite(run.W).all() and np.isfinite(run.H).all())
    optimizer = run.settings.get("optimizer", "")
    return {
        "name": name,
        "model": str(run.settings.get("model", "")),
        "d": run.H.shape[0],
        "optimizer": str(optimizer.get("name", "") if isinstance(optimizer, dict) else optimizer),
        "steps": run.steps,
        "seconds": float(run.seconds),
        "loss": float(run.loss),
        "gap": float(run.loss_gap),
        "norm_W": float(np.linalg.norm(run.W)) if finite else float("nan"),
        "norm_H": float(np.linalg.norm(run.H)) if finite else float("nan"),
        "status": run.status,
        "finished": run.status == "finished",
    }
