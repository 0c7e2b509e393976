"""The paper has its front matter; every citation is in its bibliography, and every figure exists."""

from __future__ import annotations

import re
from pathlib import Path

PAPER = Path(__file__).parents[1] / "paper" / "paper.md"
FIELDS = ("title", "tags", "authors", "affiliations", "date", "bibliography")


def problems(text: str) -> list[str]:
    """What is wrong with a paper; nothing if all is well."""
    front, body = text.split("---\n", 2)[1:]
    found = [f"no {name}" for name in FIELDS if not re.search(rf"^{name}:", front, re.MULTILINE)]
    known = set(re.findall(r"^@\w+\{(\w+),", PAPER.with_name("paper.bib").read_text(encoding="utf-8"), re.MULTILINE))
    cited = set(re.findall(r"@(\w+)", body))
    found += [f"{key} is cited, and not in paper.bib" for key in sorted(cited - known)]
    found += [f"{key} is in paper.bib, and not cited" for key in sorted(known - cited)]
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", body)
    return found + [f"{one} does not exist" for one in pictures if not (PAPER.parent / one).is_file()]


def test_front_matter_citations_and_figures_of_the_paper_exist() -> None:
    assert problems(PAPER.read_text(encoding="utf-8")) == []


def test_an_error_in_the_paper_is_noticed() -> None:
    text = PAPER.read_text(encoding="utf-8")
    for old, new in (("\ndate:", "\nday:"), ("@bird2009", "@bird2008"), ("-overview.png", "-view.png")):
        assert old in text
        assert problems(text.replace(old, new)) != []
