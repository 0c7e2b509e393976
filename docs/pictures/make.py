"""Make the pictures of docs/getting_started.md, in this folder: ``python docs/pictures/make.py`` (takes minutes).

The commands and the Python code of the page run in an empty folder, and so does its ``tokengeom report``. A headless
Chromium takes the screenshots of the report, which get at most 256 colours, to keep them small.

``python docs/pictures/make.py moby-dick.txt`` makes the picture of the README instead, in minutes on one core, from the
novel, which is in the public domain and no part of the repository. What was counted and how well it agrees is written
to ``novel.txt``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from scipy.cluster.hierarchy import leaves_list, linkage

import tokengeom as tg
from tokengeom.core.numerics import Float, cosines

HERE = Path(__file__).parent
PAGE = HERE.parent / "getting_started.md"
SHOTS = {
    "report.png": ("", (1200, 600), (0, 0, 1200, 600)),
    "explore.png": ("#explore?token=happy", (1400, 9000), (290, 1300, 1400, 2420)),
}
"""Picture -> fragment of the address, size of the window, and the part of it that is kept, in pixels."""
COLOURS = 256
WORDS = 30
STRONG = 0.5
"""Cosine with the strongest colour."""
TRAININGS = 5
WIDTH = 192
"""Dimensions of the transformers: more than the rank of the prediction, so that they can have its geometry."""
TITLES = ("predicted from the text", f"in transformers (mean of {TRAININGS} trainings)")


def run_page(folder: Path) -> None:
    """Run the commands and the code of the page."""
    for kind, text in re.findall(r"(?m)^```(console|python)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        if kind == "python":
            subprocess.run([sys.executable, "-c", "import tokengeom as tg\n" + text], cwd=folder, check=True)
            continue
        for command in re.findall(r"(?m)^\$ (.*)$", text):
            subprocess.run(command, shell=True, cwd=folder, check=True)


def photograph_report(folder: Path) -> None:
    """Make the report, and keep the parts of it that the page shows."""
    subprocess.run("tokengeom report stories.txt --out report.html", shell=True, cwd=folder, check=True)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=15000"]
    for name, (fragment, (width, height), part) in SHOTS.items():
        shot = folder / name
        size, address = f"--window-size={width},{height}", (folder / "report.html").as_uri() + fragment
        subprocess.run(["chromium", *options, size, f"--screenshot={shot}", address], check=True)
        with Image.open(shot) as whole:
            small = whole.crop(part).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            small.save(HERE / name, optimize=True)


def draw_novel(novel: str) -> None:
    """Cosines between frequent words of a novel: predicted from it, and in transformers trained on its counts."""
    stats = tg.count(novel, context=2, top_contexts=1000, vocabulary=300)
    size = {"dim": WIDTH, "layers": 2, "heads": 4}
    runs = [
        tg.train(stats, "transformer", steps=150, learning_rate=3e-3, seed=seed, **size) for seed in range(TRAININGS)
    ]
    prediction = tg.predict(stats, loss_gap=runs[0].loss_gap, norm="gamma2", tolerance=1e-3)
    found = tg.compare(prediction, runs, permutations=50)
    written = [str(stats), *map(str, runs), str(prediction), *found.reasons, ""]
    (HERE / "novel.txt").write_text("\n".join(written), encoding="utf-8")
    trained = np.mean([token_cosines(run) for run in runs], axis=0)
    draw_cosines(frequent_words(stats), (token_cosines(prediction), trained), stats.vocabulary)


def token_cosines(one: Any) -> Float:
    """Cosines between the token vectors of a prediction or a run."""
    return cosines(tg.Factors(one.W, one.H).tokens)


def frequent_words(stats: tg.NextTokenStatistics) -> list[int]:
    """The most frequent next tokens that are words."""
    frequent = np.argsort(-(stats.P @ stats.pi), kind="stable")
    return [int(i) for i in frequent if stats.vocabulary[i].isalpha()][:WORDS]


def draw_cosines(words: list[int], both: tuple[Float, Float], vocabulary: Sequence[str]) -> None:
    """Draw predicted and trained cosines side by side, near words beside each other."""
    predicted, trained = (matrix[np.ix_(words, words)] for matrix in both)
    order = leaves_list(linkage(1 - predicted[np.triu_indices(WORDS, 1)], "average", optimal_ordering=True))
    names = [vocabulary[words[i]] for i in order]
    figure = Figure(figsize=(12, 6), layout="constrained")
    for axes, matrix, title in zip(figure.subplots(1, 2), (predicted, trained), TITLES, strict=True):
        image = axes.imshow(matrix[np.ix_(order, order)], cmap="RdBu_r", vmin=-STRONG, vmax=STRONG)
        axes.set_title(title, fontsize=13)
        axes.set_xticks(range(WORDS), names, rotation=90)
        axes.set_yticks(range(WORDS), names)
        axes.tick_params(length=0, labelsize=11)
    figure.colorbar(image, ax=figure.axes, label="cosine", shrink=0.8, extend="max", ticks=[-STRONG, 0, STRONG])
    figure.savefig(HERE / "novel.png", dpi=110)


def main() -> None:
    """Make all pictures."""
    if sys.argv[1:]:
        draw_novel(sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_page(folder)
        for picture in ("tokens.png", "contexts.png"):
            with Image.open(folder / picture) as drawn:
                drawn.save(HERE / picture, optimize=True)
        photograph_report(folder)


if __name__ == "__main__":
    main()
