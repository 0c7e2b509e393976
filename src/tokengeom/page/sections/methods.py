"""Methods: how each number was computed, settings, versions, seeds, hashes, how to verify and to cite, a glossary."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files

from tokengeom.comparison.verdict import AGREES, IN_PART
from tokengeom.core.citation import cite
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections.base import Page, Section
from tokengeom.page.settings import MODEL_NAMES

TITLES = {
    "versions": "Versions",
    "machine": "Machine",
    "seeds": "Seeds",
    "settings": "Settings",
    "hashes": "Hashes (SHA-256): text, models, stages",
    "seconds": "Seconds per stage",
}


def methods(page: Page) -> Section:
    """How the numbers were computed, from what, and how to check and cite them."""
    contents = page.contents
    provenance = {**contents.provenance, "settings": _other_settings(contents)}
    ordered = [key for key in TITLES if provenance.get(key)] + [key for key in provenance if key not in TITLES]
    runs = {name: run.settings for name, run in contents.trained.items()}
    view = {
        "tables": [{"title": TITLES.get(key, key), "rows": flattened(provenance[key])} for key in ordered],
        "runs": [
            {"title": f"Training settings: {name}", "rows": flattened(settings)} for name, settings in runs.items()
        ],
        "counted": contents.stats.has_counts,
        "of_model": bool(contents.models),
        "agrees": f"{AGREES:.0%}",
        "agrees_value": AGREES,
        "in_part": f"{IN_PART:.0%}",
        "bibtex": cite(),
        "glossary": glossary(contents.noun),
    }
    return Section("methods", "Methods and sources", view)


def _other_settings(contents: ReportContents) -> dict[str, object]:
    """Settings apart from those of the runs, which have tables of their own."""
    settings = dict(contents.provenance.get("settings", {}))
    training = settings.pop("training", {})
    not_run = {
        name: settings for name, settings in training.items() if MODEL_NAMES.get(name, name) not in contents.runs
    }
    return {**settings, **({"training": not_run} if not_run else {})}


def flattened(value: object, path: str = "") -> list[tuple[str, str]]:
    """Nested plain data as rows of a dotted name and a value."""
    if isinstance(value, Mapping):
        return [row for key, item in value.items() for row in flattened(item, f"{path}.{key}" if path else str(key))]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [(path, ", ".join(_text(item) for item in value))]
    return [(path, _text(value))]


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "none" if value is None else str(value)


def glossary(noun: str) -> list[tuple[str, str, str]]:
    """Term, symbol and meaning; ``noun`` is what sentences call that which was compared."""
    text = files("tokengeom.page").joinpath("templates", "glossary.json").read_text(encoding="utf-8")
    return [(term, symbol, meaning.format(noun=noun)) for term, symbol, meaning in json.loads(text)]
