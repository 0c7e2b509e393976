from __future__ import annotations

import math
from pathlib import Path

import pytest

from tokengeom.core.errors import InputError
from tokengeom.problems.base import Certificate
from tokengeom.results.convert import from_plain


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


@pytest.mark.parametrize(
    "certificate", [Certificate(1e-12, 2e-12, 3.0, 2.9), Certificate(0.0, math.inf, 1.0, -math.inf)]
)
def test_a_certificate_survives_plain_data(certificate: Certificate) -> None:
    plain = certificate.to_dict()
    assert list(plain) == ["primal_residual", "dual_residual", "value", "bound", "relative_gap"]
    assert plain["relative_gap"] == certificate.relative_gap
    assert from_plain(Certificate, plain, Path("p")) == certificate
    assert dict(certificate.rows())["proven gap"] == f"{certificate.relative_gap:.1e}"


@pytest.mark.parametrize(
    "change", [{"bound": math.nan}, {"primal_residual": -1.0}, {"relative_gap": 0.0}, {"value": "2"}, {"value": 3.0}]
)
def test_a_certificate_that_cannot_be_is_refused(change: dict[str, object]) -> None:
    plain: dict[str, object] = {**Certificate(1e-12, 0.0, 2.0, 1.9).to_dict()}
    with pytest.raises(InputError, match="p is damaged"):
        from_plain(Certificate, plain | change, Path("p"))
