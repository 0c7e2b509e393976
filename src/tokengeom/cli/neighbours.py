"""``tokengeom neighbours``: the tokens or contexts that are nearest to one, and the most similar pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tokengeom.ask.verbs import Asked, AskSettings
from tokengeom.cli.app import app, guarded
from tokengeom.cli.options import MODEL, ModelText, corpus_of, keywords, optional, require_one_source
from tokengeom.cli.output import TerminalConsole, plain_table, print_result, progress_shown
from tokengeom.core.errors import InputError, TokengeomError
from tokengeom.core.progress import AbstractProgress
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.page.settings import ModelTextSettings

if TYPE_CHECKING:
    from tokengeom.ask.neighbours import Neighbours, SimilarPairs
    from tokengeom.comparison.model_states import ModelStates
    from tokengeom.models.language_model import ModuleModel
    from tokengeom.statistics.next_token import NextTokenStatistics

WIDTH = 80
MOST_COMPLETED = 50
"""Names that the Tab key offers."""


def completed_names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of tokens, then of contexts, that begin so; from the statistics of the result on the command line."""
    from tokengeom.ask.item_search import names_of
    from tokengeom.ask.verbs import statistics_beside

    # Completion happens while a command line is being typed: whatever is wrong with it is not reported yet.
    with suppress(TokengeomError, OSError):
        stats = statistics_beside(context.params.get("result"), context.params.get("stats"))
        if stats is not None:
            names = (name for items in ("tokens", "contexts") for name in names_of(stats, items))
            return list(islice((name for name in names if name.startswith(incomplete)), MOST_COMPLETED))
    return []


Result = Annotated[
    str | None,
    typer.Argument(
        metavar="RESULT",
        help="Folder of a saved prediction or run, of a comparison, of a report's results, or of compared checkpoints.",
        show_default=False,
    ),
]
Item = Annotated[
    str | None,
    typer.Argument(
        metavar="TEXT",
        help="Token or context. Accents and case are forgiven, and a unique beginning is completed. A result with ties "
        "also answers about a context that its text does not have.",
        show_default=False,
        autocompletion=completed_names,
    ),
]
Stats = Annotated[
    Path | None,
    optional(
        "Statistics that RESULT was predicted from or trained on: they name tokens and contexts. By default those "
        "beside RESULT.",
        metavar="STATS",
    ),
]
Model = Annotated[
    Path | None, optional("Instead of RESULT: folder of a Hugging Face causal language model.", panel=MODEL)
]


@app.command("neighbours")
@guarded
def neighbours_command(
    result: Result = None,
    item: Item = None,
    *,
    pairs: Annotated[
        bool | None,
        optional(
            "Instead of TEXT: the most similar pairs of contexts (with --items tokens: of tokens) that have different "
            "supports.",
            "--pairs",
        ),
    ] = None,
    stats: Stats = None,
    settings: AskSettings,
    model: Model = None,
    text: ModelText = None,
    trained: ModelTextSettings,
    reading: ReadingSettings,
) -> None:
    """List the tokens or contexts that are nearest to one, with cosines and the supports that they share.

    For example:

    * `tokengeom neighbours prediction king`
    * `tokengeom neighbours prediction "once upon a" --items contexts -k 5`
    * `tokengeom neighbours prediction king --loss-gap 0.01 --norm gamma2`
    * `tokengeom neighbours prediction --pairs -k 20`
    * `tokengeom neighbours run king --stats stats --json`
    * `tokengeom neighbours --model stories260K --text stories.txt king`
    """
    from tokengeom.ask.verbs import neighbours, similar_pairs

    if pairs and (item if model is None else result) is not None:
        raise InputError("--pairs lists the most similar pairs of all: leave out TEXT, or --pairs.")
    # Where pairs are asked for, any name stands for the one that is not needed.
    whole = (result or "", item) if model is not None and pairs else (result, "" if pairs else item)
    name = required_item("neighbours", *whole, stats, model, text)
    asked: Asked
    named: Path | NextTokenStatistics | None
    with progress_shown() as progress:
        if model is None:
            asked, named = str(result), stats
        else:
            asked, named = _model_on_text(model, text or (), trained, reading, progress)
        chosen = keywords(settings)
        if pairs:
            found = similar_pairs(asked, stats=named, progress=progress, **chosen)
        else:
            nearest = neighbours(asked, name, stats=named, progress=progress, **chosen)
    if pairs:
        print_result(found.to_dict(), lambda console: _print_pairs(console, found))
    else:
        print_result(nearest.to_dict(), lambda console: print_neighbours(console, nearest))


def required_item(
    verb: str, result: str | None, item: str | None, stats: Path | None, model: Path | None, text: Sequence[str] | None
) -> str:
    """The token or context that is asked for, after arguments that do not belong together were refused.

    With a model, which comes with a text instead of RESULT, the only argument is the token or context.
    """
    require_one_source(model, text, {"RESULT": item, "--stats": stats})
    if model is None:
        if result is None or item is None:
            raise InputError(
                f"{verb.capitalize()} needs RESULT and TEXT, or --model PATH, --text FILE and TEXT. For example: "
                f"tokengeom {verb} prediction king"
            )
        return item
    if result is None:
        raise InputError(f"Which token or context? For example: tokengeom {verb} --model PATH --text FILE king")
    return result


def last_checkpoint(model: Path, trained: ModelTextSettings, progress: AbstractProgress) -> ModuleModel:
    """The model in a folder, of several checkpoints the last one."""
    from tokengeom.models.checkpoint import checkpoint_folders
    from tokengeom.page.compare_models import load_model

    return load_model(checkpoint_folders(model)[-1], trained, progress)


def _model_on_text(
    folder: Path, text: Sequence[str], trained: ModelTextSettings, reading: ReadingSettings, progress: AbstractProgress
) -> tuple[ModelStates, NextTokenStatistics]:
    """A model on the contexts of its text, and their statistics."""
    from tokengeom.comparison.model_states import read_model
    from tokengeom.page.compare_models import count_for_model
    from tokengeom.statistics.cuts import support_policy

    if trained.proxy is not None:
        raise InputError("--proxy is about predictions: the neighbours of a model are its own. Leave it out.")
    model, policy = last_checkpoint(folder, trained, progress), support_policy(trained.support)
    counted = count_for_model(corpus_of(text), model, trained, reading, progress)
    stats = counted if policy is None else counted.cut(policy)
    return read_model(model, stats, bos=trained.bos, progress=progress), stats


def print_neighbours(console: TerminalConsole, nearest: Neighbours) -> None:
    """Print neighbours as a table."""
    kind = nearest.item.kind
    print_table(console, nearest.title, (kind, "cosine", "shared", "of"), nearest.table())
    for sentence in (nearest.caption, *nearest.notes):
        console.print(sentence)


def _print_pairs(console: TerminalConsole, found: SimilarPairs) -> None:
    print_table(console, found.title, found.columns, found.table(), names=2)
    console.print(found.caption)


def print_table(
    console: TerminalConsole, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], names: int = 1
) -> None:
    """Print a table that is at most 80 columns wide: the first columns are names, the others numbers."""
    table = plain_table(title, columns, names, "fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table, width=min(console.width, WIDTH))
