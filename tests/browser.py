"""The browser of the tests: where it is, and what is skipped without it."""

from __future__ import annotations

import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FOUND = next((path for name in NAMES if (path := shutil.which(name))), None)
PATIENCE = 300_000
"""Milliseconds after which a page is taken to hang. No test measures with it: what is waited for comes in a second."""
NEEDS_BROWSER = pytest.mark.skipif(
    FOUND is None,
    reason=f"No browser: none of {', '.join(NAMES)} is on the path. `make browser` installs Debian's chromium as root.",
)
