"""Run the notebooks in docs/notebooks and store what their cells print: ``python docs/run_notebooks.py``.

Cells run in order in one namespace, in an empty folder. No Jupyter is needed.
"""

from __future__ import annotations

import io
import json
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def run(notebook: dict[str, Any], folder: Path) -> list[str]:
    """What each code cell of a notebook prints, run in a folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    with chdir(folder):
        for cell in code_cells(notebook):
            with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
                exec(compile("".join(cell["source"]), "cell", "exec"), names)
            printed.append(out.getvalue())
    return printed


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells that are code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stored(cell: dict[str, Any]) -> str:
    """What a cell printed when the notebook was last run."""
    return "".join(line for output in cell["outputs"] for line in output["text"])


def main() -> None:
    """Run every notebook, and write it again with its output."""
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            printed = run(notebook, Path(folder))
        for number, (cell, text) in enumerate(zip(code_cells(notebook), printed, strict=True), 1):
            lines = text.splitlines(keepends=True)
            cell["execution_count"] = number
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if text else []
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
