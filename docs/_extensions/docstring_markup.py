"""Docstrings as pages: citations such as ``[zhao2024, Thm 2]`` become links to the bibliography."""

from __future__ import annotations

import re

from sphinx.application import Sphinx

CITATION = re.compile(r"(?<!`)\[([a-z]+(?:19|20)\d\d)((?:, [^\]\[]+)?)\]")


def link_citations(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Rewrite the citations of one docstring, in place."""
    for index, line in enumerate(lines):
        lines[index] = CITATION.sub(lambda found: f"[:cite:`{found[1]}`{found[2]}]", line)


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to every docstring."""
    app.connect("autodoc-process-docstring", link_citations)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
