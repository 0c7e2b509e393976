"""The page as html: every section in its template, with plotly's code and all data in the same file.

The page requests nothing from the network and runs no script except those that it was made with: its content security
policy names them by their hashes, so text of a corpus cannot be executed.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING

from tokengeom.ask.named_vectors import as_cell
from tokengeom.core.errors import missing_extra
from tokengeom.core.numerics import blas_threads_for
from tokengeom.figures.interactive import plotly_code
from tokengeom.figures.prepare import DARK
from tokengeom.page import formatting
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections.base import Page, Section
from tokengeom.page.sections.corpus import corpus, methods, model
from tokengeom.page.sections.explore import explore
from tokengeom.page.sections.figures import packed
from tokengeom.page.sections.measurement import agreement, collapse, training
from tokengeom.page.sections.prediction import concepts, prediction
from tokengeom.page.sections.summary import diagnosis, summary
from tokengeom.page.sections.ties import ties
from tokengeom.page.sections.unseen import unseen

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

SECTIONS = (
    summary,
    explore,
    corpus,
    prediction,
    training,
    agreement,
    ties,
    collapse,
    concepts,
    unseen,
    diagnosis,
    methods,
)
"""Functions that make the sections, in the order of the page; a page about a trained model has ``model`` in place of
``training``. A page without any geometry has no ``explore``, one without a prediction with ties no ``ties``, and one
without features that were trained for other contexts no ``unseen``."""
EXPLORER = (
    "explore_data.js",
    "explore_map.js",
    "explore_panel.js",
    "explore_search.js",
    "explore_slider.js",
    "explore_link.js",
    "explore.js",
)
"""The parts of the explorer's script; later ones use earlier ones."""


def render(contents: ReportContents) -> str:
    """One self-contained page: html with style, scripts and data inside."""
    environment = _environment()
    page = Page(contents)
    made = [model if contents.models and section is training else section for section in SECTIONS]
    with blas_threads_for(contents.stats.V, contents.stats.m):
        sections = [shown for section in made if (shown := section(page)) is not None]
    scripts = [plotly_code(), "\n".join(map(_template_text, ("csv_cell.js", "page.js")))]
    names = {section.name for section in sections}
    if names & {"explore", "unseen"}:
        scripts.append("\n".join(map(_template_text, EXPLORER)))
    if "unseen" in names:
        scripts.append(_template_text("unseen.js"))
    return environment.get_template("page.html.j2").render(
        title=as_cell(contents.title),
        sections=sections,
        bodies={section.name: _body(environment, section) for section in sections},
        style=_template_text("page.css") + _template_text("explore.css"),
        scripts=scripts,
        policy=_policy(*scripts),
        theme=packed({"dark": DARK}),
        version=version("tokengeom"),
    )


def _body(environment: Environment, section: Section) -> Markup:
    from markupsafe import Markup

    own = f"{section.name}.html.j2"
    macros = environment.get_template(own if section.name in ("explore", "unseen") else "sections.html.j2").module
    return Markup(getattr(macros, section.name)(section.view))


def _environment() -> Environment:
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
        "number": formatting.number_html,
        "maths": formatting.maths,
        "percent": formatting.percent,
        "fixed": formatting.fixed,
        "name": formatting.name,
        "full_name": formatting.full_name,
        "packed": packed,
    }
    environment.globals["count"] = formatting.count
    return environment


def _template_text(name: str) -> str:
    return files("tokengeom.page").joinpath("templates", name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    """Content security policy: only the given scripts, inline styles, and pictures made by the page itself."""
    hashes = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )
