"""The gallery: the order of its examples, and the pictures that they write."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx_gallery.scrapers import figure_rst

ORDER = (
    "count_a_text",
    "supports_and_groups",
    "synthetic_language",
    "predict_with_proof",
    "predict_at_a_loss",
    "concepts",
    "linear_model",
    "regularisation_path",
    "train_and_compare",
    "agreement_over_training",
    "train_a_network",
    "rival_explanations",
    "neighbours_and_reasons",
    "two_texts",
    "figures_saved",
    "save_and_load",
    "save_and_verify",
)
"""Examples in the order in which they are shown."""


class ReadingOrder:
    """Sorts examples as `ORDER` has them."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, filename: str) -> int:
        """Place of an example."""
        return ORDER.index(Path(filename).stem)

    def __repr__(self) -> str:
        return "ReadingOrder()"


def show_pictures(block: tuple[str, str, int], variables: dict[str, Any], settings: dict[str, Any]) -> str:
    """Move the PNG files that a block wrote beside the example into the site, and show them below the block."""
    written = sorted(Path(variables["src_file"]).parent.glob("*.png"))
    shown = []
    for picture, place in zip(written, variables["image_path_iterator"], strict=False):
        shutil.move(picture, place)
        shown.append(place)
    return str(figure_rst(shown, settings["src_dir"]))


def _get_sg_image_scraper() -> Any:
    """What sphinx-gallery asks a module for."""
    return show_pictures


def remove_old_pages(app: Sphinx) -> None:
    """Remove pages of examples that the gallery no longer has."""
    for page in (Path(app.srcdir) / "examples").glob("*.rst"):
        if page.stem not in (*ORDER, "index"):
            page.unlink()


def setup(app: Sphinx) -> dict[str, bool]:
    """Clean up before sphinx-gallery writes its pages."""
    app.connect("builder-inited", remove_old_pages, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
