"""Small texts and quick reports that several tests share."""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tokengeom.comparison.rivals import rivals
from tokengeom.corpus.stories import stories
from tokengeom.page.report import Report, report

QUICK: dict[str, Any] = {
    "context": 2,
    "top_contexts": 30,
    "vocabulary": 20,
    "steps": 60,
    "dim": 8,
    "permutations": 20,
    "transformer": False,
    "unseen": False,
}
RUNS = ("run-ufm", "run-ufm-2")
JUDGED = ("at-loss-ufm-nuclear", "at-loss-ufm-gamma2", "comparison-ufm", "rivals-ufm")
TIES = ("ties", "ties-simulated", "ties-comparison", "ties-simulated-comparison")
STAGES = ("choice", "statistics", "prediction", "path", *RUNS, *JUDGED, "page")
GENERATOR = '<meta name="generator" content="tokengeom">'


def write_text(path: Path, number: int = 60, seed: int = 0) -> Path:
    """A file of small stories."""
    path.write_text("\n\n".join(islice(stories(seed), number)), encoding="utf-8")
    return path


def plain_page(patch: pytest.MonkeyPatch, *, every_rival: bool = False) -> None:
    """A page of one line, two losses on the path, and one rival that is not verified: other tests check the rest."""
    patch.setattr("tokengeom.page.stages.PATH_SHARES", (0.4, 0.07))
    if not every_rival:
        few = partial(rivals, explanations="support_cosines")
        patch.setattr("tokengeom.page.stages.rivals", few)
    patch.setattr("tokengeom.verification.comparisons.rivals_again", lambda claimed, beside: {})
    patch.setattr(
        "tokengeom.page.report.render_page", lambda contents, progress: f"{GENERATOR}<title>{contents.title}</title>"
    )


def quick(text: Path, out: Path, **settings: Any) -> Report:
    """A report that takes a second."""
    return report(text, out, **{**QUICK, **settings})


def results_of(made: Report) -> Path:
    """The folder of a report's results."""
    assert made.results is not None
    return made.results
