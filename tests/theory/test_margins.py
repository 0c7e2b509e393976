"""Largest margins in each norm, compared with each other and with the prediction."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom import NextTokenStatistics
from tokengeom.corpus.synthetic import random_soft_labels
from tokengeom.errors import ProblemError
from tokengeom.numerics import Float
from tokengeom.problems.ntp_svm import NORMS
from tokengeom.theory.linear import predict_linear
from tokengeom.theory.margins import max_margin


def setting(d: int) -> tuple[NextTokenStatistics, Float]:
    truth = random_soft_labels(V=4, m=6, k=2, seed=3).truth
    return NextTokenStatistics.from_probabilities(truth.P, truth.pi), np.random.default_rng(1).normal(size=(d, 6))


def test_each_norm_has_the_largest_margin_in_its_own_norm() -> None:
    stats, H = setting(8)
    found = {name: max_margin(stats, H, name) for name in NORMS}
    for name, mine in found.items():
        assert mine.separable
        assert mine.certificate.relative_gap < 1e-5
        for other in found.values():
            rival = other.margin * NORMS[other.norm].value(other.W) / NORMS[name].value(other.W)
            assert mine.margin >= rival * (1 - 1e-5)


def test_the_frobenius_margin_is_the_predicted_one() -> None:
    stats, H = setting(8)
    prediction = predict_linear(stats, H)
    found = max_margin(stats, H)
    assert found.margin == pytest.approx(prediction.margin, rel=1e-8)
    np.testing.assert_allclose(found.W, prediction.W_mm, atol=1e-7)


def test_data_that_are_not_separable_have_no_margin_in_any_norm() -> None:
    stats, H = setting(1)
    for name in NORMS:
        found = max_margin(stats, H, name)
        assert not found.separable
        assert found.margin == 0


def test_an_unknown_norm_is_refused() -> None:
    with pytest.raises(ProblemError, match="norm must be one of"):
        max_margin(*setting(8), norm="taxi")
