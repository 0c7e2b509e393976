"""W and H reproduce a model's logits, or are refused; starts are drawn as stated."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom.errors import ProblemError
from tokengeom.models import UFM, Factors, Linear


def test_readout_reproduces_logits_with_and_without_bias() -> None:
    rng = np.random.default_rng(0)
    W, H, bias = rng.standard_normal((4, 3)), rng.standard_normal((3, 5)), rng.standard_normal(4)
    Factors(W, H, bias).check(W @ H + bias[:, None])
    with pytest.raises(ProblemError, match="largest difference"):
        Factors(W, H).check(W @ H + bias[:, None])


def test_lecun_entries_have_variance_one_over_d() -> None:
    model = UFM(200, 300, 50, generator=np.random.default_rng(1))
    # Five standard errors of a variance over 10,000 and 15,000 entries.
    assert model.W.var() * 50 == pytest.approx(1.0, abs=5 * np.sqrt(2 / 10_000))
    assert model.H.var() * 50 == pytest.approx(1.0, abs=5 * np.sqrt(2 / 15_000))


def test_linear_model_trains_the_embeddings_only_when_asked() -> None:
    H = np.ones((2, 3))
    assert Linear(4, H).trainable == ("W",)
    assert Linear(4, H, learn_embeddings=True).trainable == ("W", "H")
    np.testing.assert_array_equal(Linear(4, H).W, np.zeros((4, 2)))
    assert UFM(4, 3, 2).trainable == ("W", "H")


def test_starts_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ProblemError, match="got 'ones'"):
        Linear(4, np.ones((2, 3)), init="ones")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match=r"shape \(3,\)"):
        Linear(4, np.ones(3))
    with pytest.raises(ProblemError, match="got 0"):
        UFM(4, 3, 0)
