"""`Factors`: W and H of anything that has them, checked once, and what is computed from them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors, HasFactors, factored_logit_distance, logit_inner
from tokengeom.core.numerics import centre_columns

RNG = np.random.default_rng(0)
W, H, BIAS = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 5)), RNG.standard_normal(4)


def test_factors_reproduce_logits_with_and_without_bias() -> None:
    Factors(W, H, BIAS).require_logits(W @ H + BIAS[:, None])
    with pytest.raises(ProblemError, match="largest difference"):
        Factors(W, H).require_logits(W @ H + BIAS[:, None])


@pytest.mark.parametrize("given", [(W, H), SimpleNamespace(W=W, H=H), (torch.tensor(W), torch.tensor(H))])
def test_factors_come_from_a_pair_an_object_or_tensors(given: Any) -> None:
    found = Factors.of(given)
    np.testing.assert_array_equal(found.logits, W @ H)
    assert found.bias is None
    assert isinstance(found, HasFactors)


def test_the_bias_of_an_object_is_kept() -> None:
    np.testing.assert_array_equal(Factors.of(Factors(W, H, BIAS)).logits, W @ H + BIAS[:, None])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (W, "must have W .* got ndarray"),
        ((W, H[:2]), r"must share d; got W \(4, 3\) with d=3 and H \(2, 5\)"),
        ((W, RNG.standard_normal((5, 3))), "H looks transposed: pass H.T"),
        ((W, [["a"]]), "H must be an array of numbers"),
        ((W[0], H), r"W must be a matrix with rows and columns; got shape \(3,\)"),
        ((W * np.nan, H), r"W must be finite; got W\[0, 0\]=nan"),
        (Factors(W, H, BIAS[:3]), "bias must have V=4 entries"),
        (Factors(W, H, BIAS * np.inf), "bias must be finite; 4 of 4"),
    ],
)
def test_what_is_not_a_pair_of_factors_is_refused(given: Any, says: str) -> None:
    with pytest.raises(ProblemError, match=says):
        Factors.of(given)


def test_sizes_of_another_prediction_are_refused() -> None:
    found = Factors(W, H)
    found.require_sizes(4, 5)
    with pytest.raises(ProblemError, match="same vocabulary; the prediction has V=6"):
        found.require_sizes(6, 5)
    with pytest.raises(ProblemError, match="same contexts; the prediction has m=7"):
        found.require_sizes(4, 7)
    with pytest.raises(ProblemError, match=r"\(4, 9\) and the run's is \(4, 3\)"):
        found.require_decoder((4, 9))


def test_inner_products_of_logits_need_no_logits() -> None:
    x, y = Factors(W, H, BIAS), Factors(2 * W[:, ::-1], H)
    expected = np.sum(centre_columns(x.logits) * centre_columns(y.logits))
    assert logit_inner(x, y) == pytest.approx(expected, rel=1e-12)


def test_the_distance_of_logits_ignores_scale_bias_and_rotation() -> None:
    R, _ = np.linalg.qr(RNG.standard_normal((3, 3)))
    x = Factors(W, H)
    assert factored_logit_distance(x, Factors(3 * W @ R, R.T @ H, np.full(4, 2.0))) == pytest.approx(0, abs=1e-7)
    assert factored_logit_distance(x, Factors(-W, H)) == pytest.approx(2)
    assert np.isnan(factored_logit_distance(x, Factors(0 * W, H)))


def test_directions_of_tokens_have_their_mean_removed() -> None:
    found = Factors(W, H)
    np.testing.assert_allclose(found.tokens.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found.token_directions, axis=0), 1)
    np.testing.assert_allclose(np.linalg.norm(found.context_directions, axis=0), 1)


def test_the_repr_shows_sizes_instead_of_arrays() -> None:
    assert repr(Factors(W, H, BIAS)) == "Factors(V=4, d=3, m=5, bias)"
