"""Methods: how each number came about, settings, versions, seeds, hashes, how to verify, how to cite, a glossary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokengeom.page.glossary import BIBTEX, GLOSSARY
from tokengeom.page.sections.base import Reading, Section

TITLES = {
    "versions": "Versions",
    "machine": "Machine",
    "seeds": "Seeds",
    "settings": "Settings",
    "hashes": "Hashes (SHA-256 of what went into each stage)",
    "seconds": "Seconds of each stage",
}


def section(reading: Reading) -> Section:
    """Make the section."""
    contents = reading.contents
    provenance = dict(contents.provenance)
    ordered = [key for key in TITLES if provenance.get(key)] + [key for key in provenance if key not in TITLES]
    runs = {name: run.settings for name, run in contents.runs.items()}
    view = {
        "tables": [{"title": TITLES.get(key, key), "rows": flat(provenance[key])} for key in ordered],
        "runs": [{"title": f"Training settings: {name}", "rows": flat(one)} for name, one in runs.items()],
        "counted": contents.stats.has_counts,
        "bibtex": BIBTEX,
        "glossary": GLOSSARY,
    }
    return Section("methods", "Methods, proofs and sources", view)


def flat(value: Any, path: str = "") -> list[tuple[str, str]]:
    """Nested plain data as rows of a dotted name and a value."""
    if isinstance(value, Mapping):
        return [row for key, item in value.items() for row in flat(item, f"{path}.{key}" if path else str(key))]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [(path, ", ".join(_text(item) for item in value))]
    return [(path, _text(value))]


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "none" if value is None else str(value)
