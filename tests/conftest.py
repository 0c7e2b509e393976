"""Fixtures that tests of several packages share."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tied_models import AdditiveModel
    from tokengeom.page.report import Report
    from tokengeom.statistics.next_token import NextTokenStatistics

# A test passes or fails by what it tests: the same examples every time, however busy the machine is.
# `--hypothesis-profile exploring` looks for new examples.
settings.register_profile("exploring", deadline=None)
settings.register_profile("same examples", deadline=None, derandomize=True)
settings.load_profile("same examples")

# Many tests start a process, which would compile all that it imports again where bytecode is not kept.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Test files run side by side: a thread that waits for another one must not hold a core meanwhile, here or in a process
# that a test starts.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# A shell starts jobs in the background with SIGINT ignored, and every process started from here would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


LONGEST = (
    "tests/page/test_executor.py",
    "tests/campaign/test_campaign.py",
    "tests/test_golden.py",
    "tests/test_documentation.py",
    "studies/tests/test_base_conformance.py",
    "tests/test_sentences.py",
    "tests/page/test_stages.py",
    "tests/page/test_stages_of_models.py",
    "tests/page/test_report.py",
    "tests/page/test_compare_models.py",
    "tests/verification/test_reports.py",
    "tests/figures/test_base_builders.py",
    "tests/verification/test_comparisons.py",
    "tests/figures/test_static.py",
    "tests/comparison/test_rivals.py",
    "studies/tests/test_verdict_calibration.py",
    "tests/test_gallery.py",
)
"""Files that take 10 s or more of a core, the longest first."""


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest-xdist keep the order of the files, which it would change to the number of their tests."""
    if config.pluginmanager.hasplugin("xdist"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the longest files first, so that no process is alone with one of them at the end."""
    place = {config.rootpath / name: k for k, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.fixture(scope="session")
def built_in() -> NextTokenStatistics:
    """The built-in corpus, counted with the defaults."""
    from tokengeom import count

    return count()


@pytest.fixture(scope="session")
def additive(tmp_path_factory: pytest.TempPathFactory) -> AdditiveModel:
    """A model that adds up vectors of its context's tokens."""
    from tied_models import additive_model

    return additive_model(tmp_path_factory.mktemp("additive"))


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of small stories."""
    from pipeline_cases import write_text

    return write_text(tmp_path_factory.mktemp("text") / "stories.txt")


@pytest.fixture(scope="session")
def finished(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report on the small stories, with a page of one line. A test that changes files copies the folder first."""
    from pipeline_cases import plain_page, quick

    with pytest.MonkeyPatch.context() as patch:
        plain_page(patch, every_rival=True)
        return quick(text, tmp_path_factory.mktemp("finished") / "page.html")
