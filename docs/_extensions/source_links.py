"""Links from the source of a module back to the reference, for modules whose names are documented in two places.

``tokengeom.load`` and ``tokengeom.AbstractResult`` are in one module. For each module `sphinx.ext.viewcode` knows
one name alone under which its members are documented; here every link gets the anchor that its page has.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

LINK = re.compile(r'(href="[^"#]*/generated/(tokengeom[\w.]*?)\.html)#(tokengeom[\w.]*)"')


def mend_links(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Rewrite the anchors of one page of source."""
    if page.startswith("_modules/"):
        module = page.removeprefix("_modules/").replace("/", ".")
        context["body"] = LINK.sub(lambda link: _mended(module, *link.groups()), context["body"])


def _mended(module: str, address: str, documented: str, anchor: str) -> str:
    """A link to what a page documents: a module, or one of its members."""
    inside = anchor.removeprefix(f"{module}.").removeprefix("tokengeom.")
    if documented != module:
        inside = inside.partition(".")[2]
    return f'{address}#{documented}{"." if inside else ""}{inside}"'


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to every page that is written."""
    app.connect("html-page-context", mend_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
