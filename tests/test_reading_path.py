"""How many files of the package a reader opens to follow a verb: those whose functions run while the verb runs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import walk_packages

import pytest

import tokengeom as tg
from code_that_runs import SOURCE, code_that_runs, files_of
from pipeline_cases import QUICK
from tokengeom.corpus.stories import write_stories

MATHEMATICS = {"problems", "solvers", "theory"}
"""Packages that a reader of another verb takes as given: their verb is `predict`."""
FAMILIES = ("comparison/explanations/", "models/networks/", "page/sections/", "page/templates/", "training/optimizers/")
"""Folders of members of one kind: a reader opens one of them, and their base, to know what the others are like."""
LIMITS = {"count": 24, "predict": 24, "train": 24, "compare": 20, "rivals": 20, "report": 75}
"""Verb -> the most files that run, outside the mathematics except for `predict`."""


def files_that_run(call: Callable[[], object]) -> set[str]:
    """Files of the package in which a function runs during the call."""
    # Importing a module calls functions, too, so every module is imported before.
    for module in walk_packages([str(SOURCE)], "tokengeom."):
        if not module.name.startswith(("tokengeom.__main__", "tokengeom.callbacks")):
            import_module(module.name)
    with code_that_runs() as seen:
        call()
    names = {file.as_posix() for file in files_of(seen)}
    return {name for name in names if not name.startswith(FAMILIES) or name.endswith("base.py")}


@pytest.fixture(scope="module")
def verbs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[], object]]:
    folder = tmp_path_factory.mktemp("path")
    text = folder / "stories.txt"
    write_stories(text, 20_000, 0)
    stats = tg.count(text).limited(top_contexts=60, vocabulary=40)
    prediction, run = tg.predict(stats), tg.train(stats, "ufm", dim=16, steps=50)
    number = iter(range(100))
    return {
        "count": lambda: tg.count(text),
        "predict": lambda: tg.predict(stats),
        "train": lambda: tg.train(stats, "ufm", dim=16, steps=50),
        "compare": lambda: tg.compare(prediction, run, permutations=20),
        "rivals": lambda: tg.rivals(stats, run, prediction, permutations=20),
        "report": lambda: tg.report(text, folder / f"{next(number)}.html", **QUICK),
    }


@pytest.mark.parametrize("verb", LIMITS)
def test_a_verb_can_be_followed_in_few_files(verb: str, verbs: dict[str, Callable[[], object]]) -> None:
    files = files_that_run(verbs[verb])
    if verb != "predict":
        files = {name for name in files if name.partition("/")[0] not in MATHEMATICS}
    assert len(files) <= LIMITS[verb], sorted(files)
    assert len(files) > LIMITS[verb] // 3, "the measurement itself works"
