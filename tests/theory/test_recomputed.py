"""What all checks of predictions share: sentences, certificates, and statistics that lie beside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from feature_cases import from_counts, random_counts
from tokengeom.core.checks import Entries
from tokengeom.core.errors import InputError
from tokengeom.problems.base import Certificate
from tokengeom.results.contract import ALONE
from tokengeom.theory.predict import predict
from tokengeom.theory.recomputed import (
    against_statistics,
    entropy_of,
    read_certificate,
    same_certificate,
    same_probabilities,
    same_sentence,
    same_shares,
)
from tokengeom.theory.saved_features import are_counts

STATS = from_counts(random_counts(6, 9, 2, seed=0))
PROOF = Certificate(1e-12, 0.0, 2.0, 1.9)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("optimal within 1.2e-16 (it is)", "optimal within 0.0e+00 (it is)", True),
        ("a margin of 0.3333", "a margin of 0.3334", True),
        ("a margin of 0.33", "a margin of 0.43", False),
        ("2 contexts", "3 contexts", False),
        ("The proxy is exact.", "The proxy is not exact.", False),
    ],
)
def test_sentences_agree_up_to_rounding(one: str, other: str, same: bool) -> None:
    assert same_sentence(one, other) is same


def test_a_certificate_is_read_as_it_was_written() -> None:
    read = read_certificate(Entries(PROOF.to_dict(), Path("p")))
    assert read == PROOF
    assert same_certificate(read, PROOF)
    assert not same_certificate(read, Certificate(1e-12, 0.0, 2.0, 1.8))
    unproven = Certificate(0.0, np.inf, 1.0, -np.inf)
    assert read_certificate(Entries(unproven.to_dict(), Path("p")), finite=False) == unproven


@pytest.mark.parametrize(
    "change",
    [{"value": np.inf}, {"bound": np.nan}, {"primal_residual": -1.0}, {"relative_gap": 0.0}, {"value": "2"}],
)
def test_a_certificate_that_cannot_be_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InputError, match="p is damaged"):
        read_certificate(Entries(PROOF.to_dict() | change, Path("p")))


def test_statistics_at_hand_are_used_and_missing_ones_are_named() -> None:
    prediction = predict(STATS)
    found = against_statistics(prediction, ALONE, lambda stats: {"same": stats is STATS})
    assert found == {"the statistics have the hash that the prediction names": True, "same": True}
    object.__setattr__(prediction, "stats", None)
    assert list(against_statistics(prediction, ALONE, lambda _: {}).values()) == [None]
    object.__setattr__(prediction, "statistics_hash", None)
    ((sentence, holds),) = against_statistics(prediction, ALONE, lambda _: {}).items()
    assert (holds, "from arrays" in sentence) == (None, True)


def test_probabilities_and_entropy_are_those_of_the_statistics() -> None:
    other = STATS.P.copy()
    other.data = other.data[::-1].copy()
    assert same_probabilities(STATS.P, STATS.P.copy())
    assert not same_probabilities(STATS.P, other)
    assert same_shares(STATS.pi, STATS.pi.copy())
    assert not same_shares(STATS.pi, STATS.pi[1:])
    assert entropy_of(STATS.P, STATS.pi) == pytest.approx(STATS.entropy, rel=1e-12)


def test_windows_are_whole_numbers() -> None:
    assert are_counts(STATS.P, STATS.pi, STATS.n)
    assert not are_counts(STATS.P, STATS.pi, STATS.n + 1)
    assert not are_counts(STATS.P, STATS.pi, 1)
