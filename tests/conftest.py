"""What several rooms' tests share."""

from __future__ import annotations

import pytest

from tokengeom.statistics.next_token import NextTokenStatistics


@pytest.fixture(scope="session")
def built_in() -> NextTokenStatistics:
    """The built-in corpus, counted with the defaults."""
    from tokengeom import count

    return count()
