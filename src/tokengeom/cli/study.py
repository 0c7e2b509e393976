"""``tokengeom study``: the command of the distribution tokengeom-studies; without it, how to install it."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from tokengeom.cli.app import app, guarded
from tokengeom.core.errors import MissingExtraError

_INSTALLED = entry_points(group="tokengeom.commands", name="study")


@guarded
def study_command(names: list[str] = typer.Argument(None, metavar="NAME...")) -> None:  # noqa: B008 - typer's way
    """Run experiments of the papers, or of their open questions (needs tokengeom-studies)."""
    raise MissingExtraError(
        "Studies are a distribution of their own, tokengeom-studies, which is not installed. In a checkout of "
        "tokengeom: pip install ./studies"
    )


if _INSTALLED:
    # Its module adds the command when it is imported.
    next(iter(_INSTALLED)).load()
else:
    app.command("study", context_settings={"ignore_unknown_options": True})(study_command)
