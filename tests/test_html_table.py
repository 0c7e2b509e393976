"""Tables for a notebook: whole HTML, nothing but text from the data, colours those of the notebook."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import example, given
from hypothesis import strategies as st

from tokengeom.html_table import html_table


class Reader(HTMLParser):
    """Tags that were opened and not closed, and the text between tags, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1)


@given(TEXT, TEXT, TEXT, TEXT)
@example("<b>", "<script>alert(1)</script>", "&amp;", "</p><img src=x onerror=1>")
@example("&lt;", '"', "<td>", "'")
def test_any_text_is_read_back_as_it_was(title: str, name: str, value: str, sentence: str) -> None:
    found = read(html_table(title, [(name, value)], [sentence]))
    assert "".join(found.texts) == title + name + value + sentence
    assert found.tags == {"div", "strong", "table", "tbody", "tr", "th", "td", "p"}


def test_columns_are_named_above_the_rows() -> None:
    found = read(html_table("t", [("a", 1, 2)], columns=("x", "y", "z")))
    assert found.texts == ["t", "x", "y", "z", "a", "1", "2"]


def test_colours_are_the_notebooks() -> None:
    html = html_table("t", [("a", 1)], ["s"])
    assert "#" not in html
    assert "white" not in html
    assert html.count("color:inherit") >= 3
