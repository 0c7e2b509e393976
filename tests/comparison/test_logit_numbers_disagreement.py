"""Efficiency and split: balanced factors, lazy factors, and what is said about them."""

from __future__ import annotations

import numpy as np
import pytest

import tokengeom as tg
from tokengeom.comparison import logit_numbers as module
from tokengeom.comparison.logit_numbers import Disagreement, balanced_factors, disagreement
from tokengeom.core.factors import Factors
from tokengeom.results.convert import to_plain

NAN = float("nan")


def logits(rng: np.random.Generator, V: int = 14, m: int = 20) -> np.ndarray:
    L = rng.standard_normal((V, 6)) * 2.0 ** -np.arange(6) @ rng.standard_normal((6, m))
    return np.asarray(L - L.mean(axis=0))


@pytest.mark.parametrize("power", [0.25, 0.5, 0.75])
def test_the_exponent_is_the_share_of_the_logits_that_the_tokens_carry(power: float) -> None:
    rng = np.random.default_rng(0)
    L = logits(rng)
    U, s, Vt = np.linalg.svd(L, full_matrices=False)
    R = np.linalg.qr(rng.standard_normal((s.size, s.size)))[0]
    run = Factors(U * s**power @ R, R.T @ (s[:, None] ** (1 - power) * Vt))
    found = disagreement(run, np.arange(20), "nuclear", (0.5, 0.6))
    assert found.split_exponent == pytest.approx(power, abs=1e-6)
    assert found.lazy_factor == {0.25: "tokens", 0.5: None, 0.75: "contexts"}[power]
    assert (found.split_contexts > 1 - 1e-9) == (power == 0.5)
    assert (found.efficiency, found.efficiency_high) == (0.5, 0.6)


def test_balanced_factors_reproduce_the_centred_logits_with_the_bias() -> None:
    rng = np.random.default_rng(1)
    run = Factors(rng.standard_normal((9, 4)), rng.standard_normal((4, 7)), rng.standard_normal(9))
    balanced, carried, s = balanced_factors(run)
    L = run.logits - run.logits.mean(axis=0)
    assert pytest.approx(L, abs=1e-9) == balanced.W @ balanced.H
    assert pytest.approx(balanced.H @ balanced.H.T, abs=1e-9) == balanced.W.T @ balanced.W
    assert s == pytest.approx(np.linalg.svd(L, compute_uv=False)[: s.size])
    U = np.linalg.svd(L, full_matrices=False)[0][:, : s.size]
    np.testing.assert_allclose(carried, np.linalg.norm(run.tokens @ U, axis=0), rtol=1e-9)
    rows = np.array([2, 5])
    np.testing.assert_allclose(balanced_factors(run, rows)[0].W, balanced.W[rows], atol=1e-12)


def test_the_gram_matrix_gives_the_same_numbers_as_a_qr_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    run = Factors(rng.standard_normal((30, 4)), rng.standard_normal((4, 7)), rng.standard_normal(30))
    found = []
    for largest in (module.LARGE_FACTOR, 0):
        monkeypatch.setattr(module, "LARGE_FACTOR", largest)
        one = disagreement(run, np.arange(7), "nuclear", (0.5, 0.6))
        found.append([one.split_contexts, one.split_tokens, one.split_exponent])
    assert found[1] == pytest.approx(found[0], rel=1e-6)


def test_logits_of_zero_or_that_overflow_have_no_split() -> None:
    for scale in (0.0, 1e200):
        run = Factors(scale * np.eye(5), scale * np.eye(5))
        found = disagreement(run, np.arange(5), "nuclear", (NAN, NAN))
        assert np.isnan([found.split_contexts, found.split_tokens, found.split_exponent]).all()
        assert found.sentences() == []
        assert found.lazy_factor is None


def test_sentences_and_remedies_name_low_numbers() -> None:
    low = Disagreement("gamma2", 0.4, 0.5, 0.8, 0.7, 0.3)
    assert "gamma_2 norm" in low.sentences()[0]
    assert any("larger than the loss needs" in sentence for sentence in low.remedies())
    assert any("tokens carry less" in sentence for sentence in low.remedies())
    assert Disagreement("nuclear", 0.95, 0.96, 0.99, 0.99, 0.5).remedies() == []
    assert to_plain(low)["split_exponent"] == 0.3


def test_logits_that_are_too_many_for_efficiency_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = tg.count(context=2, top_contexts=20, vocabulary=10)
    run = tg.train(stats, "ufm", dim=8, steps=300, optimizer="adamw", learning_rate=0.02)
    known = tg.compare(tg.predict(stats), run, permutations=0)
    assert 0 < known.efficiency <= 1
    assert not any("Efficiency was not computed" in sentence for sentence in known.limitations)
    monkeypatch.setattr("tokengeom.comparison.compare.EFFICIENCY_LOGITS", 10)
    large = tg.compare(tg.predict(stats), run, permutations=0)
    assert np.isnan(large.efficiency)
    assert sum("Efficiency was not computed" in sentence for sentence in large.limitations) == 1
