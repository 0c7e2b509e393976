"""Of the tests of all studies, those that train networks twice are in the slow set."""

from __future__ import annotations

import pytest

TWICE = "test_the_same_recipe_gives_the_same_findings"
OF_NETWORKS = ("networks-simplified-stories",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = getattr(getattr(item, "callspec", None), "params", {}).get("name")
        if getattr(item, "originalname", "") == TWICE and name in OF_NETWORKS:
            item.add_marker(pytest.mark.slow)
