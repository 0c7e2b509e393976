"""``tokengeom place``: where contexts lie that the text may not have, and which tokens are predicted to follow them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokengeom.cli.app import app, guarded
from tokengeom.cli.neighbours import Stats, print_table
from tokengeom.cli.output import TerminalConsole, print_result

if TYPE_CHECKING:
    from tokengeom.ask.place import Placed


@app.command("place")
@guarded
def place_command(
    result: Annotated[
        Path,
        typer.Argument(
            metavar="RESULT",
            help="Folder that `tokengeom predict --ties ... --out`, `tokengeom simulate --out` or, for the model tied, "
            "`tokengeom train --out` wrote.",
        ),
    ],
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Contexts, of which the last tokens count.")],
    *,
    stats: Stats = None,
    k: Annotated[int, typer.Option("-k", help="Number of neighbours and of next tokens.", min=1)] = 10,
) -> None:
    """Place contexts that the text may not have: their features, nearest contexts, and predicted next tokens.

    For example:

    * `tokengeom place tied "up on the hill"`
    * `tokengeom place simulation "up on the hill"`
    * `tokengeom place tied "up on the hill" "the zebra" -k 5 --json`
    """
    from tokengeom.ask.verbs import place

    placed = place(result, texts, stats=stats)
    print_result({"contexts": placed.to_dict(k)}, lambda console: print_placed(console, placed, k))


def print_placed(console: TerminalConsole, placed: Placed, k: int) -> None:
    """Print each context with three tables."""
    for i in range(len(placed)):
        console.print(placed.sentence(i))
        if not placed.is_predicted(i):
            continue
        features, near, tokens = placed.shared_features(i), placed.neighbours(i, k), placed.next_tokens(i, k)
        print_table(console, "Its features in the text", ("feature", "share"), _rows(features, ".0%"))
        print_table(console, "Nearest contexts", ("context", "cosine"), _rows(near, ".3f"))
        print_table(console, "Predicted next tokens", ("token", "probability"), _rows(tokens, ".1%"))


def _rows(pairs: list[tuple[str, float]], digits: str) -> list[tuple[str, str]]:
    return [(name, format(value, digits)) for name, value in pairs]
