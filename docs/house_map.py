"""Write ``docs/map.md``: every file of the package with the first line of its docstring. Run by ``make map``."""

from __future__ import annotations

import ast
from pathlib import Path

DOCS = Path(__file__).parent
SOURCE = DOCS.parent / "src" / "tokengeom"
ROOMS = [
    "corpus",
    "statistics",
    "problems",
    "solvers",
    "theory",
    "models",
    "training",
    "geometry",
    "figures",
    "report",
    "studies",
    "cli",
]


def first_line(path: Path) -> str:
    """The sentence that a file opens with."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()[0]


def section(title: str, about: str, files: list[Path]) -> list[str]:
    """A room, or the ground floor."""
    rows = [f"| `{path.relative_to(SOURCE)}` | {first_line(path)} |" for path in files]
    return [f"## {title}", "", about, "", "| file | |", "|---|---|", *rows, ""]


def house_map() -> str:
    """The whole page."""
    lines = ["# The map of the house", "", "One line a file. Imports point upwards on this page, never downwards.", ""]
    ground = [path for path in sorted(SOURCE.glob("*.py")) if path.name != "__init__.py"]
    lines += section("Ground floor", "What every room may use.", ground)
    for room in ROOMS:
        files = [path for path in sorted((SOURCE / room).rglob("*.py")) if path != SOURCE / room / "__init__.py"]
        if files:
            lines += section(f"`{room}/`", first_line(SOURCE / room / "__init__.py"), files)
    return "\n".join(lines)


if __name__ == "__main__":
    (DOCS / "map.md").write_text(house_map(), encoding="utf-8")
