from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csc_array, random_array, vstack

import tokengeom as tg
from feature_cases import from_counts, random_counts
from forging import forge_array
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.numerics import Float
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.problems.supports import reduce_support
from tokengeom.theory.proxy import ARRAYS, ProxyPrediction, predict_proxy, proxy, proxy_factors
from tokengeom.verification.verify import AS_RECORDED, check_result

STATS = from_counts(random_counts(20, 50, 4, seed=1))


def test_every_margin_of_the_proxy_is_one() -> None:
    S = STATS.S.toarray() > 0
    L = proxy(S)
    assert np.allclose(L.sum(axis=0), 0.0, atol=1e-12)
    assert NuclearSVM.from_support(S, merge=False).primal_violation(L) <= 1e-12


def test_the_factors_are_balanced_and_give_the_proxy() -> None:
    S = np.concatenate([STATS.S.toarray(), STATS.S.toarray()[:, :7]], axis=1)
    factors = proxy_factors(reduce_support(S))
    assert np.allclose(factors.W @ factors.H, proxy(S), atol=1e-10)
    assert np.allclose(factors.W.T @ factors.W, factors.H @ factors.H.T, atol=1e-10)


def test_the_truncated_svd_is_that_of_the_dense_proxy() -> None:
    found = predict_proxy(STATS, components=6)
    U, s, Vt = np.linalg.svd(proxy(STATS.S), full_matrices=False)
    assert np.allclose(found.singular_values, s[:6], rtol=1e-9)
    assert np.allclose(np.abs(np.diag(found.U.T @ U[:, :6])), 1.0, atol=1e-6)
    assert np.allclose(found.W @ found.H, (U[:, :6] * s[:6]) @ Vt[:6], atol=1e-6)
    assert found.captured == pytest.approx((s[:6] ** 2).sum() / (s**2).sum(), rel=1e-9)


def test_the_proxy_says_what_it_is() -> None:
    found = predict_proxy(STATS, components=6)
    assert "not the certified L_mm" in found.summary()
    assert found.to_dict()["is_proxy"]
    assert found.statistics_hash == STATS.hash
    assert repr(found).startswith("ProxyPrediction(contexts=50, tokens=20, components=6")


def test_a_saved_proxy_loads_like_every_result_and_is_verified(tmp_path: Path) -> None:
    before = predict_proxy(STATS, components=5)
    back = tg.load(before.save(tmp_path / "p"))
    assert isinstance(back, ProxyPrediction)
    assert back.to_dict() == before.to_dict()
    assert (back.W == before.W).all()
    assert (back.H == before.H).all()
    found = tg.verify(tmp_path / "p")
    assert found.ok, found.failed
    assert len(found.checked) == 6
    assert "give their folder: --with FOLDER" in found.not_checked[0]
    STATS.save(tmp_path / "stats")
    found = tg.verify(tmp_path / "p")
    assert (found.ok, len(found.checked), found.not_checked) == (True, 10, (AS_RECORDED,))


# Each is orthonormal, centred and falling: only the statistics show that it is not the answer.
FORGED = {
    "other vectors": (
        "U",
        lambda U: np.where(np.arange(20)[:, None] == 0, U[1], np.where(np.arange(20)[:, None] == 1, U[0], U)),
        "they are singular vectors of the proxy of the statistics",
    ),
    "other singular values": (
        "singular_values",
        lambda s: 1.01 * s,
        "they are singular vectors of the proxy of the statistics",
    ),
}


@pytest.mark.parametrize(("name", "change", "fails"), FORGED.values(), ids=list(FORGED))
def test_a_forged_proxy_differs_from_its_statistics(
    tmp_path: Path, name: str, change: Callable[[Float], Float], fails: str
) -> None:
    STATS.save(tmp_path / "stats")
    forge_array(predict_proxy(STATS, components=5).save(tmp_path / "p"), ARRAYS, name, change)
    assert fails in tg.verify(tmp_path / "p").failed


def test_leading_triplets_that_were_left_out_are_missed(tmp_path: Path) -> None:
    STATS.save(tmp_path / "stats")
    whole = predict_proxy(STATS, components=6)
    rest = ProxyPrediction(whole.U[:, 2:], whole.singular_values[2:], whole.Vt[2:], whole.captured, STATS.hash)
    assert tg.verify(rest.save(tmp_path / "p")).failed == (
        "no singular value that was left out is larger",
        "the captured share is the one claimed",
    )


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("U", lambda a: np.where(a == a.max(), np.nan, a)),
        ("U", lambda a: a.astype(np.float32)),
        ("U", lambda a: 2.0 * a / np.abs(a).max()),
        ("Vt", lambda a: a[:3]),
        ("Vt", lambda a: a[:, :0]),
        ("Vt", lambda a: a[0]),
        ("singular_values", lambda a: -a),
        ("singular_values", lambda a: np.inf * a),
    ],
)
def test_arrays_that_cannot_be_a_proxy_are_refused(tmp_path: Path, name: str, change: Callable[[Float], Float]) -> None:
    folder = forge_array(predict_proxy(STATS, components=5).save(tmp_path / "p"), ARRAYS, name, change)
    with pytest.raises(InputError, match=rf"{folder} is damaged: "):
        ProxyPrediction.load(folder)


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        ({"U": 1.01}, "the singular vectors of tokens are orthonormal"),
        ({"Vt": 0.99}, "the singular vectors of contexts are orthonormal"),
        ({"singular_values": -1.0}, "the singular values are at least 0 and falling"),
        ({"captured": 20.0}, "the captured share is in (0, 1]"),
        ({"captured": 0.0}, "the captured share is in (0, 1]"),
    ],
)
def test_a_changed_proxy_fails_its_check(change: dict[str, float], fails: str) -> None:
    found = predict_proxy(STATS, components=5)
    ((name, factor),) = change.items()
    changed = replace(found, **{name: getattr(found, name) * factor})
    assert not check_result(changed)[fails]
    assert False not in check_result(found).values()


def test_tokens_that_are_not_centred_fail_their_check() -> None:
    found = predict_proxy(STATS, components=5)
    turned = np.roll(np.eye(20), 1, axis=1)
    turned[0] *= -1.0  # orthogonal, so only the centring is lost
    assert not check_result(replace(found, U=turned @ found.U))["the columns of the logits are centred"]


def test_saved_statistics_are_used_by_their_path(tmp_path: Path) -> None:
    STATS.save(tmp_path / "stats")
    assert predict_proxy(tmp_path / "stats", components=4).to_dict() == predict_proxy(STATS, components=4).to_dict()


def test_a_corpus_sized_pattern_is_never_made_dense() -> None:
    # It would take 8 GB as a dense matrix.
    S = random_array((9_999, 100_000), density=2e-5, rng=np.random.default_rng(0), format="csc")
    pattern = vstack([csc_array(np.ones((1, 100_000))), S]) > 0
    found = predict_proxy(from_counts(pattern.astype(np.int64)), components=3)
    assert found.H.shape == (3, 100_000)


def test_settings_and_patterns_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ProblemError, match="components=20"):
        predict_proxy(STATS, components=20)
    with pytest.raises(ProblemError, match="components=0"):
        predict_proxy(STATS, components=0)
    with pytest.raises(InputError, match="Did you mean 'components'"):
        predict_proxy(STATS, component=3)  # type: ignore[call-arg]
    with pytest.raises(ProblemError, match="column 0"):
        proxy(np.array([[0, 1], [0, 1]]))
