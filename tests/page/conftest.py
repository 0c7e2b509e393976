"""One browser for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from browser import FOUND, PATIENCE


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        options = ["--no-sandbox", "--disable-gpu", "--no-first-run"]
        found = play.chromium.launch(executable_path=FOUND, args=options, timeout=PATIENCE)
        yield found
        found.close()
