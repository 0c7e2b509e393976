"""``tokengeom report``: the main job, from a text to a page that a person can read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tokengeom.cli.app import EXIT_INTERRUPTED, Json, Quiet, app, guarded
from tokengeom.cli.output import give, progress_shown
from tokengeom.cli.reading import Reading
from tokengeom.page.recipe import Preset

CUTS, TRAINING = "Cuts; what is left out is chosen", "Training"


@dataclass(frozen=True)
class Training:
    """Options of how models are trained."""

    steps: Annotated[
        int | None, typer.Option(help="Steps of every model; by default the preset's.", rich_help_panel=TRAINING)
    ] = None
    dim: Annotated[
        int | None, typer.Option(help="Embedding dimension; by default the preset's.", rich_help_panel=TRAINING)
    ] = None
    seed: Annotated[int, typer.Option(help="Of every random choice.", rich_help_panel=TRAINING)] = 0
    no_transformer: Annotated[
        bool, typer.Option("--no-transformer", help="The unconstrained features alone.", rich_help_panel=TRAINING)
    ] = False
    device: Annotated[str, typer.Option(help="cpu or cuda.", rich_help_panel=TRAINING)] = "cpu"

    def recipe(self) -> dict[str, Any]:
        """As `report` takes them."""
        own = {name: value for name, value in vars(self).items() if name != "no_transformer"}
        return {**own, "transformer": not self.no_transformer}


@app.command("report")
@guarded
def report_command(
    text: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[TEXT]...",
            help="Text, .jsonl, .parquet or .bin files (also compressed), folders or globs, or a folder of saved "
            "statistics. Without any: the built-in stories.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The page; results go into a folder beside it, NAME-results.")
    ] = Path("report.html"),
    preset: Annotated[
        Preset, typer.Option(help="small: minutes on two cores; paper: the papers' sizes and steps.")
    ] = "small",
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer", "-t", help="word, character, byte, bpe:SIZE or a saved one's path.", rich_help_panel=CUTS
        ),
    ] = None,
    context: Annotated[
        int | None, typer.Option("--context", "-c", min=1, help="Tokens in a context.", rich_help_panel=CUTS)
    ] = None,
    top_contexts: Annotated[
        int | None, typer.Option(min=1, help="Keep the most frequent contexts.", rich_help_panel=CUTS)
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option(min=1, help="Keep the commonest next tokens.", rich_help_panel=CUTS)
    ] = None,
    *,
    reading: Reading,
    training: Training,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count, predict, train and compare, and write one page that a person can read.

    Results are kept beside the page: the same command goes on where it was stopped, and with one option changed it
    repeats only what depends on it.

    For example:

    * `tokengeom report`
    * `tokengeom report stories.txt --out stories.html`
    * `tokengeom report stories.txt --context 4 --top-contexts 300 --no-transformer --out stories.html`
    * `tokengeom report stats --preset paper --device cuda`
    """
    from tokengeom.page.cache import results_folder
    from tokengeom.page.make import report

    try:
        with progress_shown(quiet) as progress:
            made = report(
                text or None,
                out,
                tokenizer=tokenizer,
                context=context,
                top_contexts=top_contexts,
                vocabulary=vocabulary,
                reading=reading.options(),
                progress=progress,
                preset=preset,
                **training.recipe(),
            )
    except KeyboardInterrupt:
        where = results_folder(out)
        typer.echo(f"Interrupted. What was finished is in {where}; the same command goes on from there.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    give(made.to_dict(), lambda console: console.print(made.summary(), markup=False), as_json, quiet)
