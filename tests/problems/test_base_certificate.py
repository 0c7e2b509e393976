from __future__ import annotations

import math

import pytest

from tokengeom.problems.base import Certificate


def test_the_gap_is_relative_to_the_value() -> None:
    assert Certificate(0.0, 0.0, 2.0, 1.5).relative_gap == pytest.approx(0.25)
    assert Certificate(0.0, 0.0, 0.0, 0.0).relative_gap == 0.0


@pytest.mark.parametrize(("value", "bound"), [(math.inf, 1.0), (1.0, -math.inf), (math.nan, 1.0)])
def test_without_finite_value_and_bound_nothing_is_proven(value: float, bound: float) -> None:
    certificate = Certificate(0.0, 0.0, value, bound)
    assert certificate.relative_gap == math.inf
    assert not certificate.holds(1e9)


@pytest.mark.parametrize("worst", [Certificate(1e-3, 0, 1, 1), Certificate(0, 1e-3, 1, 1), Certificate(0, 0, 1, 0.999)])
def test_residuals_and_gap_must_all_be_within_the_tolerance(worst: Certificate) -> None:
    assert worst.holds(1.01e-3)
    assert not worst.holds(0.99e-3)


def test_a_certificate_survives_plain_data() -> None:
    certificate = Certificate(1e-12, 2e-12, 3.0, 2.9)
    plain = certificate.to_dict()
    gap = plain.pop("relative_gap")
    assert (Certificate(**plain), gap) == (certificate, certificate.relative_gap)
    assert dict(certificate.rows())["proven gap"] == f"{certificate.relative_gap:.1e}"
