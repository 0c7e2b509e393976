"""The figure of the paper, from tables of docs/results/explained_share.md (``make results`` runs it)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "explained_share.md"
ITEMS = (
    "contexts with several\nnext tokens",
    "contexts with one\nnext token",
    "contexts held out\nof training",
    "tokens",
)
SHOWN = {
    "another kind of network": ("another kind of network", None, "#999999"),
    "simulated, positions+pairs+self": ("simulation, contexts tied", "simulated, positions+pairs+self", "#0072B2"),
    "tied, gamma_2 at the loss": (
        "prediction (gamma_2), contexts tied",
        "tied, gamma_2, positions+pairs+self",
        "#56B4E9",
    ),
    "gamma_2 at the loss": ("prediction (gamma_2)", "at the loss, gamma_2", "#D55E00"),
    "Kneser-Ney": ("Kneser-Ney n-grams", "Kneser-Ney", "#009E73"),
    "limit of training": ("limit of training", "in the limit", "#CC79A7"),
}
"""Name in the table of means -> name in the figure, name in the table by text (None: it has no row), and colour."""


def shares(cells: list[str]) -> list[float]:
    """Explained shares of corrected agreements: their squares, 0 below 0, nan where nothing is said."""
    return [float("nan") if one.strip() == "-" else max(float(one), 0.0) ** 2 for one in cells]


def rows(page: str, table: str) -> list[list[str]]:
    """The cells of a table of the page, its head left out."""
    body = page.split(f"<!-- table {table} -->", 1)[1].split("<!-- end -->", 1)[0].strip().splitlines()[2:]
    return [[one.strip() for one in line.strip("|").split("|")] for line in body]


def draw(path: Path) -> None:
    """Bars: means over texts, each counted once. Dots: single texts at a loss gap of 0.2 nats."""
    page = PAGE.read_text(encoding="utf-8")
    means = {row[0]: shares(row[1:]) for row in rows(page, "overview")}
    texts = [(row[2], shares(row[3:])) for row in rows(page, "explanations") if row[1] == "0.2"]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(SHOWN)
    for place, (name, (label, by_text, colour)) in enumerate(SHOWN.items()):
        at = np.arange(len(ITEMS)) + (place - (len(SHOWN) - 1) / 2) * width
        axes.bar(at, means[name], width, color=colour, label=label)
        if by_text is not None:
            dots = np.array([values for other, values in texts if other == by_text])
            axes.plot(at, dots.T, "o", color="black", markersize=2.5)
    axes.set_xticks(range(len(ITEMS)), ITEMS)
    axes.set_ylim(0, 1)
    axes.set_ylabel("explained share")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    draw(HERE / "explained_share.png")
