"""How many files a reader opens to follow a verb: those whose functions run while the verb runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import tokengeom as tg
from pipeline_cases import QUICK
from tokengeom.corpus.stories import write_stories

SOURCE = Path(tg.__file__).parent
MEMBERS = ("comparison/explanations/",)
# Verb -> packages that it is written in, and the most files in them.
LIMITS = {
    "count": ({"corpus", "statistics"}, 20),
    "predict": ({"problems", "solvers", "theory"}, 13),
    "train": ({"models", "training"}, 12),
    "compare": ({"geometry"}, 16),
    "report": ({"page"}, 26),
}


def files_on_the_path(call: Callable[[], object], packages: set[str]) -> set[str]:
    """Files of these packages in which a function runs during the call; imports are over by then."""
    seen: set[str] = set()

    def record(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            seen.add(Path(frame.f_code.co_filename).relative_to(SOURCE).as_posix())

    previous = sys.getprofile()
    sys.setprofile(record)
    try:
        call()
    finally:
        sys.setprofile(previous)
    found = {name for name in seen if name.partition("/")[0] in packages}
    # A reader of a verb opens one of its interchangeable members (and their base) to know what the others are like.
    members = {name for name in found if name.startswith(MEMBERS) and not name.endswith("base.py")}
    return found - set(sorted(members)[1:])


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
        "report": lambda: tg.report(text, folder / f"{next(number)}.html", **QUICK),
    }


# A whole report is made twice, which takes as long as all other verbs together.
@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=pytest.mark.slow) if verb == "report" else verb for verb in LIMITS]
)
def test_a_verb_can_be_followed_in_few_files(verb: str, verbs: dict[str, Callable[[], object]]) -> None:
    packages, most = LIMITS[verb]
    verbs[verb]()
    found = files_on_the_path(verbs[verb], packages)
    assert len(found) <= most, sorted(found)
    assert len(found) > most // 3, "the measurement itself works"
