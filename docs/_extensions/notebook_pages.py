"""Pages from notebooks: Markdown cells as they are, code cells as code, and below each what it printed."""

from __future__ import annotations

import json
from pathlib import Path

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx


def as_markdown(text: str, name: str) -> str:
    """A notebook as a Markdown page that links to the notebook itself."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        printed = "".join(line for output in cell.get("outputs", []) for line in output["text"])
        parts += [f"```text\n{printed}```"] if printed else []
    return "\n\n".join([*parts, f"{{download}}`Open in Jupyter: {name} <{name}>`"]) + "\n"


class NotebookParser(MystParser):
    """Reads notebooks as MyST reads Markdown."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Parse one notebook."""
        super().parse(as_markdown(inputstring, Path(document["source"]).name), document)


def setup(app: Sphinx) -> dict[str, bool]:
    """Read files that end in .ipynb."""
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
