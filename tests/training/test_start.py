"""A start from a prediction: its geometry, its norm, what depends on the seed, and what is refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from scipy.spatial.distance import pdist, squareform

from network_cases import small_stories
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.factors import Factors, HasFactors
from tokengeom.core.numerics import Float
from tokengeom.core.progress import SilentProgress
from tokengeom.results.registry import load
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import predict_proxy
from tokengeom.training.objective import SoftLabels
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.start import PredictedStart
from tokengeom.training.train import build_network, estimate_training, train, train_many
from tokengeom.verification.verify import verify
from training_problems import random_statistics

DIM = 32
"""More than any of these predictions has directions."""


@cache
def prediction(kind: str = "at a loss") -> Any:
    stats = small_stories()
    if kind == "at a loss":
        return predict(stats, loss_gap=0.05)
    return predict_proxy(stats, components=8) if kind == "proxy" else predict(stats)


def started(given: HasFactors, model: str = "ufm", **settings: Any) -> Factors:
    """W and H before the first step."""
    settings = {"dim": DIM, "steps": 0, **settings}
    start = train(small_stories(), model, start=given, **settings).start
    assert start is not None
    return start


def cosine_distances(rows: Float) -> Float:
    return np.asarray(squareform(pdist(rows, "cosine")))


@pytest.mark.parametrize("kind", ["at a loss", "limit", "proxy"])
@pytest.mark.parametrize("model", ["ufm", "mlp", "lstm"])
def test_tokens_have_the_predicted_cosines_and_the_usual_norm(kind: str, model: str) -> None:
    start = started(prediction(kind), model)
    usual = train(small_stories(), model, dim=DIM, steps=0)
    centred = prediction(kind).W - prediction(kind).W.mean(axis=0)
    np.testing.assert_allclose(cosine_distances(start.W), cosine_distances(centred), atol=2e-6)
    norms, usual_norms = (np.linalg.norm(W, axis=1) for W in (start.W, usual.W))
    assert np.sqrt(np.mean(norms**2)) == pytest.approx(np.sqrt(np.mean(usual_norms**2)), rel=1e-6)


def test_features_start_at_the_predicted_logits_up_to_a_factor() -> None:
    start, usual = started(prediction()), train(small_stories(), dim=DIM, steps=0)
    L, wanted = start.W @ start.H, prediction().L
    np.testing.assert_allclose(L / np.linalg.norm(L), wanted / np.linalg.norm(wanted), atol=1e-6)
    assert np.linalg.norm(start.H) == pytest.approx(np.linalg.norm(usual.H), rel=1e-12)
    assert np.linalg.norm(start.W) == pytest.approx(np.linalg.norm(usual.W), rel=1e-12)


def test_only_the_head_of_a_network_is_replaced() -> None:
    stats, settings = small_stories(), TrainingSettings(model="mlp", dim=DIM, seed=3)
    predicted = PredictedStart.of(prediction(), SoftLabels.from_statistics(stats))
    usual, other = build_network(stats, settings), build_network(stats, settings, predicted)
    for (name, one), (_, two) in zip(usual.decoder.named_parameters(), other.decoder.named_parameters(), strict=True):
        assert bool((one == two).all()) == (name != "weight"), name


def test_two_seeds_differ_by_a_rotation() -> None:
    one, two = (started(prediction(), seed=seed) for seed in (0, 1))
    W_one, W_two = one.W / np.linalg.norm(one.W), two.W / np.linalg.norm(two.W)
    assert np.linalg.norm(W_one - W_two) > 0.5
    R, _ = orthogonal_procrustes(W_one, W_two)
    np.testing.assert_allclose(W_one @ R, W_two, atol=1e-9)
    H_one, H_two = one.H / np.linalg.norm(one.H), two.H / np.linalg.norm(two.H)
    np.testing.assert_allclose((W_one @ H_one), (W_two @ H_two), atol=1e-9)
    np.testing.assert_array_equal(started(prediction(), seed=1).W, two.W)


def test_the_head_of_a_network_has_the_orientation_of_its_seed() -> None:
    heads = [started(prediction(), "mlp", seed=seed).W for seed in (0, 1)]
    features = [started(prediction(), seed=seed).W for seed in (0, 1)]
    for head, feature in zip(heads, features, strict=True):
        scaled = feature * np.linalg.norm(head) / np.linalg.norm(feature)
        np.testing.assert_allclose(head, scaled, atol=1e-6)


def test_the_orientation_is_uniform() -> None:
    """A uniformly distributed orthogonal matrix has mean 0 and entries of variance 1/d."""
    start = PredictedStart(np.eye(3), np.eye(3), "", "")
    R = np.array([start.embeddings(3, seed)[0] for seed in range(2_000)])
    assert np.abs(R.mean(axis=0)).max() < 0.06
    np.testing.assert_allclose((R**2).mean(axis=0), 1 / 3, atol=0.03)


def test_in_few_dimensions_the_leading_directions_are_kept() -> None:
    said: list[str] = []

    class Listening(SilentProgress):
        def say(self, sentence: str) -> None:
            said.append(sentence)

    run = train(small_stories(), dim=4, steps=0, start=prediction(), progress=Listening())
    assert run.start is not None
    L = run.start.W @ run.start.H
    U, s, Vt = np.linalg.svd(prediction().L, full_matrices=False)
    leading = (U[:, :4] * s[:4]) @ Vt[:4]
    np.testing.assert_allclose(L / np.linalg.norm(L), leading / np.linalg.norm(leading), atol=1e-6)
    rank = prediction().rank
    assert said == [f"The start has the leading 4 of the prediction's {rank} directions, since dim=4."]
    assert f"the leading 4 of its {rank} directions" in run.summary()


def test_training_goes_on_from_the_start_and_reaches_another_point() -> None:
    settings: dict[str, Any] = {"dim": DIM, "steps": 30, "learning_rate": 1e-2}
    random, other = train(small_stories(), **settings), train(small_stories(), start=prediction(), **settings)
    assert other.loss_gap < random.loss_gap
    assert np.linalg.norm(other.W - random.W) > 1
    assert "start" not in random.settings
    assert random.summary().count("prediction") == 0
    assert other.settings["start"] == {
        "kind": LossPrediction.kind,
        "hash": PredictedStart.of(prediction(), SoftLabels.from_statistics(small_stories())).hash,
        "directions": prediction().rank,
        "used": prediction().rank,
    }
    assert "W started from a prediction (tokengeom-at-loss" in other.summary()


def test_replicates_have_the_starts_of_single_runs() -> None:
    stats, seeds = small_stories(), (0, 1)
    settings = [TrainingSettings(dim=DIM, steps=0, seed=seed) for seed in seeds]
    for backend in ("torch", "cpu"):
        for run, seed in zip(train_many(stats, settings, start=prediction(), backend=backend), seeds, strict=True):
            np.testing.assert_array_equal(run.W, started(prediction(), seed=seed).W)


@pytest.mark.parametrize("model", ["ufm", "mlp"])
def test_a_run_from_a_saved_prediction_is_resumed_and_verified(tmp_path: Path, model: str) -> None:
    stats = small_stories()
    settings: dict[str, Any] = {"dim": DIM, "learning_rate": 1e-3}
    prediction().save(tmp_path / "at-loss")
    whole = train(stats, model, start=prediction(), steps=6, **settings)
    folder: dict[str, Any] = {"checkpoint": tmp_path / "run", **settings}
    train(stats, model, start=tmp_path / "at-loss", steps=3, **folder)
    for other in (None, prediction("proxy")):
        with pytest.raises(InputError, match=r"must have the settings .* start differ"):
            train(stats, model, start=other, steps=6, resume=True, **folder)
    resumed = train(stats, model, start=tmp_path / "at-loss", steps=6, resume=True, **folder)
    np.testing.assert_array_equal(resumed.W, whole.W)
    assert resumed.settings == whole.settings
    assert load(tmp_path / "run").to_dict()["settings"]["start"] == whole.settings["start"]
    assert verify(tmp_path / "run")


def test_labels_and_plain_factors_are_enough() -> None:
    labels = SoftLabels.from_statistics(small_stories())
    start = Factors(prediction().W, prediction().H)
    run = train(labels, dim=DIM, steps=0, start=start)
    np.testing.assert_array_equal(run.W, started(prediction()).W)
    assert run.settings["start"]["kind"] == "Factors"
    assert estimate_training(labels, dim=DIM, steps=10, start=start, rehearsal=0.01).seconds >= 0


def few_tokens() -> Factors:
    return Factors(prediction().W[:-1], prediction().H)


@pytest.mark.parametrize(
    ("given", "settings", "says"),
    [
        (lambda: predict_proxy(random_statistics(0), components=3), {}, "hashes are .{8} and .{8}. Predict from"),
        (few_tokens, {}, "24 and 40; it has 23 and 40. Predict"),
        (prediction, {"model": "mlp", "tied": True}, "Use tied=False, or leave start out"),
        (prediction, {"model": "linear", "embeddings": np.eye(40)}, "Use start with model='ufm' or a network"),
        (small_stories, {}, "start must be a prediction with W and H, .* got tokengeom-statistics"),
        (lambda: Factors(np.ones((24, 2)), np.ones((2, 40))), {}, "no directions.*Predict at a smaller loss gap"),
        (lambda: Factors(np.full((24, 2), np.nan), np.ones((2, 40))), {}, "W must be finite"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(given: Any, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ProblemError, match=says):
        train(small_stories(), **{"steps": 0, **settings}, start=given())
