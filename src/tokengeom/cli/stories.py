"""``tokengeom stories``: write the built-in stories to a file of any length."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokengeom.cli.app import app, guarded
from tokengeom.cli.output import print_result


@app.command("stories")
@guarded
def stories_command(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; blank lines separate the stories.")],
    *,
    words: Annotated[int, typer.Option(help="Write at least this many words, ending with a whole story.")] = 100_000,
    seed: Annotated[int, typer.Option(help="The same seed writes the same stories.")] = 0,
) -> None:
    """Write short stories to try the other commands on.

    For example: `tokengeom stories stories.txt --words 1000000`
    """
    from tokengeom.corpus.stories import write_stories

    written = write_stories(path, words, seed)
    said = f"{written:,} words written to {path}."
    print_result({"words": written, "out": str(path)}, lambda console: console.print(said, markup=False))
