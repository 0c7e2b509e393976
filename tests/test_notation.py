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


@pytest.mark.parametrize(
    "other", ["W_B", "le B", "A_{ii}", "(A, B)", "q_k", "q_1", "sqrt{q}", "diag}(q)", "-G H", "t I - G", "t I - K"]
)
def test_letters_of_the_table_mean_nothing_else_in_formulas(other: str) -> None:
    # Sets are calligraphic, singular vectors are columns of U and Q, weights of gamma_2 are r and c, the bound of a
    # norm is tau.
    for page in ("theory.md", "how_numbers_are_measured.md"):
        assert other not in (TABLE.parent / page).read_text(encoding="utf-8"), page


@pytest.mark.parametrize("folder", ["src", "studies/src", "docs"])
def test_the_largest_entry_is_not_called_the_max_norm_which_is_the_name_of_gamma_2(folder: str) -> None:
    root = TABLE.parents[1]
    files = [path for kind in ("py", "md") for path in (root / folder).rglob(f"*.{kind}")]
    told = {root / "docs" / name for name in ("theory.md", "notation.md")}
    for path in files:
        words = " ".join(path.read_text(encoding="utf-8").split())
        plain = re.findall(r"(?<!entrywise )\bmax[- ]norm\b", words)
        assert not plain or (path in told and len(plain) == 1), path


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
