"""What several tests of estimates share."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tokengeom.core.progress import AbstractStage, SilentProgress


class Said(SilentProgress):
    """Keeps the sentences that are shown, and the titles of stages."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.titles: list[str] = []

    def stage(self, title: str, total: float | None) -> AbstractContextManager[AbstractStage]:
        self.titles.append(title)
        return super().stage(title, total)

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)
