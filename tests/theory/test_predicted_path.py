"""Predictions along the loss: what is kept of each point, and what saving, loading and verifying do with it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp

import tokengeom as tg
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predicted_path import PredictedPath
from tokengeom.verification.verify import AS_RECORDED

SHARES = (0.2, 0.9, 0.5, 0.02)


@cache
def features() -> FeaturePrediction:
    rng = np.random.default_rng(5)
    counts = (rng.random((9, 24)) < 0.35) * rng.integers(1, 9, (9, 24))
    counts[0] += 1
    counts[:, -1] = counts[:, 0]
    found = tg.predict(tg.NextTokenStatistics.from_counts(counts))
    assert isinstance(found, FeaturePrediction)
    return found


@cache
def path() -> PredictedPath:
    return PredictedPath.of(features().path([share * features().largest_gap for share in SHARES]))


def test_points_go_from_the_largest_loss_gap_to_the_smallest() -> None:
    gaps = [one.loss_gap for one in path()]
    assert gaps == pytest.approx([share * features().largest_gap for share in sorted(SHARES, reverse=True)], rel=0.011)
    assert [one.rank for one in path()] == sorted(one.rank for one in path())


def test_the_loss_gap_is_that_of_the_kept_embeddings() -> None:
    stats = features().statistics
    P = stats.P.toarray()
    for one in path():
        L = one.W @ one.H
        loss = float(stats.pi @ (logsumexp(L, axis=0) - (P * L).sum(axis=0)))
        assert one.loss_gap == pytest.approx(loss - stats.entropy, rel=1e-6)


def test_the_norm_is_that_of_the_kept_embeddings_and_above_its_bound() -> None:
    for one in path():
        norm = float(np.linalg.svd(one.W @ one.H, compute_uv=False).sum())
        assert one.nuclear_norm == pytest.approx(norm, rel=1e-6)
        assert 0.0 <= one.relative_gap < 2e-3


def test_points_agree_with_predictions_at_their_losses() -> None:
    for one in path():
        # Losses are met within 1%, which near logits 0 is more in their norm, and not in their direction.
        L, found = features().at(one.loss_gap, tolerance=1e-6).L, one.W @ one.H
        assert np.sum(found * L) > 0.999 * np.linalg.norm(found) * np.linalg.norm(L)


def test_saved_and_loaded_it_is_the_same_and_passes_its_checks(tmp_path: Path) -> None:
    features().statistics.save(tmp_path / "stats")
    path().save(tmp_path / "path")
    again = tg.load(tmp_path / "path")
    assert isinstance(again, PredictedPath)
    assert again.to_dict() == path().to_dict()
    assert all(np.array_equal(a.W, b.W) and np.array_equal(a.H, b.H) for a, b in zip(again, path(), strict=True))
    found = tg.verify(tmp_path / "path")
    assert found.ok
    assert [*map(bool, found.not_checked)] == [True, True]
    assert found.not_checked[1] == AS_RECORDED
    assert list(again.to_frame()["rank"]) == [one.rank for one in path()]


def test_without_its_statistics_nothing_is_claimed_to_be_checked(tmp_path: Path) -> None:
    path().save(tmp_path / "path")
    found = tg.verify(tmp_path / "path")
    assert any("not beside it" in sentence for sentence in found.not_checked)


@pytest.mark.parametrize(
    ("forged", "fails"),
    [
        (lambda one: replace(one, loss_gap=0.95 * one.loss_gap), "loss gap"),
        (lambda one: replace(one, W_merged=one.W_merged * np.float32(0.95)), "loss gap"),
        (lambda one: replace(one, change_merged=one.change_merged * np.float32(0.9)), "lower bound"),
        (lambda one: replace(one, certificate=replace(one.certificate, bound=one.certificate.value)), "lower bound"),
    ],
)
def test_a_forged_point_is_found(tmp_path: Path, forged: object, fails: str) -> None:
    assert callable(forged)
    first, *others = path().points
    features().statistics.save(tmp_path / "stats")
    replace(path(), points=(forged(first), *others)).save(tmp_path / "path")
    found = tg.verify(tmp_path / "path")
    assert any(fails in sentence and sentence.startswith("point 1") for sentence in found.failed)


def test_groups_of_other_statistics_are_found(tmp_path: Path) -> None:
    features().statistics.save(tmp_path / "stats")
    turned = [replace(one, merging=replace(one.merging, column_of=np.roll(one.merging.column_of, 1))) for one in path()]
    replace(path(), points=tuple(turned)).save(tmp_path / "path")
    assert any("equal tokens and contexts" in sentence for sentence in tg.verify(tmp_path / "path").failed)


def test_damaged_arrays_are_refused(tmp_path: Path) -> None:
    bad = replace(path().points[0], H_merged=np.full_like(path().points[0].H_merged, np.nan))
    replace(path(), points=(bad, *path().points[1:])).save(tmp_path / "path")
    with pytest.raises(InputError, match="is damaged"):
        tg.load(tmp_path / "path")


def test_only_points_of_one_path_in_the_nuclear_norm_are_taken() -> None:
    gap = 0.3 * features().largest_gap
    for points in ([], features().path([gap], norm="gamma2"), [features().at(gap), features().at(gap)]):
        with pytest.raises(ProblemError, match="made together"):
            PredictedPath.of(points)
