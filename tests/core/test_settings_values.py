"""Checks of what a user gives: each message names the value or the place at fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_array

from tokengeom import (
    NextTokenStatistics,
    compare,
    count,
    export,
    load_arrays,
    predict,
    predict_proxy,
    rivals,
    train,
)
from tokengeom.core.errors import InputError, ProblemError, ResourceError
from tokengeom.core.factors import Factors, check_duplicates, check_embeddings
from tokengeom.core.settings import check_seed, check_tolerance, make, whole_number
from tokengeom.corpus.tokenizers import WordTokenizer
from tokengeom.training.settings import TrainingSettings

H = np.arange(1.0, 13.0).reshape(4, 3)


def wrong(**settings: Any) -> Any:
    """Settings that a type checker would refuse."""
    return settings


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (np.ma.masked_array(H, H > 11), "must not be masked; 1 of 12 are"),
        (H + 1j, "must be real"),
        (csc_array(H + 0j), "must be real"),
    ],
)
def test_masks_and_imaginary_parts_are_refused_wherever_arrays_enter(given: Any, says: str) -> None:
    other = np.ones((3, 2))
    for made in (
        lambda: NextTokenStatistics.from_counts(given),
        lambda: NextTokenStatistics.from_probabilities(given),
        lambda: check_embeddings(given, 3),
        lambda: Factors.of((given, other)),
        lambda: Factors.of((other.T, given.T)),
    ):
        with pytest.raises(InputError, match=says):
            made()
    with pytest.raises(InputError, match=says):
        NextTokenStatistics.from_probabilities(np.ones((1, 12)), given.reshape(-1))


@pytest.mark.parametrize(
    "counts",
    [
        [[2**62, 2**62], [2**62, 1]],
        [[2.0**64]],
        coo_array((np.full(4, 2**62), (np.zeros(4, int), np.zeros(4, int))), shape=(1, 1)),
    ],
)
def test_counts_whose_sum_is_too_large_are_refused(counts: Any) -> None:
    with pytest.raises(InputError, match=r"at most 2\*\*62"):
        NextTokenStatistics.from_counts(counts)
    assert NextTokenStatistics.from_counts([[2**61], [2**60]]).n == 2**61 + 2**60


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda stats: predict(stats, **wrong(seed="a")), "seed must be a whole number; got 'a'"),
        (lambda stats: predict(stats, **wrong(tolerance=np.True_)), "tolerance is a relative gap .* got np.True_"),
        (lambda stats: predict(stats, loss_gap=True), "loss_gap must be a number or None; got True"),
        (
            lambda stats: predict(stats, **wrong(seed=np.ones((2, 2)))),
            "seed must be one value; got an array of 4 numbers",
        ),
        (lambda stats: predict(stats, **wrong(seed=np.ma.masked)), "seed must be a whole number"),
        (lambda stats: train(stats, dim=2, steps=2**70), "steps must be a whole number >= 0 and below 2\\*\\*63"),
        (lambda stats: train(stats, dim=2, **wrong(rate_schedule=1j)), "A schedule must be 'paper', .* got 1j"),
        (
            lambda stats: train(stats, dim=2, **wrong(checkpoint_seconds=b"a")),
            "checkpoint_seconds must be a number; got b'a'",
        ),
        (lambda stats: train(stats, dim=2, **wrong(weight_decay=1j)), "weight_decay must be a number"),
        (lambda stats: export(predict(stats), **wrong(folder=len)), "folder must be text or a path; got <built-in"),
        (lambda _: load_arrays(**wrong(path=b"a")), "path must be text or a path; got b'a'"),
        (
            lambda stats: compare(predict(stats), (np.eye(2), np.eye(2)), permutations=2**70),
            "permutations must be at most 1,000,000",
        ),
        (lambda stats: rivals(stats, (np.eye(2), np.eye(2)), **wrong(explanations=1.5)), "explanations must be names"),
        (lambda _: NextTokenStatistics.from_probabilities(np.eye(2), **wrong(pi=["a", "b"])), "pi must have 2 numbers"),
        (lambda _: Factors.of((np.eye(2), np.full((2, 2), "2020", "datetime64[D]"))), "these are times"),
        (
            lambda _: predict_proxy(NextTokenStatistics.from_counts(np.ones((3, 4))), components=1),
            "each of the 4 contexts is followed by all 3 tokens, and the proxy is 0",
        ),
        (lambda _: count(["a b a"], **wrong(support=None)), "support must be text; got None"),
        (lambda _: count(["a b a"], **wrong(temp=5)), "temp must be text or a path or None; got 5"),
        (lambda _: count(["a b a"], context=True), "context must be a whole number; got True"),
        (
            lambda stats: compare(predict(stats), (np.eye(2), np.eye(2)), **wrong(at="x")),
            "at must be a prediction .* got str",
        ),
        (lambda _: NextTokenStatistics.from_counts(None), "one column per context; got NoneType .* call tg.count"),
        (lambda stats: stats.next_tokens("zebra"), "No context of these statistics is 'zebra', and none has 'zebra'"),
        (lambda _: NextTokenStatistics.from_counts(np.eye(2, dtype=bool)), "these are truth values"),
        (lambda _: Factors.of(([[True]], np.eye(1))), "these are truth values"),
        (lambda _: WordTokenizer().encode(**wrong(texts=3)), "one text or several; got int"),
        (lambda _: WordTokenizer(["a", "b"]).decode([7]), "A token is a number from 0 to 1; got 7"),
        (lambda stats: stats.next_tokens(2), "a number from 0 to 1; got 2"),
    ],
)
def test_values_of_another_type_are_refused_in_words(call: Any, says: str) -> None:
    stats = NextTokenStatistics.from_counts([[1, 1], [0, 1]], ["once upon", "a time"], ["x", "y"])
    with pytest.raises(InputError, match=says):
        call(stats)
    assert stats.next_tokens("once upon") == stats.next_tokens(0) == [("x", 1.0)]


def test_where_memory_runs_out_the_error_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = NextTokenStatistics.from_counts(np.eye(2))
    huge = np.broadcast_to(np.ones(()), (2**20, 2**20))
    with pytest.raises(ResourceError, match=r"A table of 1,048,576 x 1,048,576 must fit in memory: .* sparse matrix"):
        NextTokenStatistics.from_counts(huge)
    for error, said in (
        (MemoryError(), "Memory ran out. Take fewer contexts"),
        (
            RuntimeError("can't allocate memory: you tried to allocate 2147483648 bytes"),
            r"\(2 GiB at once",
        ),
    ):
        monkeypatch.setattr("tokengeom.training.train.train_many", lambda *_, error=error, **__: _raise(error))
        with pytest.raises(ResourceError, match=said):
            train(stats, dim=2)


def _raise(error: Exception) -> None:
    raise error


def test_initials_of_a_setting_suggest_it() -> None:
    with pytest.raises(InputError, match="Did you mean 'learning_rate'"):
        make(TrainingSettings, {"lr": 0.1}, "train")


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
