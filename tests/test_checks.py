"""Checks of what a user gives: each message names the value or the place at fault."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csc_array

from tokengeom.checks import check_duplicates, check_embeddings, whole_number
from tokengeom.errors import InputError, ProblemError

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
