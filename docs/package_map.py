"""Write ``docs/map.md``: every module of the package with the first line of its docstring. Run by ``make map``."""

from __future__ import annotations

import ast
from pathlib import Path

DOCS = Path(__file__).parent
SOURCE = DOCS.parent / "src" / "tokengeom"
PACKAGES = [
    "core",
    "results",
    "ask",
    "corpus",
    "statistics",
    "problems",
    "solvers",
    "theory",
    "models",
    "training",
    "comparison",
    "callbacks",
    "figures",
    "page",
    "verification",
    "cli",
]


def first_line(path: Path) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()[0]


def section(title: str, about: str, files: list[Path]) -> list[str]:
    """One package, or the top-level modules, as a table."""
    rows = [f"| `{path.relative_to(SOURCE)}` | {first_line(path)} |" for path in files]
    return [f"## {title}", "", about, "", "| module | |", "|---|---|", *rows, ""]


def package_map() -> str:
    """The whole page."""
    lines = ["# Map of the package", "", "One line per module. A module imports only modules listed above it.", ""]
    top = [path for path in sorted(SOURCE.glob("*.py")) if path.name != "__init__.py"]
    lines += section("Top-level modules", "What every package may use.", top)
    for package in PACKAGES:
        files = [path for path in sorted((SOURCE / package).rglob("*.py")) if path != SOURCE / package / "__init__.py"]
        if files:
            lines += section(f"`{package}/`", first_line(SOURCE / package / "__init__.py"), files)
    return "\n".join(lines)


if __name__ == "__main__":
    (DOCS / "map.md").write_text(package_map(), encoding="utf-8")
