"""One browser for the tests of a file, and the explorer in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from browser import FOUND, PATIENCE

if TYPE_CHECKING:
    from explore_browser import Opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        options = ["--no-sandbox", "--disable-gpu", "--no-first-run"]
        found = play.chromium.launch(executable_path=FOUND, args=options, timeout=PATIENCE)
        yield found
        found.close()


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the explorer."""
    from explore_browser import DATA, page_of

    path = tmp_path_factory.mktemp("explore") / "page.html"
    path.write_text(page_of(DATA), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def shared(browser: Any, file: Path) -> Iterator[Opened]:
    from explore_browser import opened

    with opened(browser, file) as found:
        yield found


@pytest.fixture
def explorer(shared: Opened) -> Opened:
    """The explorer as it is when the page has been opened."""
    shared.reset()
    return shared
