"""Parts that saved statistics and saved pairs share: contexts and names of a text, and comparison of plain data."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom import count
from tokengeom.statistics.saved_parts import contexts_fault, in_order, names_fit, same
from tokengeom.statistics.windows import Windows


def test_contexts_are_in_order_when_they_are_sorted_and_distinct() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        rows = rng.integers(-2, 3, (rng.integers(1, 5), 2)).astype(np.int32)
        found = [tuple(row) for row in rows.tolist()]
        assert in_order(rows) == (found == sorted(set(found)))


@pytest.mark.parametrize(
    ("contexts", "windows", "fault"),
    [
        ([[0, 1], [2, 0]], Windows(2), None),
        ([[2, 0], [0, 1]], Windows(2), None),
        ([[-1, 0], [0, 1]], Windows(2, pad=True), None),
        ([[-2, 0], [0, 1]], Windows(2, "prefixes"), None),
        ([[9, 9], [9, 9]], None, None),
        ([[-3, 0], [0, 1]], None, "at least -2"),
        ([[-1, 0], [0, 1]], Windows(2), "must lie in 0..2"),
        ([[-2, 0], [0, 1]], Windows(2, pad=True), "must lie in -1..2"),
        ([[0, 3], [0, 1]], Windows(2), "they lie in 0..3"),
        ([[0, 1], [1, 1], [0, 1]], Windows(2), "one occurs twice"),
        ([[0], [1]], Windows(2), "must have 2 tokens"),
    ],
)
def test_contexts_that_no_text_has_are_described(
    contexts: list[list[int]], windows: Windows | None, fault: str | None
) -> None:
    found = contexts_fault(np.array(contexts, np.int32), windows, 3)
    assert found is None if fault is None else found is not None and fault in found


def test_names_are_those_of_the_tokenizer_in_order() -> None:
    statistics = count(["a b c a"], context=1)
    for names, fit in (("abc", True), ("ac", True), ("acO", True), ("ba", False), ("Oa", False), ("ax", False)):
        assert names_fit(names, statistics.tokenizer, 3, "O") is fit
    assert names_fit(["token 0", "token 2"], None, 3, "O")
    assert not names_fit(["token 0", "token 3"], None, 3, "O")
    assert names_fit(["c", "token 3"], statistics.tokenizer, 4, "O")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1.0, 1.0 + 1e-12, True),
        (1.0, 1, True),
        (1.0, True, False),
        (1, 1.5, False),
        (None, 0, False),
        ({"a": [1.0, "x"]}, {"a": [1.0 + 1e-13, "x"]}, True),
        ({"a": 1}, {"b": 1}, False),
        ([1], [1, 2], False),
        (1.0, "1", False),
    ],
)
def test_plain_data_agree_up_to_rounding(one: object, other: object, equal: bool) -> None:
    assert same(one, other) is equal
