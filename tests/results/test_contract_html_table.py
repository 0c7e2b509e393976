"""Tables for a notebook: well-formed HTML, nothing but text from the data, the notebook's own colours."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from html_reader import read
from tokengeom.results.contract import html_table

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1)


@given(TEXT, TEXT, TEXT, TEXT)
@example("<b>", "<script>alert(1)</script>", "&amp;", "</p><img src=x onerror=1>")
@example("&lt;", '"', "<td>", "'")
def test_any_text_is_read_back_unchanged(title: str, name: str, value: str, sentence: str) -> None:
    found = read(html_table(title, [(name, value)], [sentence]))
    assert "".join(found.texts) == title + name + value + sentence
    assert found.tags == {"div", "strong", "table", "tbody", "tr", "th", "td", "p"}


def test_columns_are_named_above_the_rows() -> None:
    found = read(html_table("t", [("a", 1, 2)], columns=("x", "y", "z")))
    assert found.texts == ["t", "x", "y", "z", "a", "1", "2"]


def test_colours_are_inherited_from_the_notebook() -> None:
    html = html_table("t", [("a", 1)], ["s"])
    assert "#" not in html
    assert "white" not in html
    assert html.count("color:inherit") >= 3
