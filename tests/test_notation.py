"""docs/notation.md: each code name exists where the table says that it is defined."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

TABLE = Path(__file__).parents[1] / "docs" / "notation.md"
ROW = re.compile(r"^\| [^|]+ \| [^|]+ \| `(?P<name>[^`]+)` \| [^|]+ \| \{py:\w+\}`~?(?P<home>[\w.]+)` \|$")
ROWS = [match for line in TABLE.read_text().splitlines() if (match := ROW.match(line))]


def test_every_row_of_the_table_is_read() -> None:
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("| ") and "---" not in line]
    assert len(ROWS) == len(lines) - TABLE.read_text().count("| symbol |") > 8


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_a_symbol_is_defined_where_the_table_says(row: re.Match[str]) -> None:
    home, name = row["home"], row["name"].split(".")[-1]
    try:
        owner = importlib.import_module(home)
    except ModuleNotFoundError:
        module, _, attribute = home.rpartition(".")
        owner = getattr(importlib.import_module(module), attribute)
    assert hasattr(owner, name) or name in getattr(owner, "__dataclass_fields__", {})


def cited_keys() -> set[str]:
    """Everything that looks like a key, such as zhao2024, in the code and in the documentation."""
    root = TABLE.parents[1]
    files = [*(root / "src").rglob("*.py"), *(root / "docs").glob("*.md"), *(root / "docs/results").glob("*.md")]
    keys = re.compile(r"\b[a-z]{2,}(?:19|20)\d\d\b")
    return {key for file in [*files, root / "README.md"] for key in keys.findall(file.read_text(encoding="utf-8"))}


def test_every_citation_is_in_the_bibliography() -> None:
    known = set(re.findall(r"^@\w+\{(\w+),", (TABLE.parent / "references.bib").read_text(), re.MULTILINE))
    assert {"zhao2024", "cover1965"} <= cited_keys()
    assert cited_keys() <= known
