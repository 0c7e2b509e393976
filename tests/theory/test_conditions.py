"""Compatibility and separability: sentences that name contexts and tokens, and proofs that survive saving."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from forging import forge_entry
from linear_instances import LinearInstance, linear_catalogue
from tokengeom import NextTokenStatistics
from tokengeom.core.errors import InputError
from tokengeom.results.convert import from_plain
from tokengeom.theory.conditions import Condition
from tokengeom.theory.linear import LinearPrediction, predict_linear


@pytest.mark.parametrize("instance", linear_catalogue(), ids=lambda instance: instance.name)
def test_conditions_of_known_instances(instance: LinearInstance) -> None:
    prediction = predict_linear(instance.data, instance.data.H)
    assert bool(prediction.compatible) is instance.compatible
    assert bool(prediction.separable) is instance.separable
    for condition in (prediction.compatible, prediction.separable):
        assert str(condition) == condition.sentence
        assert bool(condition.contexts) is not condition.holds
        assert condition.certificate.primal_residual <= 1e-9


def test_contexts_in_conflict_are_named_by_their_text() -> None:
    counts = np.array([[1, 3], [1, 1], [0, 0]])
    stats = NextTokenStatistics.from_counts(counts, contexts=["the", "a"], vocabulary=["cat", "dog", "end"])
    condition = predict_linear(stats, np.array([[1.0, 2.0]])).compatible
    assert not condition
    assert "'the'" in condition.sentence
    assert sorted(condition.contexts) == [0, 1]


@pytest.mark.parametrize("d", [1, 6])
def test_a_condition_survives_plain_data(d: int) -> None:
    counts = np.array([[3, 1, 0, 0], [2, 0, 4, 0], [0, 5, 1, 0], [0, 0, 0, 7]])
    H = np.random.default_rng(0).normal(size=(d, 4))
    prediction = predict_linear(NextTokenStatistics.from_counts(counts), H)
    for condition in (prediction.compatible, prediction.separable):
        back = from_plain(Condition, condition.to_dict(), Path("p"))
        assert back.to_dict() == condition.to_dict()
        assert back.pairs == condition.pairs


@pytest.mark.parametrize("pairs", [[[0, 4]], [[4, 0]], [[-1, 0]], [[0]], [0], [[0.0, 1]]])
def test_pairs_that_are_no_contexts_and_tokens_are_refused(tmp_path: Path, pairs: object) -> None:
    prediction = predict_linear(NextTokenStatistics.from_counts(np.eye(4, dtype=int)), np.eye(4))
    folder = forge_entry(prediction.save(tmp_path / "p"), ("separable", "pairs"), lambda _: pairs)
    with pytest.raises(InputError, match=r"p is damaged: separable.* pairs"):
        LinearPrediction.load(folder)
