"""`cite`: how to cite this software and the papers whose theory it implements; the one source for all formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import metadata, version
from importlib.resources import files

from tokengeom.core.errors import InputError
from tokengeom.core.settings import takes

PACKAGE = "tokengeom"
TITLE = "tokengeom: the geometry of next-token prediction, predicted and measured"
AUTHORS = "The tokengeom authors"
LICENSE = "Apache-2.0"
RELEASED = date(2026, 11, 20)
"""Date of this version."""
MESSAGE = "If you use tokengeom, please cite it, and the papers whose theory it implements."
_ADDRESSES = ("Homepage", "Repository", "Source", "Documentation")


@dataclass(frozen=True)
class Paper:
    """A paper: ``key`` as in docs/references.bib, authors as family and given names, venue empty for a preprint."""

    key: str
    title: str
    authors: Sequence[tuple[str, str]]
    venue: str
    year: int
    arxiv: str


_PAPERS = files("tokengeom.core").joinpath("papers.json").read_text("utf-8")
PAPERS = tuple(Paper(**paper) for paper in json.loads(_PAPERS))


@takes()
def cite(style: str = "bibtex") -> str:
    """How to cite this software and the papers whose theory it implements.

    ``style``
        "bibtex"; "text", one line per work; or "cff", the content of CITATION.cff.
    """
    if style not in STYLES:
        raise InputError(f"The format (style) must be one of {', '.join(STYLES)}; got {style!r}.")
    return STYLES[style]()


def address() -> str | None:
    """Address of the project in the package's metadata; None where it has none."""
    known = dict(link.split(", ", 1) for link in metadata(PACKAGE).get_all("Project-URL") or ())
    return next((known[name] for name in _ADDRESSES if name in known), next(iter(known.values()), None))


def _bibtex() -> str:
    software = {"title": TITLE, "author": f"{{{AUTHORS}}}", "year": str(RELEASED.year), "version": version(PACKAGE)}
    if (url := address()) is not None:
        software["url"] = url
    entries = [_entry("software", PACKAGE, software)]
    for paper in PAPERS:
        fields = {"title": paper.title, "author": " and ".join(f"{last}, {first}" for last, first in paper.authors)}
        if paper.venue:
            fields |= {"booktitle": paper.venue, "year": str(paper.year), "note": f"arXiv:{paper.arxiv}"}
        else:
            fields |= {"journal": f"arXiv:{paper.arxiv}", "year": str(paper.year)}
        entries.append(_entry("inproceedings" if paper.venue else "article", paper.key, fields))
    return "\n\n".join(entries)


def _entry(kind: str, key: str, fields: dict[str, str]) -> str:
    width = max(map(len, fields))
    return f"@{kind}{{{key},\n" + ",\n".join(f"  {name:<{width}} = {{{x}}}" for name, x in fields.items()) + "\n}"


def _text() -> str:
    url = address()
    place = "" if url is None else f" {url}"
    lines = [f"{AUTHORS} ({RELEASED.year}). {TITLE}. Version {version(PACKAGE)}.{place}"]
    for paper in PAPERS:
        names = ", ".join(f"{first} {last}" for last, first in paper.authors)
        venue = f"{paper.venue}, " if paper.venue else ""
        lines.append(f"{names} ({paper.year}). {paper.title}. {venue}arXiv:{paper.arxiv}.")
    return "\n".join(lines)


def _cff() -> str:
    lines = [
        "cff-version: 1.2.0",
        f"message: {MESSAGE}",
        f'title: "{TITLE}"',
        "type: software",
        f"license: {LICENSE}",
        "authors:",
        f"  - name: {AUTHORS}",
        f"version: {version(PACKAGE)}",
        f"date-released: {RELEASED.isoformat()}",
    ]
    if (url := address()) is not None:
        lines.append(f"url: {url}")
    lines.append("references:")
    for paper in PAPERS:
        lines += [f"  - type: {'conference-paper' if paper.venue else 'article'}", f'    title: "{paper.title}"']
        lines.append("    authors:")
        for last, first in paper.authors:
            lines += [f"      - family-names: {last}", f"        given-names: {first}"]
        lines += [f"    collection-title: {paper.venue}"] if paper.venue else []
        lines += [f"    year: {paper.year}", "    identifiers:", "      - type: other"]
        lines.append(f"        value: arXiv:{paper.arxiv}")
    return "\n".join(lines)


STYLES: dict[str, Callable[[], str]] = {"bibtex": _bibtex, "text": _text, "cff": _cff}
"""Formats by name."""
