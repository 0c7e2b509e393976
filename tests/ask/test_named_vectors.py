"""Vectors with names: what is known about each item, and names that survive any file."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokengeom import NextTokenStatistics
from tokengeom.ask.named_vectors import EMPTY, SPACE, NamedVectors, as_cell, numbered, one_line, one_word
from tokengeom.core.errors import InputError

COUNTS = np.array([[3, 1, 0], [2, 0, 4], [0, 5, 1], [1, 0, 0]])
STATS = NextTokenStatistics.from_counts(COUNTS, ["of the", "in a", ""], [" king", "queen", "\n", "queen"])
RNG = np.random.default_rng(0)
W, H = RNG.normal(size=(4, 2)) + 5.0, RNG.normal(size=(2, 3))
# Every character of the basic plane, half-characters among them, and one beyond.
CHARACTERS = [chr(code) for code in range(0x10000)] + ["\U0001f600"]


def read_back(written: str) -> str:
    """The name that was written, by the rules in the documentation."""
    if written == EMPTY:
        return ""
    one = re.compile(r"\\(?:\\|u([0-9a-f]{4}))")
    return one.sub(lambda found: chr(int(found[1], 16)) if found[1] else "\\", written)


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("=1+1", "\\u003d1+1"),
        ("+x", "\\u002bx"),
        ("-x", "\\u002dx"),
        ("@x", "\\u0040x"),
        ("\t=x", "\\u0009=x"),
        ("\r=x", "\\u000d=x"),
        ("a\u202eb\u2066c\u200f", "a\\u202eb\\u2066c\\u200f"),
        ("-", "-"),
        ("a=b", "a=b"),
    ],
)
def test_no_cell_is_a_formula_or_changes_the_writing_direction(name: str, cell: str) -> None:
    assert as_cell(one_line(name)) == cell
    assert read_back(cell) == name


@given(st.lists(st.text(st.characters(), max_size=6), max_size=6))
def test_names_are_read_back_from_one_line_and_from_one_word(names: list[str]) -> None:
    assert [read_back(one_line(name)) for name in names] == names
    assert [read_back(one_word(name).replace(SPACE, " ")) for name in names] == names
    assert len({*map(one_word, names)}) == len({*names})


def test_every_character_fits_in_one_line_and_one_word() -> None:
    for character in CHARACTERS:
        line, word = one_line(f"a{character}b"), one_word(f"a{character}b")
        assert line.splitlines() == [line]
        assert "\t" not in line
        assert word.split() == [word]
        assert read_back(word.replace(SPACE, " ")) == f"a{character}b"
        (line + word).encode()


def test_a_word_keeps_its_first_character_and_has_no_control_of_the_writing_direction() -> None:
    assert [one_word(name) for name in ("=1+2", "@user", "-ing")] == ["=1+2", "@user", "-ing"]
    assert one_word("\u202egpj.\u2066a\u200f") == r"\u202egpj.\u2066a\u200f"


def test_equal_names_get_numbers() -> None:
    assert numbered(["a", "b", "a", "a"]) == ["a", "b", "a\\#2", "a\\#3"]


def test_a_row_per_token_has_its_name_frequency_and_contexts() -> None:
    frame = NamedVectors.of((W, H), "tokens", STATS).to_frame()
    assert list(frame.index) == [" king", "queen", "\n", "queen"]
    np.testing.assert_allclose(frame["frequency"], COUNTS.sum(axis=1) / COUNTS.sum())
    assert frame["contexts"].tolist() == [2, 2, 2, 1]
    np.testing.assert_allclose(frame[["x0", "x1"]], W - W.mean(axis=0))


def test_a_row_per_context_has_its_name_share_and_support_size() -> None:
    frame = NamedVectors.of((W, H), "contexts", STATS).to_frame()
    assert list(frame.index) == ["of the", "in a", ""]
    np.testing.assert_allclose(frame["frequency"], COUNTS.sum(axis=0) / COUNTS.sum())
    assert frame["support_size"].tolist() == [3, 2, 2]
    np.testing.assert_array_equal(frame[["x0", "x1"]], H.T)


def test_items_without_statistics_are_numbered() -> None:
    frame = NamedVectors.of((W, H), "contexts").to_frame()
    assert list(frame.index) == ["context 0", "context 1", "context 2"]
    assert list(frame.columns) == ["x0", "x1"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (SimpleNamespace(W=W, H=H, statistics_hash="0" * 64), rf"hash 00000000\) than these \({STATS.hash[:8]}\)"),
        ((W[:3], H), "have 3 tokens and 3 contexts, the statistics 4 and 3"),
    ],
)
def test_names_of_other_statistics_are_refused(given: tuple[object, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        NamedVectors.of(given, "tokens", STATS)
    with pytest.raises(InputError, match="items must be tokens or contexts; got 'words'"):
        NamedVectors.of((W, H), "words", STATS)  # type: ignore[arg-type]
