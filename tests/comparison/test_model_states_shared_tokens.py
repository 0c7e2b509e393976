"""A run on one text compared with the prediction for another, on what both texts share."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom.comparison.compare import compare
from tokengeom.comparison.inputs import training_limitations
from tokengeom.comparison.model_states import RestrictedRun, on_shared_tokens
from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict
from tokengeom.training import train


def text(seed: int, tokens: str) -> NextTokenStatistics:
    rng = np.random.default_rng(seed)
    weights = np.random.default_rng(7).dirichlet(np.full(19, 0.4), size=19)[: len(tokens), : len(tokens)]
    weights /= weights.sum(axis=1, keepdims=True)
    ids = [0]
    for _ in range(1500):
        ids.append(int(rng.choice(len(tokens), p=weights[ids[-1]])))
    return count([" ".join(tokens[k] for k in ids)], context=1)


@pytest.fixture(scope="module")
def texts() -> tuple[NextTokenStatistics, NextTokenStatistics]:
    return text(0, "abcdefghijklmnop"), text(1, "abcdefghijklmnopqrs")


def test_rows_and_columns_of_the_run_are_those_of_the_shared_names(
    texts: tuple[NextTokenStatistics, NextTokenStatistics],
) -> None:
    mine, theirs = texts
    W = np.arange(theirs.V, dtype=float)[:, None] * np.ones((1, 3))
    H = np.arange(theirs.m, dtype=float)[None, :] * np.ones((3, 1))
    prediction, (run,) = on_shared_tokens(mine, [Factors(W, H, np.arange(theirs.V, dtype=float))], theirs)
    stats = prediction.statistics
    assert isinstance(run, RestrictedRun)
    assert [theirs.vocabulary[int(z)] for z in run.W[:, 0]] == list(stats.vocabulary)
    assert [theirs.context_text(int(j)) for j in run.H[0]] == [stats.context_text(j) for j in range(stats.m)]
    assert run.bias is not None
    assert run.bias.tolist() == run.W[:, 0].tolist()


def test_a_run_on_another_text_is_compared_on_what_is_shared(
    texts: tuple[NextTokenStatistics, NextTokenStatistics],
) -> None:
    mine, theirs = texts
    run = train(theirs, "ufm", dim=16, steps=400, learning_rate=0.01)
    with pytest.raises(ProblemError, match="--shared-tokens STATS_OF_RUN"):
        compare(predict(mine), run)
    found = compare(mine, run, shared_tokens=theirs, permutations=40, tolerance=4e-3)
    assert found.context_agreement.value > 0.2, "both texts come from nearly the same chain"
    assert np.isfinite(found["limit_context_agreement"].untrained)
    assert found.norm == "gamma2"
    with pytest.raises(ProblemError, match="different statistics"):
        compare(theirs, run, shared_tokens=mine)


def test_runs_that_differ_in_more_than_their_seed_are_no_ceiling() -> None:
    one, other = (RestrictedRun(Factors(np.eye(2), np.eye(2)), None, {"seed": k, "dim": 2 + k}) for k in (0, 1))
    assert "differ in more than their seed (dim)" in training_limitations([one, other])[0]
    assert training_limitations([one]) == []
