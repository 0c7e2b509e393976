"""``tokengeom report``: one page about a text, from counting to comparing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokengeom.cli.app import EXIT_INTERRUPTED, EstimateOnly, app, guarded
from tokengeom.cli.options import keywords
from tokengeom.cli.output import TerminalConsole, hash_of_saved, print_estimate, print_result, progress_shown
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.page.settings import ReportSettings
from tokengeom.results.folders import remove_work_folders


@app.command("report")
@guarded
def report_command(
    text: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[TEXT]...",
            help="Text, .jsonl, .parquet, .arrow or .bin files (also compressed), folders or globs, or a folder of "
            "saved statistics. Without any: the built-in stories.",
            show_default=False,
        ),
    ] = None,
    *,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The page (.html or .htm); results go into a folder beside it, NAME-results."),
    ] = Path("report.html"),
    settings: ReportSettings,
    reading: ReadingSettings,
    estimate: EstimateOnly = False,
) -> None:
    """Count, predict, train and compare, and write one page about it; with --model, about a trained model.

    Results are kept beside the page: the same command continues where it was interrupted, and with one option
    changed it repeats only what depends on it.

    For example:

    * `tokengeom report`
    * `tokengeom report stories.txt --out stories.html`
    * `tokengeom report stories.txt --context 4 --top-contexts 300 --no-transformer --out stories.html`
    * `tokengeom report stats --preset paper --device cuda`
    * `tokengeom report stories.txt --model stories260K --out model.html`
    * `tokengeom report stats --preset paper --estimate`
    """
    from tokengeom.page.cache import results_folder
    from tokengeom.page.report import estimate_report, report

    if estimate:
        with progress_shown() as progress:
            expected = estimate_report(text or None, progress=progress, **keywords(settings, reading))
        print_estimate(expected)
        return
    try:
        with progress_shown() as progress:
            made = report(text or None, out, progress=progress, **keywords(settings, reading))
    except KeyboardInterrupt:
        remove_work_folders()
        where = results_folder(out)
        console = TerminalConsole(stderr=True)
        kept = f"What was finished is in {where}; the same command continues from there."
        console.print(f"Interrupted. {kept if where.is_dir() else 'Nothing was finished, and nothing was saved.'}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    hash_of_results = hash_of_saved(results_folder(out))

    def print_text(console: TerminalConsole) -> None:
        console.print_lines(made.summary())
        console.print(f"The hash of the results is {hash_of_results}.")

    print_result({**made.to_dict(), "hash": hash_of_results}, print_text)
