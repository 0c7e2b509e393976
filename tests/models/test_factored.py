"""Models of two matrices: initialisation as stated, and which parameters are trained."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom.core.errors import ProblemError
from tokengeom.models.factored import FACTORED, UFM, Linear


def test_lecun_entries_have_variance_one_over_d() -> None:
    model = UFM(200, 300, 50, generator=np.random.default_rng(1))
    # Five standard errors of a variance over 10,000 and 15,000 entries.
    assert model.W.var() * 50 == pytest.approx(1.0, abs=5 * np.sqrt(2 / 10_000))
    assert model.H.var() * 50 == pytest.approx(1.0, abs=5 * np.sqrt(2 / 15_000))


def test_linear_model_trains_the_embeddings_only_on_request() -> None:
    H = np.ones((2, 3))
    assert Linear(4, H).trainable == ("W",)
    assert Linear(4, H, learn_embeddings=True).trainable == ("W", "H")
    np.testing.assert_array_equal(Linear(4, H).W, np.zeros((4, 2)))
    assert UFM(4, 3, 2).trainable == ("W", "H")


def test_the_readout_is_the_parameters() -> None:
    model = UFM(4, 3, 2)
    np.testing.assert_array_equal(model.readout().logits, model.W @ model.H)
    assert model.dim == 2


def test_invalid_initialisations_and_shapes_are_refused() -> None:
    with pytest.raises(ProblemError, match="got 'ones'"):
        Linear(4, np.ones((2, 3)), init="ones")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match=r"got \(4, 3\) and \(3,\)"):
        Linear(4, np.ones(3))
    with pytest.raises(ProblemError, match="got 0"):
        UFM(4, 3, 0)
    with pytest.raises(ProblemError, match="init='zero'"):
        UFM(4, 3, 2, init="zero")


def test_each_model_lists_its_own_settings() -> None:
    assert {name: kind.options for name, kind in FACTORED.items()} == {
        "linear": ("init", "learn_embeddings"),
        "ufm": ("init",),
    }
