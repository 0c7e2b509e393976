"""How a text is read: the options that every command with a text has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from tokengeom.corpus.documents import Errors
from tokengeom.corpus.locate import Format, ReadingOptions

PANEL = "Reading"


@dataclass(frozen=True)
class Reading:
    """Options of reading."""

    separator: Annotated[
        str,
        typer.Option(
            help="Between documents of plain text: blank (lines), file, a marker; auto is <|endoftext|> or blank.",
            rich_help_panel=PANEL,
        ),
    ] = "auto"
    format_: Annotated[Format, typer.Option("--format", help="auto goes by the suffix.", rich_help_panel=PANEL)] = (
        "auto"
    )
    column: Annotated[
        str, typer.Option(help="Column or key of the document in jsonl, parquet, dataset.", rich_help_panel=PANEL)
    ] = "text"
    errors: Annotated[Errors, typer.Option(help="What to do with invalid UTF-8.", rich_help_panel=PANEL)] = "strict"
    dtype: Annotated[
        str, typer.Option(help="Of a .bin file: uint16, uint32, int32 or int64.", rich_help_panel=PANEL)
    ] = "uint16"
    separator_id: Annotated[
        int | None, typer.Option(help="Id that ends a document of a .bin file.", rich_help_panel=PANEL)
    ] = None

    def options(self, *, keep_separator: bool = False) -> ReadingOptions:
        """As the corpus takes them."""
        named = (self.format_, self.separator, self.column, self.errors, self.dtype, self.separator_id)
        return ReadingOptions(*named, keep_separator)
