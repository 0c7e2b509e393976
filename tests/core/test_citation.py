"""How to cite: one source for BibTeX, text and CITATION.cff, with the version and address of the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import tokengeom
from tokengeom.core import citation
from tokengeom.core.citation import PAPERS, RELEASED, STYLES, cite
from tokengeom.core.errors import InputError

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_file_is_what_cite_gives() -> None:
    assert (ROOT / "CITATION.cff").read_text() == cite("cff") + "\n"


def test_every_style_names_year_version_and_address_of_the_software_and_all_papers() -> None:
    for style in STYLES:
        found = cite(style)
        assert tokengeom.__version__ == PROJECT["version"]
        assert PROJECT["version"] in found
        assert str(RELEASED.year) in found
        assert PROJECT["authors"][0]["name"] in found
        for paper in PAPERS:
            assert paper.title in found
            assert paper.arxiv in found
        addresses = list(PROJECT.get("urls", {}).values())
        assert [url for url in addresses if url in found][:1] == addresses[:1]
    assert cite() == cite("bibtex")


def test_an_address_in_the_metadata_is_cited(monkeypatch: pytest.MonkeyPatch) -> None:
    class Metadata:
        def get_all(self, name: str) -> list[str]:
            return ["Documentation, https://docs.example", "Homepage, https://example"]

    assert "url" not in cite() or "urls" in PROJECT
    monkeypatch.setattr(citation, "metadata", lambda name: Metadata())
    assert "  url     = {https://example}" in cite()
    assert "\nurl: https://example\n" in cite("cff")
    assert cite("text").splitlines()[0].endswith(" https://example")


def test_papers_are_entries_of_the_bibliography() -> None:
    bibliography = (ROOT / "docs" / "references.bib").read_text()
    entries = cite().split("\n\n")
    assert len(entries) == 1 + len(PAPERS)
    assert all(entry in bibliography for entry in entries[1:])
    assert [re.match(r"@\w+\{(\w+),", entry)[1] for entry in entries] == ["tokengeom", *(p.key for p in PAPERS)]  # type: ignore[index]


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(InputError, match="must be one of bibtex, text, cff"):
        cite("word")
