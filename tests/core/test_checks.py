"""Checks of what a user gives: each message names the value or the place at fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csc_array

from tokengeom import NextTokenStatistics, predict
from tokengeom.core.checks import (
    Entries,
    check_duplicates,
    check_embeddings,
    check_seed,
    check_tolerance,
    is_plain_name,
    whole_number,
)
from tokengeom.core.errors import InputError, ProblemError

H = np.arange(1.0, 13.0).reshape(4, 3)


def test_embeddings_become_a_float_array() -> None:
    for given in (H, H.tolist(), csc_array(H), H.astype(np.float32)):
        found = check_embeddings(given, 3)
        assert found.dtype == np.float64
        assert (found == H).all()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (np.ones((3, 4)), r"transposed: pass H\.T"),
        (np.ones((4, 2)), r"got shape \(4, 2\)"),
        (np.where(H == 5.0, np.nan, H), r"H\[1, 1\]=nan"),
        (H * [1.0, 0.0, 1.0], "column 1 of H is 0"),
        (H * [1.0, 1e200, 1.0], r"the largest of column 1 is 1\.1e\+201\. Scale them"),
        (H * [1.0, 1.0, 1e-200], r"the largest of column 2 is 1\.2e-199\. Scale them"),
        ([["a", "b", "c"]], "array of numbers"),
    ],
)
def test_embeddings_that_cannot_be_used_are_refused(given: object, says: str) -> None:
    with pytest.raises(ProblemError, match=says):
        check_embeddings(given, 3)


def test_equal_contexts_need_equal_embeddings() -> None:
    contexts = [[4, 7], [1, 2], [4, 7]]
    with pytest.raises(ProblemError, match=r"contexts 0 and 2 are both \[4, 7\]"):
        check_duplicates(contexts, H)
    check_duplicates(contexts, H[:, [0, 1, 0]])
    check_duplicates([[1], [2], [3]], H)


def test_whole_numbers_of_any_library_are_accepted_and_others_are_refused() -> None:
    assert whole_number("context", np.int8(4)) == 4
    for value in (1.5, "4", None):
        with pytest.raises(InputError, match="context must be a whole number"):
            whole_number("context", value)


def entries(**content: object) -> Entries:
    return Entries(content, Path("run"))


def test_entries_are_read_by_type() -> None:
    found = entries(text="a", number=2, none=None, flag=True, list=["a"], object={"n": 3}, rows=[{"n": 1}])
    assert found.text("text", ("a", "b")) == "a"
    assert found.number("number") == 2.0
    assert found.whole("number") == 2
    assert np.isnan(found.number_or_nan("none"))
    assert found.flag("flag") is True
    assert found.texts("list") == ("a",)
    assert found.inside("object").whole("n") == found.plain("object")["n"] == 3
    assert [one.whole("n") for one in found.several("rows")] == [1]
    assert np.isinf(entries(x=float("inf")).number("x", finite=False))


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda: entries().text("x"), "x is missing"),
        (lambda: entries(x=1).text("x"), "x must be a text; got 1"),
        (lambda: entries(x="c").text("x", ("a", "b")), "x must be one of a, b; got 'c'"),
        (lambda: entries(x=True).number("x"), "x must be a number; got True"),
        (lambda: entries(x=10**400).number("x"), "x must be a number; got 1000"),
        (lambda: entries(x=float("nan")).number("x"), "x must be a finite number"),
        (lambda: entries(x=2.0).whole("x"), "x must be a whole number >= 0"),
        (lambda: entries(x=0).whole("x", 1), "x must be a whole number >= 1"),
        (lambda: entries(x=2**63).whole("x"), "x must be a whole number"),
        (lambda: entries(x=1).flag("x"), "x must be true or false"),
        (lambda: entries(x=["a", 1]).texts("x"), "x must be a list of texts"),
        (lambda: entries(x=[3]).several("x"), "x 0 must be an object with names; got 3"),
        (lambda: entries(x={"y": 1}).inside("x").text("y"), "x, y must be a text"),
        (lambda: entries(x="f" * 63).digest("x"), "64 hexadecimal digits"),
        (lambda: entries(x="../y").file_name("x"), "a plain name, without a path"),
        (lambda: entries(x=1).only("y"), "'x' is not an entry"),
        (lambda: entries(x="\x1b[31m" + 99 * "a").whole("x"), r"got '\x1b[31maaa"),
    ],
)
def test_an_entry_of_another_type_is_refused_with_the_name_of_the_folder(read: Callable[[], object], says: str) -> None:
    with pytest.raises(InputError, match="run is damaged") as found:
        read()
    assert says in str(found.value)
    assert str(found.value).endswith("Make the result again.")


def test_plain_names_have_no_path() -> None:
    assert all(map(is_plain_name, ("run-ufm", "page.html", ".hidden")))
    assert not any(map(is_plain_name, ("", ".", "..", "a/b", "/a", "a\\b", "a\0")))


def test_a_seed_and_a_tolerance_are_numbers_that_make_sense() -> None:
    for seed in (0, 2**63):
        check_seed(seed)
    for tolerance in (None, 1e-12, 0.5):
        check_tolerance(tolerance)
    with pytest.raises(InputError, match="at least 0; got -1"):
        check_seed(-1)
    for wrong in (0.0, 1.0, -1e-6, np.inf, np.nan):
        with pytest.raises(InputError, match="between 0 and 1"):
            check_tolerance(wrong)
    stats = NextTokenStatistics.from_counts(np.array([[3, 1], [0, 2]]))
    for settings in ({"seed": -1}, {"tolerance": np.inf}, {"tolerance": np.inf, "loss_gap": 0.1}):
        with pytest.raises(InputError, match=r"seed|tolerance"):
            predict(stats, **settings)
