"""``--figure PATH``: asked for before minutes of work, written after them, as a picture or as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tokengeom.errors import InputError

if TYPE_CHECKING:
    from tokengeom.figures.base import Figure

PAGE = ".html"
SUFFIXES = (PAGE, ".png", ".svg", ".pdf")


def require_picture(path: Path | None) -> None:
    """Refuse a place where no picture can be written."""
    if path is not None and path.suffix.lower() not in SUFFIXES:
        raise InputError(f"--figure must end in .html, .png, .svg or .pdf; got {path}.")
    if path is not None and not path.parent.is_dir():
        raise InputError(f"--figure goes into a folder that is there; {path.parent} is not. Make it first.")


def save_picture(figure: Figure, path: Path) -> None:
    """Write a page where the name says so, else a picture."""
    from tokengeom.figures.interactive import save_interactive
    from tokengeom.figures.static import save_static

    (save_interactive if path.suffix.lower() == PAGE else save_static)(figure, path)
