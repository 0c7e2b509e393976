"""``tokengeom stories``: write the built-in stories to a file of any length."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokengeom.cli.app import Json, Quiet, app, guarded
from tokengeom.cli.output import give


@app.command("stories")
@guarded
def stories_command(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write; blank lines separate the stories.")],
    words: Annotated[int, typer.Option(help="Stop after this many words.")] = 100_000,
    seed: Annotated[int, typer.Option(help="The same seed writes the same stories.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write small stories, to try things on.

    For example: `tokengeom stories stories.txt --words 1000000`
    """
    from tokengeom.corpus.stories import write_stories
    from tokengeom.errors import ResourceError

    try:
        written = write_stories(path, words, seed)
    except OSError as error:
        raise ResourceError(f"Cannot write {path}: {error.strerror}. Choose another file.") from error
    said = f"{written:,} words written to {path}"
    give({"words": written, "out": str(path)}, lambda console: console.print(said, markup=False), as_json, quiet)
