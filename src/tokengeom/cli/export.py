"""``tokengeom export``: embeddings with their names, in files for other programs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from tokengeom.ask.verbs import ExportSettings
from tokengeom.cli.app import app, guarded
from tokengeom.cli.neighbours import Stats
from tokengeom.cli.options import keywords
from tokengeom.cli.output import TerminalConsole, hash_of_saved, print_result


@app.command("export")
@guarded
def export_command(
    result: Annotated[
        Path,
        typer.Argument(
            metavar="RESULT", help="Folder of a saved prediction, run or comparison of checkpoints.", show_default=False
        ),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write the files to.", show_default=False)],
    stats: Stats = None,
    settings: ExportSettings,
) -> None:
    """Write the embeddings of tokens and contexts, with their names, for TensorBoard, gensim or NumPy.

    For example:

    * `tokengeom export prediction --stats stats --out projector`, then `tensorboard --logdir projector`
    * `tokengeom export run --stats stats --format word2vec --out vectors`
    * `tokengeom export at-loss --stats stats --format numpy --items tokens --out arrays`
    """
    from tokengeom.ask.verbs import export

    began = time.monotonic()
    folder = export(result, out, stats=stats, **keywords(settings))
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    seconds = time.monotonic() - began

    def print_text(console: TerminalConsole) -> None:
        for name, size in files.items():
            console.print(f"{folder / name} ({size:,} bytes)")
        console.print(f"{seconds:.1f} s. Saved in {folder}, hash {seal}.")

    seal = hash_of_saved(folder)
    print_result({"out": str(folder), "hash": seal, "files": files, "seconds": seconds}, print_text)
