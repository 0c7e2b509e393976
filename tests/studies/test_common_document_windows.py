"""Windows with their documents: counts of any part of a text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tokengeom.errors import InputError
from tokengeom.statistics.count import count
from tokengeom.studies.common.document_windows import DocumentWindows, load_windows

TEXTS = ["a b c a b d .", "a b c a b c", "b c a b", "d"]


def test_counts_of_all_documents_are_those_of_the_counting_engine() -> None:
    windows = DocumentWindows.of(TEXTS, 2, 100, 100)
    counted = count(TEXTS, context=2)
    assert sorted(windows.counts().data.tolist()) == sorted(counted.table.data.tolist())
    assert windows.documents == len(TEXTS)


def test_counts_of_two_parts_add_up_to_the_whole() -> None:
    windows = DocumentWindows.of(TEXTS, 2, 100, 100)
    part = np.array([True, False, True, False])
    together = windows.counts(part) + windows.counts(~part)
    assert (together != windows.counts()).nnz == 0
    assert windows.counts(part).sum() == 5 + 2


def test_the_most_frequent_contexts_and_tokens_are_kept() -> None:
    windows = DocumentWindows.of(TEXTS, 2, 1, 1)
    # "a b" is followed by c three times and by d once.
    assert windows.shape == (1, 1)
    assert windows.counts().toarray().tolist() == [[3]]


def test_saved_windows_are_the_same(tmp_path: Path) -> None:
    windows = DocumentWindows.of(TEXTS, 1, 3, 2)
    windows.save(tmp_path / "windows.npz")
    again = load_windows(str(tmp_path / "windows.npz"), {"context": 1, "contexts": 3, "vocabulary": 2})
    assert (again.counts() != windows.counts()).nnz == 0
    assert (again.shape, again.documents) == (windows.shape, windows.documents)


def test_documents_of_a_text_file_are_separated(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b c<|endoftext|>\n<|endoftext|>a b d")
    windows = load_windows(str(tmp_path / "text.txt"), {"context": 2, "contexts": 9, "vocabulary": 9})
    assert windows.documents == 2
    assert windows.counts().sum() == 2


def test_a_text_that_is_not_there_or_too_short_is_refused() -> None:
    with pytest.raises(InputError, match=r"none\.npz"):
        load_windows("none.npz", {"context": 1, "contexts": 1, "vocabulary": 1})
    with pytest.raises(InputError, match="no windows"):
        DocumentWindows.of(["a"], 2, 1, 1)
