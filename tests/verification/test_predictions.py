"""What all checks of predictions share: certificates, conditions, and statistics that lie beside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from feature_cases import from_counts, random_counts
from tokengeom.problems.base import Certificate
from tokengeom.results.contract import ALONE
from tokengeom.theory.linear import predict_linear
from tokengeom.theory.predict import predict
from tokengeom.verification.predictions import against_statistics, close, same_entries, same_probabilities
from tokengeom.verification.verify import Checks, check_result, with_statistics

STATS = from_counts(random_counts(6, 9, 2, seed=0))
PROOF = Certificate(1e-12, 0.0, 2.0, 1.9)


@pytest.mark.parametrize("change", [{"bound": 1.8}, {"value": np.inf}, {"dual_residual": 1e-3}])
def test_certificates_agree_in_every_number(change: dict[str, float]) -> None:
    assert close(PROOF, replace(PROOF, value=2.0 + 1e-10))
    assert not close(PROOF, replace(PROOF, **change))


def test_infinite_numbers_agree_with_each_other_alone() -> None:
    assert close(np.inf, np.inf)
    assert not close(np.inf, 1.0)


def test_statistics_at_hand_are_used_and_missing_ones_are_named() -> None:
    prediction = predict(STATS)
    checks = against_statistics(prediction, ALONE, lambda stats: {"same": stats is STATS})
    assert checks == {"the statistics have the hash that it names": True, "same": True}
    object.__setattr__(prediction, "stats", None)
    assert list(against_statistics(prediction, ALONE, lambda _: {}).values()) == [None]
    object.__setattr__(prediction, "statistics_hash", None)
    ((sentence, holds),) = against_statistics(prediction, ALONE, lambda _: {}).items()
    assert (holds, "from arrays" in sentence) == (None, True)


def test_statistics_of_another_size_or_hash_fail_and_missing_ones_are_named() -> None:
    def checks(seal: str, *known: object) -> Checks:
        return with_statistics(seal, ALONE, "the loss", lambda _: {"compared": True}, *known)  # type: ignore[arg-type]

    sizes = STATS.V, STATS.m
    assert checks(STATS.hash, sizes, STATS) == {"the statistics have the hash that it names": True, "compared": True}
    assert checks(STATS.hash, sizes[::-1], STATS) == {"it has the tokens and contexts of its statistics": False}
    assert checks("0" * 64, sizes, STATS)["the statistics have the hash that it names"] is False
    ((sentence, holds),) = checks(STATS.hash).items()
    assert (holds, sentence.startswith("the loss: the statistics with the hash")) == (None, True)


def test_probabilities_are_those_of_the_statistics() -> None:
    other = STATS.P.copy()
    other.data = other.data[::-1].copy()
    assert same_probabilities(STATS.P, STATS.P.copy())
    assert not same_probabilities(STATS.P, other)
    assert same_entries(STATS.pi, STATS.pi.copy())
    assert not same_entries(STATS.pi, STATS.pi[1:])


@pytest.mark.parametrize("d", [1, 6])
@pytest.mark.parametrize(("name", "described"), [("compatible", "compatibility"), ("separable", "separability")])
def test_a_condition_with_other_words_or_contexts_is_found(d: int, name: str, described: str) -> None:
    counts = np.array([[3, 1, 0, 0], [2, 0, 4, 0], [0, 5, 1, 0], [0, 0, 0, 7]])
    prediction = predict_linear(from_counts(counts), np.random.default_rng(0).normal(size=(d, 4)))
    assert False not in check_result(prediction).values()
    condition = getattr(prediction, name)
    for changed in (
        replace(condition, sentence=condition.sentence.replace("data are", "data may be")),
        replace(condition, contexts=(3, 2)),
    ):
        checks = check_result(replace(prediction, **{name: changed}))
        assert not checks[f"{described} is described as its proof shows it"]
