"""A small table for a notebook: facts and sentences as HTML, every text escaped, colours those of the notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_TABLE = "border-collapse:collapse;color:inherit;background:transparent;margin:0.3em 0"
_CELL = "text-align:left;padding:0.1em 1em 0.1em 0;vertical-align:top;background:transparent;color:inherit"


def html_table(
    title: str, rows: Iterable[Sequence[object]], sentences: Iterable[str] = (), columns: Sequence[str] = ()
) -> str:
    """A title, a table with the name of each row first, and sentences below.

    ``columns``
        Names of the columns, where rows have more than a name and a value.
    """
    head = f"<thead><tr>{''.join(_cell('th', name) for name in columns)}</tr></thead>" if columns else ""
    body = "".join(f"<tr>{_cell('th', name)}{''.join(_cell('td', one) for one in cells)}</tr>" for name, *cells in rows)
    below = "".join(f'<p style="margin:0.2em 0">{escape(sentence)}</p>' for sentence in sentences)
    table = f'<table style="{_TABLE}">{head}<tbody>{body}</tbody></table>'
    return f'<div style="color:inherit"><strong>{escape(title)}</strong>{table}{below}</div>'


def _cell(tag: str, content: object) -> str:
    return f'<{tag} style="{_CELL}">{escape(str(content))}</{tag}>'
