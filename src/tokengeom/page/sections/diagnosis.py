"""Does it fit: every sign of every run, and for what does not fit its likely cause and what to try."""

from __future__ import annotations

from tokengeom.page.formatting import DASH
from tokengeom.page.sections.base import Reading, Section

SIGNS = ("loss", "alignment", "collapse", "frequencies")
MARKS = {"fits": "✓", "in part": "◐", "does not fit": "✗", "not judged": DASH}


def section(reading: Reading) -> Section:
    """Make the section."""
    diagnosis = reading.diagnosis
    runs = list(reading.contents.runs)
    levels = {name: {sign: diagnosis.level(name, sign) for sign in SIGNS} for name in runs}
    view = {
        "runs": runs,
        "signs": SIGNS,
        "levels": levels,
        "marks": MARKS,
        "misfits": diagnosis.misfits,
        "fits": [one for one in diagnosis.findings if one.sign.level == "fits"],
        "unjudged": [one for one in diagnosis.findings if one.sign.level == "not judged"],
    }
    return Section("diagnosis", "Does everything fit?", view)
