"""The paper as a page: its title from the front matter, citations as names and years, and its references as a list."""

from __future__ import annotations

import re
from pathlib import Path

from pybtex.database import Entry, parse_file
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

PAPER = Path(__file__).parents[2] / "paper" / "paper.md"
PAGE = "paper"
CITATION = re.compile(r"\[(@\w+(?:; *@\w+)*)\]")
PICTURE = re.compile(r"\]\(([\w.]+\.png)\)")
TITLE = re.compile(r"^title: '(.+)'$", re.MULTILINE)


def as_page(text: str, references: dict[str, Entry]) -> str:
    """A paper in pandoc's Markdown as a page of the site."""
    front, body = text.split("---\n", 2)[1:]
    title = TITLE.search(front)
    if title is None:
        raise ExtensionError("the front matter of the paper has no title in single quotation marks")

    def cited(place: re.Match[str]) -> str:
        keys = re.findall(r"\w+", place[1])
        if missing := set(keys) - set(references):
            raise ExtensionError(f"the paper cites {sorted(missing)}, which paper.bib does not have")
        return f"({'; '.join(_short(references[key]) for key in keys)})"

    body = PICTURE.sub(r"](../paper/\1)", CITATION.sub(cited, body))
    body = re.sub(r"^# ", "## ", body, flags=re.MULTILINE)
    listed = sorted(
        f"- {_names(one)} ({one.fields['year']}). *{_plain(one.fields['title'])}*. <{_address(one)}>"
        for one in references.values()
    )
    return "\n".join([f"# {title[1]}", body, *listed, ""])


def _short(entry: Entry) -> str:
    family = [" ".join(one.last_names) for one in entry.persons["author"]]
    shown = " and ".join(family) if len(family) < 3 else f"{family[0]} et al."
    return f"{_plain(shown)}, {entry.fields['year']}"


def _names(entry: Entry) -> str:
    return _plain("; ".join(str(one) for one in entry.persons["author"]))


def _address(entry: Entry) -> str:
    return entry.fields["url"] if "url" in entry.fields else f"https://doi.org/{entry.fields['doi']}"


def _plain(text: str) -> str:
    return re.sub(r"[{}]", "", text)


def read_paper(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the paper in the place of its page."""
    if page == PAGE:
        app.env.note_dependency(str(PAPER))
        source[0] = as_page(PAPER.read_text(encoding="utf-8"), dict(parse_file(PAPER.with_suffix(".bib")).entries))


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to every page that is read."""
    app.connect("source-read", read_paper)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
