"""``tokengeom explain``: what is known about one token or context, and what pulls it where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tokengeom.ask.item_report import SMALLEST_SHOWN, ItemReport, Pulled, measured_sentence, pull_name
from tokengeom.ask.item_search import quoted, shown
from tokengeom.ask.neighbours import SHARED
from tokengeom.ask.verbs import Asked, AskSettings
from tokengeom.cli.app import app, guarded
from tokengeom.cli.neighbours import Item, Model, Result, Stats, last_checkpoint, print_table, required_item
from tokengeom.cli.options import ModelText, corpus_of, keywords, optional
from tokengeom.cli.output import TerminalConsole, print_result, progress_shown
from tokengeom.core.errors import InputError
from tokengeom.core.numerics import rounded_percent
from tokengeom.core.progress import AbstractProgress
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.page.settings import ModelTextSettings

if TYPE_CHECKING:
    from tokengeom.comparison.model_states import ModelStates


@app.command("explain")
@guarded
def explain_command(
    result: Result = None,
    item: Item = None,
    *,
    run: Annotated[
        list[Path] | None,
        optional(
            "Folder that `tokengeom train --out` wrote, to show the same item in; may be repeated.",
            "--run",
            "--measured",
        ),
    ] = None,
    stats: Stats = None,
    settings: AskSettings,
    model: Model = None,
    text: ModelText = None,
    trained: ModelTextSettings,
    reading: ReadingSettings,
) -> None:
    """Explain a token or context: how frequent it is, what follows it, where it lies, and what pulls it there.

    For example:

    * `tokengeom explain prediction "once upon a"`
    * `tokengeom explain prediction king --run run`
    * `tokengeom explain prediction "once upon a" --loss-gap 0.01 --json`
    * `tokengeom explain --model stories260K --text stories.txt king`: the prediction for the text, and the model
    """
    from tokengeom.ask.verbs import explain

    name = required_item("explain", result, item, stats, model, text)
    if model is not None and run:
        raise InputError("--model is shown beside the prediction for --text: leave out --run.")
    asked: Asked
    measured: list[Path] | dict[str, ModelStates]
    with progress_shown() as progress:
        if model is None:
            asked, measured = str(result), list(run or [])
        else:
            asked, measured = _model_and_prediction(model, text or (), trained, reading, progress)
            settings = _at_its_loss(settings, asked, *measured.values())
        report = explain(asked, name, stats=stats, measured=measured, progress=progress, **keywords(settings))
    print_result(report.to_dict(), lambda console: print_report(console, report))


def print_report(console: TerminalConsole, report: ItemReport) -> None:
    """Print the facts of the text, then logits, neighbours and pulls as tables."""
    console.print(f"{report.title}.", style="bold")
    for sentence in report.facts():
        console.print(sentence)
    if report.logits:
        _print_logits(console, report)
    if report.neighbours.rows:
        _print_neighbours(console, report)
    for shared in report.features:
        console.print(shared.sentence)
    if report.pulled:
        _print_pulls(console, report)
    for sentence in report.notes:
        console.print(sentence)


def _print_logits(console: TerminalConsole, report: ItemReport) -> None:
    limit = "direction" in report.logits[0].values
    names = [name for name in ("finite", "direction", "logit") if name in report.logits[0].values]
    text = "kept" if report.support.left_out else "text"
    columns = ["next token", text, *names, *([] if limit else ["probability"]), *report.measured]
    rows = []
    for place, logit in enumerate(report.logits):
        share = rounded_percent(logit.share, 1) if logit.in_support else "-"
        numbers = [f"{logit.values[name]:+.3f}" for name in names]
        model = [] if limit else [rounded_percent(logit.values["probability"], 1)]
        measured = [rounded_percent(run.probabilities[place], 1) for run in report.measured.values()]
        rows.append([shown(logit.token), share, *numbers, *model, *measured])
    console.print("")
    print_table(console, "Logits", columns, rows)
    if report.support.left_out:
        console.print("Kept: shares of those windows of the context that the cuts kept.")
    if limit:
        console.print("In training the logits tend to finite + R direction, with R growing without bound.")
    if report.context_gap is not None:
        console.print(f"Its loss is {report.context_gap:.3g} nats above its entropy.")


def _print_neighbours(console: TerminalConsole, report: ItemReport) -> None:
    kind = report.item.kind
    rows = [
        [*row, *(f"{run.cosines[place]:.3f}" for run in report.measured.values())]
        for place, row in enumerate(report.neighbours.table())
    ]
    console.print("")
    print_table(console, report.nearest_title, [kind, "cosine", "shared", "of", *report.measured], rows)
    console.print(report.neighbours.caption)
    for name, run in report.measured.items():
        console.print(measured_sentence(name, run, report.item))


def _print_pulls(console: TerminalConsole, report: ItemReport) -> None:
    what = SHARED[report.item.items]
    for pulled in report.pulled:
        title = f"Contributions of {what} to its " + (
            "own direction" if pulled.own else f"cosine with {quoted(pulled.towards)}, {pulled.cosine:.3f}"
        )
        parts = [
            (pull_name(pull), pull.contribution, "" if pull.windows is None else f"{pull.windows:,}")
            for pull in pulled.pulls
        ]
        parts += [("all others", pulled.others, "")]
        parts += [("mean token removed", pulled.mean, "")] if abs(pulled.mean) >= SMALLEST_SHOWN else []
        rows = [(name, f"{part:+.3f}", _share(pulled, part), windows) for name, part, windows in parts]
        rows.append(("residual", f"{pulled.residual:+.0e}", "", ""))
        console.print("")
        print_table(console, title, (what[:-1], "contribution", "share", "windows"), rows)
    if report.count is not None:
        console.print(
            f"Windows: how many windows of the text have the {what[:-1]} together with the {report.item.kind}; for a "
            "cosine, the smaller one of the numbers of both. Contributions with two windows or more come first, unless "
            "they are small."
        )


def _share(pulled: Pulled, contribution: float) -> str:
    share = pulled.share(contribution)
    if share is None:
        return ""
    return f"{100 * share:.1g}%" if 0 < abs(share) < 0.005 else rounded_percent(share)


def _at_its_loss(settings: AskSettings, prediction: Asked, model: ModelStates) -> AskSettings:
    """The settings with the loss that a model reached, where none was given and one can be predicted at."""
    from tokengeom.theory.features import FeaturePrediction

    if settings.loss_gap is not None or not isinstance(prediction, FeaturePrediction):
        return settings
    within = 0.0 < model.loss_gap < prediction.largest_gap
    return replace(settings, loss_gap=model.loss_gap) if within else settings


def _model_and_prediction(
    folder: Path, text: Sequence[str], trained: ModelTextSettings, reading: ReadingSettings, progress: AbstractProgress
) -> tuple[Asked, dict[str, ModelStates]]:
    """The prediction for a text, and a model on its contexts."""
    from tokengeom.page.compare_models import prepare_text

    model = last_checkpoint(folder, trained, progress)
    prepared = prepare_text(corpus_of(text), model, trained, reading, progress)
    states = prepared.states(model, trained.bos, progress).compared
    assert prepared.prediction is not None, "it is made from the text, without ties"
    return prepared.prediction, {states.name: states}
