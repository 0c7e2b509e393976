"""The page itself: every section in its template, with plotly's code and all data inside, in one file.

The page asks the network for nothing and runs no script but the two that it was made with: its policy names them by
their hashes, so that no word of a text can become one.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Any

from tokengeom.errors import missing_extra
from tokengeom.figures.theme import DARK
from tokengeom.page import formatting
from tokengeom.page.contents import Contents
from tokengeom.page.sections import (
    agreement,
    collapse,
    concepts,
    corpus,
    diagnosis,
    methods,
    prediction,
    summary,
    training,
)
from tokengeom.page.sections.base import Reading, Section, packed

PARTS = (summary, corpus, prediction, training, agreement, collapse, concepts, diagnosis, methods)
"""One module a section, in the order of the page."""


def render(contents: Contents) -> str:
    """One self-contained page: html with style, scripts and data inside."""
    environment = _environment()
    reading = Reading(contents)
    sections = [part.section(reading) for part in PARTS]
    plotly, script = _plotly_code(), _template_text("page.js")
    return str(
        environment.get_template("page.html.j2").render(
            title=contents.title,
            sections=sections,
            bodies={one.name: _body(environment, one) for one in sections},
            style=_template_text("page.css"),
            plotly=plotly,
            script=script,
            policy=_policy(plotly, script),
            theme=packed({"dark": DARK}),
            version=_version(),
        )
    )


def _body(environment: Any, section: Section) -> Any:
    from markupsafe import Markup

    return Markup(environment.get_template(f"{section.name}.html.j2").render(**section.view))


def _environment() -> Any:
    try:
        import jinja2
    except ModuleNotFoundError:
        missing_extra("jinja2", "report", "Writing a page")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tokengeom.page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": formatting.shown,
        "maths": formatting.maths,
        "percent": formatting.percent,
        "fixed": formatting.fixed,
        "name": formatting.name,
        "whole": formatting.whole_name,
        "packed": packed,
    }
    environment.globals["count"] = formatting.count
    return environment


def _template_text(name: str) -> str:
    return files("tokengeom.page").joinpath("templates", name).read_text(encoding="utf-8")


def _plotly_code() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError:
        missing_extra("plotly", "figures", "Writing a page with interactive figures")
    # A browser reads every line end as one character, and the hash is of what it reads.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")


def _policy(*scripts: str) -> str:
    """What the page may load and run: the scripts it holds, its own style and pictures, and nothing else."""
    hashes = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )


def _version() -> str:
    from tokengeom import __version__

    return str(__version__)
