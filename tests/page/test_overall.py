"""The bar of the whole moves with its parts and ends at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tokengeom.page.overall import overall
from tokengeom.progress import AbstractProgress, AbstractStage


class _Bar(AbstractStage):
    def __init__(self) -> None:
        self.at, self.notes = 0.0, [""]

    def advance(self, amount: float, note: str = "") -> None:
        self.at += amount
        self.notes.append(note)


class _Bars(AbstractProgress):
    def __init__(self) -> None:
        self.bars: dict[str, _Bar] = {}

    @contextmanager
    def stage(self, title: str, total: float | None) -> Iterator[AbstractStage]:
        self.bars[title] = _Bar()
        yield self.bars[title]


def test_the_whole_moves_by_the_share_of_each_part_and_no_further() -> None:
    shown = _Bars()
    with overall(shown, "Report", 30.0) as whole:
        with whole.part(20.0, "training"):
            with whole.stage("Training", 1000.0) as stage:
                stage.advance(500.0)
                assert shown.bars["Report"].at == pytest.approx(10.0)
            with whole.stage("Again", 10.0) as stage:
                stage.advance(10.0)
            assert shown.bars["Report"].at == pytest.approx(20.0)
        with whole.part(10.0, "rest"):
            with whole.stage("Unknown", None) as stage:
                stage.advance(3.0)
            assert shown.bars["Report"].at == pytest.approx(20.0)
    assert shown.bars["Report"].at == pytest.approx(30.0)
    assert shown.bars["Training"].at == 500.0
    assert "rest" in shown.bars["Report"].notes
