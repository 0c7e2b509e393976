"""What an install without extras does: every module imports, and what needs an extra names it.

Runs by itself in an environment that has nothing but tokengeom, and prints one JSON object. With ``--hide-extras`` the
packages of the extras are hidden first, so the same is tried in an environment that has them.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

EXTRAS = ("torch", "transformers", "matplotlib", "plotly", "jinja2", "pyspark", "datasets", "lightning", "accelerate")


def failing_modules() -> dict[str, str]:
    """Why a module does not import, by its name; empty where all do."""
    import tokengeom

    failed = {}
    for module in pkgutil.walk_packages(tokengeom.__path__, "tokengeom."):
        try:
            importlib.import_module(module.name)
        except Exception as error:
            failed[module.name] = f"{type(error).__name__}: {error}"
    return failed


def named_extras(folder: Path) -> dict[str, str]:
    """What is said where an extra is missing, by the extra and what was asked for."""
    import tokengeom as tg
    from tokengeom.callbacks import huggingface, lightning
    from tokengeom.corpus.in_memory import load_saved_dataset
    from tokengeom.figures.base import Curve, Figure, LinePanel
    from tokengeom.figures.interactive import save_interactive
    from tokengeom.figures.static import draw

    stats = tg.NextTokenStatistics.from_counts(
        np.array([[2, 0, 1], [1, 3, 0], [0, 1, 1]]), contexts=np.arange(3)[:, None]
    )
    text, model = folder / "text.txt", folder / "model"
    text.write_text("the cat sat on the mat and the dog sat on the rug " * 20)
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}')
    line = np.arange(2.0)
    figure = Figure("line", "A line", "One line.", [LinePanel("A", "x", "y", [Curve("a", line, line)])])
    wanted: dict[str, Callable[[], object]] = {
        "networks: train a transformer": lambda: tg.train(stats, model="transformer", dim=12, steps=1),
        "networks: load a checkpoint": lambda: tg.load_checkpoint(model),
        "torch: predict on a GPU": lambda: tg.predict(stats, device="cuda"),
        "torch: train on a GPU": lambda: tg.train(stats, model="ufm", dim=4, steps=1, device="cuda"),
        "report: write a page": lambda: tg.report(str(text), folder / "page.html"),
        "figures: draw a picture": lambda: draw(figure),
        "figures: draw an interactive figure": lambda: save_interactive(figure, folder / "figure.html"),
        "spark: count with Spark": lambda: tg.count(text, engine="spark"),
        "huggingface: read a data set": lambda: load_saved_dataset(folder),
        "huggingface: log in a Trainer": lambda: huggingface.TokengeomCallback(None, None),  # type: ignore[arg-type]
        "lightning: log in a Trainer": lambda: lightning.TokengeomCallback(None),  # type: ignore[arg-type]
    }
    return {name: _said(call) for name, call in wanted.items()}


def not_named(said: dict[str, str]) -> dict[str, str]:
    """What was said where it does not name the extra; empty where every extra is named."""
    return {
        asked: answer
        for asked, answer in said.items()
        if not answer.startswith("MissingExtraError")
        or f"pip install 'tokengeom[{asked.partition(':')[0]}]'" not in answer
    }


def _said(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def main() -> None:
    """Print what was found."""
    if "--hide-extras" in sys.argv:
        sys.modules.update(dict.fromkeys(EXTRAS))  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, object] = {"extras": named_extras(Path(folder))}
    if "--modules" in sys.argv:
        import tokengeom

        found |= {"modules": failing_modules(), "place": tokengeom.__file__}
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
