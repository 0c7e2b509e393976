"""``tokengeom compare-texts``: two texts side by side, and which tokens and contexts moved most."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokengeom.cli.app import app, guarded
from tokengeom.cli.options import Out, Statistics, keywords, optional
from tokengeom.cli.output import make_and_print
from tokengeom.comparison.text_comparison import CompareTextsSettings


@app.command("compare-texts")
@guarded
def compare_texts_command(
    first: Statistics,
    second: Annotated[Path, typer.Argument(metavar="STATS", help="The same for the other text.")],
    *,
    loss_gap: Annotated[
        float | None,
        optional(
            "Loss above the entropy floor, in nats, at which both are predicted; 0 for the limit of training. By "
            "default 0.2, or half the gap of a uniform guess where that is less."
        ),
    ] = None,
    settings: CompareTextsSettings,
    out: Out = None,
) -> None:
    """Compare the predicted geometries of two texts on the tokens and contexts that both have.

    Halves of each text show how alike two samples of one text would be. Lists the tokens and contexts that moved most
    beyond that, the neighbours that they gained and lost, and the reason: tokens that follow a context in one text and
    not in the other. Count both texts with the same tokenizer and context length.

    For example:

    * `tokengeom compare-texts stats other-stats`
    * `tokengeom compare-texts stats other-stats --loss-gap 0.1 --top 50 --out moved`
    * `tokengeom compare-texts stats other-stats --loss-gap 0 --no-halves`
    * `tokengeom compare-texts stats other-stats --json`
    """
    from tokengeom.comparison.compare_texts import compare_texts
    from tokengeom.comparison.text_comparison import TextComparison

    how = {"loss_gap": loss_gap, **keywords(settings)}
    make_and_print(TextComparison, lambda progress: compare_texts(first, second, progress=progress, **how), out)
