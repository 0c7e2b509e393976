"""Formulas as MathML, which browsers show without a script and without a network."""

from __future__ import annotations

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

ALIASES = {
    "argmax": r"\operatorname{argmax}",
    "argmin": r"\operatorname{argmin}",
    "big": r"\bigl",
    "Big": r"\Bigl",
    "coloneqq": r":=",
    "dots": r"\ldots",
    "dotsc": r"\ldots",
    "iff": r"\Leftrightarrow",
    "lVert": r"\Vert",
    "rVert": r"\Vert",
    "lvert": r"\vert",
    "rvert": r"\vert",
    "tfrac": r"\frac",
    "dfrac": r"\frac",
}
"""Commands that docutils does not know, by others that it does."""

logger = logging.getLogger(__name__)


def visit_inline(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula inside a line."""
    writer.body.append(_mathml(node, block=False))
    raise nodes.SkipNode


def visit_block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula in a paragraph of its own."""
    anchors = "".join(f'<span id="{one}"></span>' for one in node.get("ids", ()))
    writer.body.append(f'<div class="formula">{anchors}{_mathml(node, block=True)}</div>')
    raise nodes.SkipNode


def _mathml(node: nodes.Element, *, block: bool) -> str:
    formula = re.sub(r"\\([A-Za-z]+)", lambda command: ALIASES.get(command[1], command[0]), node.astext())
    try:
        # Bars of norms would grow with their neighbours, each by another amount.
        return str(tex2mathml(formula, as_block=block)).replace("<mo>‖</mo>", '<mo stretchy="false">‖</mo>')
    except MathError as error:
        logger.warning("the formula %r cannot be read: %s", node.astext(), error, location=node, type="mathml")
        return f"<code>{node.astext()}</code>"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
