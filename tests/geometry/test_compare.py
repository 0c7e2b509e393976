"""The verb compare: 1 for the prediction itself, chance for noise, and NaN for what is not defined."""

from __future__ import annotations

import builtins
import inspect
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from geometry_cases import grouped_counts
from tokengeom.errors import InputError, MissingExtraError, ProblemError
from tokengeom.factors import Factors
from tokengeom.geometry.agreement import permutation_orders
from tokengeom.geometry.compare import CompareSettings, compare
from tokengeom.geometry.comparison import MEANINGS, Comparison
from tokengeom.geometry.linear_numbers import DecoderNumbers, MarginNumbers
from tokengeom.geometry.similarity import (
    cosine,
    linear_cka,
    logit_distance,
    pearson_off_diagonal,
    spearman_off_diagonal,
)
from tokengeom.numerics import cosines
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction, predict_linear
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import predict_proxy, proxy
from tokengeom.training import train
from training_problems import paper_setting, random_statistics

FEW = {"resamples": 40, "permutations": 40}


@pytest.fixture(scope="module")
def features() -> FeaturePrediction:
    return predict(NextTokenStatistics.from_counts(grouped_counts(20, 12, 4, 3, seed=0)))


@pytest.fixture(scope="module")
def linear() -> LinearPrediction:
    return predict_linear(*paper_setting(0))


def noise(prediction: FeaturePrediction, d: int = 15, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((prediction.reduction.V, d)), rng.standard_normal((d, prediction.reduction.m))


def values(comparison: Comparison) -> dict[str, float]:
    return {name: comparison[name].value for name in comparison}


def test_the_prediction_itself_rotated_scaled_and_shifted_agrees_fully(features: FeaturePrediction) -> None:
    rng = np.random.default_rng(1)
    R = np.linalg.qr(rng.standard_normal((25, 25)))[0][: features.rank]
    run = 3.0 * features.W @ R + rng.standard_normal(25), 0.5 * R.T @ features.H
    found = compare(features, run, **FEW)
    for name in ("similarity", "cka", "pearson", "spearman"):
        for items in ("context", "token"):
            number = found[f"{items}_{name}"]
            assert number.value == pytest.approx(1.0, abs=1e-6)
            assert number.low == pytest.approx(1.0, abs=1e-6)
            assert number.null < 0.9
    assert found["logit_distance"].value < 1e-3
    assert found["collapse"].value < 1e-20
    assert found.context_similarity.beats_chance
    assert found["finite_distance"].value == pytest.approx(np.linalg.norm(features.L_in), rel=1e-5)
    assert found.context_similarity.value > found["proxy_context_similarity"].value


def test_noise_scores_what_chance_scores(features: FeaturePrediction) -> None:
    found = compare(features, noise(features), resamples=100, permutations=100)
    for name in ("context_similarity", "token_similarity", "context_cka", "context_pearson", "context_spearman"):
        number = found[name]
        assert number.low < number.null_mean < number.high
        assert number.low < number.value < number.high
    assert "no more than chance" in found.summary()


def test_values_are_those_of_the_plain_functions(features: FeaturePrediction) -> None:
    W, H = noise(features, d=6)
    found = compare(features, (W, H), resamples=0, permutations=0)
    tokens = (W - W.mean(axis=0)).T
    C, D = cosines(H), np.round(features.context_cosines, 9)
    expected = {
        "context_cka": linear_cka(H, features.H),
        "token_cka": linear_cka(tokens, features.W.T),
        "context_pearson": pearson_off_diagonal(C, D),
        "context_spearman": spearman_off_diagonal(C, D),
        "token_pearson": pearson_off_diagonal(cosines(tokens), features.token_cosines),
    }
    assert {name: found[name].value for name in expected} == pytest.approx(expected, abs=1e-7)
    assert np.isnan([found.context_similarity.low, found.context_similarity.null]).all()


def test_the_proxy_is_that_of_the_whole_pattern() -> None:
    """Groups of unequal size, where forgotten multiplicities of the merged pattern would change the numbers."""
    stats = NextTokenStatistics.from_counts(
        grouped_counts(12, 6, 4, 3, seed=4)[:, [0, 1, 2, 3, 4, 8, 9, 12, 16, 20, 21]]
    )
    p = predict(stats, spread_solves=0)
    W, H = noise(p, d=6)
    found = compare(p, (W, H), resamples=0, permutations=0)
    M = proxy(stats.S)
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    assert found["proxy_logit_distance"].value == pytest.approx(logit_distance(W @ H, M), rel=1e-9)
    assert found["proxy_context_cka"].value == pytest.approx(linear_cka(H, np.sqrt(s)[:, None] * Vt), rel=1e-9)
    assert found["proxy_token_cka"].value == pytest.approx(
        linear_cka((W - W.mean(axis=0)).T, (U * np.sqrt(s)).T), rel=1e-9
    )


def test_no_number_changes_under_rotation_or_softmax_shift(features: FeaturePrediction) -> None:
    rng = np.random.default_rng(2)
    W, H = noise(features, d=7)
    R = np.linalg.qr(rng.standard_normal((7, 7)))[0]
    one = values(compare(features, (W, H), resamples=0, permutations=0))
    other = values(compare(features, (W @ R + rng.standard_normal(7), R.T @ H), resamples=0, permutations=0))
    assert other == pytest.approx(one, rel=1e-8)


def test_relabelled_contexts_and_tokens_give_the_same_numbers() -> None:
    counts = grouped_counts(12, 8, 2, 3, seed=1)
    rng = np.random.default_rng(3)
    W, H = rng.standard_normal((12, 5)), rng.standard_normal((5, 16))
    z, j = rng.permutation(12), rng.permutation(16)
    first, second = (
        predict(NextTokenStatistics.from_counts(c), tolerance=1e-9, spread_solves=0) for c in (counts, counts[z][:, j])
    )
    one = values(compare(first, (W, H), resamples=0, permutations=0))
    other = values(compare(second, (W[z], H[:, j]), resamples=0, permutations=0))
    assert other == pytest.approx(one, rel=1e-3)  # the gap 1e-9 leaves about its square root in L_mm


def test_the_same_seed_gives_the_same_comparison(features: FeaturePrediction) -> None:
    run = noise(features)
    first, second = compare(features, run, **FEW), compare(features, run, **FEW)
    assert (first.agreements, first.to_dict()) == (second.agreements, second.to_dict())
    assert compare(features, run, **FEW, seed=1).agreements != first.agreements


def test_a_trained_model_agrees_more_than_chance_also_below_the_vocabulary(features: FeaturePrediction) -> None:
    stats = NextTokenStatistics.from_counts(grouped_counts(20, 12, 4, 3, seed=0))
    run = train(stats, "ufm", dim=14, optimizer="adam", steps=1500, learning_rate=0.01)
    found = compare(features, run, **FEW)
    assert found.context_similarity.value > 0.8
    assert found.context_similarity.beats_chance
    assert found.token_similarity.beats_chance
    assert found["collapse"].beats_chance
    assert "nats above its floor" in found.summary()
    small = compare(features, train(stats, "ufm", dim=2, optimizer="adam", steps=200, learning_rate=0.01), **FEW)
    assert f"d=2 < rank L_mm = {features.rank}" in small.summary()


def test_a_bias_changes_only_the_numbers_about_logits(features: FeaturePrediction) -> None:
    W, H = noise(features)
    bias = np.random.default_rng(4).standard_normal(W.shape[0]) * 5
    plain = values(compare(features, SimpleNamespace(W=W, H=H), resamples=0, permutations=0))
    biased = values(compare(features, SimpleNamespace(W=W, H=H, bias=bias), resamples=0, permutations=0))
    assert {name for name in plain if not np.isclose(plain[name], biased[name])} == {
        "logit_distance",
        "proxy_logit_distance",
        "finite_distance",
    }


def test_the_limit_of_the_linear_model_agrees_fully(linear: LinearPrediction) -> None:
    found = compare(linear, (linear.W_star + 1e5 * linear.W_mm, linear.data.H), **FEW)
    assert list(found) == [name for name in MEANINGS if name in found.agreements]
    assert found["cosine"].value == pytest.approx(1.0, abs=1e-6)
    assert found["cosine_without_finite"].low == pytest.approx(1.0, abs=1e-9)
    assert found["finite_error"].value < 1e-6
    assert found["finite_error"].null > 0.1
    assert found["margin_frobenius"].value == pytest.approx(linear.margin, rel=1e-3)
    assert found["margin_max"].beats_chance
    assert np.isnan(found["margin_max"].low)
    with pytest.raises(ProblemError, match="cosine_without_finite"):
        _ = found.context_similarity


def test_linear_values_are_those_of_the_definitions(linear: LinearPrediction) -> None:
    W = np.random.default_rng(5).standard_normal(linear.W_mm.shape)
    found = compare(linear, (W, 2.0 * linear.data.H), resamples=0, permutations=0)
    cos = np.vdot(W, linear.W_mm) / np.linalg.norm(W) / np.linalg.norm(linear.W_mm)
    assert found["cosine"].value == pytest.approx(cos, rel=1e-12)
    D = W - linear.W_star
    cos = np.vdot(D, linear.W_mm) / np.linalg.norm(D) / np.linalg.norm(linear.W_mm)
    assert found["cosine_without_finite"].value == pytest.approx(cos, rel=1e-12)
    error = np.linalg.norm(linear.finite_part(W) - linear.W_star) / np.linalg.norm(linear.W_star)
    assert found["finite_error"].value == pytest.approx(error, rel=1e-9)
    assert "embeddings from those of the prediction is 1 (relative)" in found.summary()


def test_the_loss_is_measured_from_the_floor_that_it_can_reach() -> None:
    stats = NextTokenStatistics.from_probabilities(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    prediction = predict_linear(stats, np.ones((1, 2)))  # one embedding, two answers: CE - H tends to log 2
    run = SimpleNamespace(W=np.ones((3, 1)), H=np.ones((1, 2)), loss_gap=np.log(2.0) + 0.125, status="interrupted")
    text = compare(prediction, run, resamples=0, permutations=0).summary()
    assert "0.125 nats above its floor" in text
    assert "not complete: interrupted" in text
    assert "not separable" in text


def test_permuted_numbers_are_those_of_the_permuted_decoder(linear: LinearPrediction) -> None:
    rng = np.random.default_rng(7)
    run = Factors(rng.standard_normal(linear.W_mm.shape), linear.data.H)
    orders = permutation_orders(rng, 10, 3)
    found = DecoderNumbers(run, linear).permuted(orders) | MarginNumbers(run, linear).permuted(orders)
    for k, order in enumerate(orders):
        expected = values(compare(linear, (run.W[order], run.H), resamples=0, permutations=0))
        # W_star is subtracted before tokens are permuted: what is permuted is the part that diverges.
        D = (run.W - linear.W_star)[order]
        expected["cosine_without_finite"] = cosine(D, linear.W_mm)
        assert {name: found[name][k] for name in expected} == pytest.approx(expected, rel=1e-9)


def test_numbers_are_nan_where_nothing_is_predicted() -> None:
    full = NextTokenStatistics.from_probabilities(np.array([[0.3, 0.6, 0.5], [0.7, 0.4, 0.5]]))
    H = np.random.default_rng(6).standard_normal((3, 3))
    found = compare(predict(full), (np.eye(2, 3), H), **FEW)
    assert np.isnan([found.context_similarity.value, found["logit_distance"].value, found["collapse"].value]).all()
    assert "no geometry" in found.summary()
    decoder = compare(predict_linear(full, H), (np.eye(2, 3), H), **FEW)
    assert np.isnan([decoder["cosine"].value, decoder["margin_frobenius"].value]).all()
    assert "Nothing diverges" in decoder.summary()


def test_contexts_with_full_support_are_left_out_with_a_limitation() -> None:
    counts = np.concatenate([grouped_counts(8, 6, 2, 3, seed=2), np.ones((8, 1), int)], axis=1)
    p = predict(NextTokenStatistics.from_counts(counts))
    W, H = noise(p)
    found = compare(p, (W, H), **FEW)
    assert found["context_pearson"].value == pytest.approx(
        pearson_off_diagonal(cosines(H[:, :-1]), p.context_cosines[:-1, :-1]), abs=1e-9
    )
    assert "1 of 13 contexts have full support" in found.summary()


def test_the_proxy_alone_can_be_compared() -> None:
    stats = random_statistics(0, V=12, m=20)
    p = predict_proxy(stats, components=11)
    found = compare(p, p, **FEW)
    assert found["proxy_context_similarity"].value == pytest.approx(1.0, abs=1e-6)
    assert "finite_distance" not in found.agreements
    assert "not the certified L_mm" in found.summary()


def test_limitations_name_uniqueness_and_shared_supports(features: FeaturePrediction) -> None:
    text = compare(features, noise(features), **FEW).summary()
    assert "certificate determines" in text
    assert "48 contexts share 12 supports" in text


def test_tables_and_json(features: FeaturePrediction, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compare(features, noise(features), **FEW)
    data = json.loads(json.dumps(found.to_dict()))
    assert {"value", "low", "high", "null"} <= set(data["context_similarity"])
    frame = found.to_frame()
    assert list(frame.index) == list(found)
    assert frame.loc["token_similarity", "value"] == found.token_similarity.value
    real = builtins.__import__

    def without_pandas(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(MissingExtraError, match="pandas"):
        found.to_frame()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ((np.ones((19, 4)), np.ones((4, 48))), r"V=20 tokens and W of the run has 19 rows"),
        ((np.ones((20, 4)), np.ones((4, 47))), r"m=48 and H of the run has 47 columns"),
        ((np.ones((20, 4)), np.ones((48, 4))), r"d=4 and H \(48, 4\) with d=48. H looks transposed"),
        ((np.full((20, 4), np.nan), np.ones((4, 48))), r"W\[0, 0\]=nan \(80 such entries of 80\)"),
        ((np.ones((20, 4)), np.full((4, 48), np.inf)), r"H\[0, 0\]=inf"),
        ((np.ones(20), np.ones((4, 48))), r"W must be a matrix with rows and columns; got shape \(20,\)"),
        ((np.ones((20, 0)), np.ones((0, 48))), r"got shape \(20, 0\)"),
        (7, "got int"),
        (SimpleNamespace(W=np.ones((20, 4)), H=np.ones((4, 48)), bias=np.ones(3)), "V=20 entries"),
    ],
)
def test_runs_that_do_not_fit_are_refused(features: FeaturePrediction, run: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        compare(features, run)


def test_other_bad_input_is_refused(features: FeaturePrediction, linear: LinearPrediction) -> None:
    with pytest.raises(ProblemError, match=r"is \(10, 60\) and the run's is \(10, 61\)"):
        compare(linear, (np.ones((10, 61)), np.ones((61, 50))))
    with pytest.raises(ProblemError, match="in this order"):
        compare(noise(features), features)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="permutations=-1"):
        compare(features, noise(features), permutations=-1)


def test_saved_results_are_compared_by_their_paths(features: FeaturePrediction, tmp_path: Path) -> None:
    stats = NextTokenStatistics.from_counts(grouped_counts(20, 12, 4, 3, seed=0))
    run = train(stats, "ufm", dim=5, steps=20)
    features.save(tmp_path / "prediction")
    run.save(tmp_path / "run")
    found = compare(tmp_path / "prediction", str(tmp_path / "run"), **FEW)
    assert found.agreements == compare(features, run, **FEW).agreements
    with pytest.raises(ProblemError, match=r"got Run in .*in this order"):
        compare(tmp_path / "run", tmp_path / "prediction")
    stats.save(tmp_path / "stats")
    with pytest.raises(ProblemError, match="holds a NextTokenStatistics"):
        compare(features, tmp_path / "stats")
    with pytest.raises(InputError, match="nothing"):
        compare(tmp_path / "nothing", run)


def test_a_run_on_another_text_is_refused(features: FeaturePrediction) -> None:
    other = NextTokenStatistics.from_counts(grouped_counts(20, 12, 4, 3, seed=9))
    run = train(other, "ufm", dim=5, steps=5)
    assert features.statistics_hash is not None
    with pytest.raises(ProblemError, match=rf"hashes {features.statistics_hash[:8]} and {other.hash[:8]}\).*run\.W"):
        compare(features, run)
    assert compare(features, (run.W, run.H), **FEW).context_similarity.has_null, "arrays can be compared regardless"


def test_a_loss_gap_can_be_given_with_arrays(features: FeaturePrediction) -> None:
    found = compare(features, noise(features), loss_gap=0.25, **FEW)
    assert "The run's loss is 0.25 nats above its floor" in found.summary()


def test_settings_are_checked_and_shown_in_the_signature(features: FeaturePrediction) -> None:
    with pytest.raises(InputError, match="Did you mean 'resamples'"):
        compare(features, noise(features), resample=40)
    with pytest.raises(ProblemError, match="resamples=5"):
        CompareSettings(resamples=5)
    assert inspect.signature(compare).parameters["permutations"].default == CompareSettings().permutations == 200


def test_four_hundred_contexts_take_seconds() -> None:
    p = predict(NextTokenStatistics.from_counts(grouped_counts(104, 40, 10, 4, seed=3)), spread_solves=0)
    began = time.perf_counter()
    compare(p, noise(p, d=128))
    assert time.perf_counter() - began < 30.0  # about 2 s on an idle core


def test_a_run_is_compared_with_the_prediction_at_its_own_loss() -> None:
    stats = NextTokenStatistics.from_counts(grouped_counts(12, 8, 3, 3, seed=0))
    run = train(stats, "ufm", dim=12, learning_rate=1e-2, steps=300)
    features = predict(stats)
    at = features.at(run.loss_gap)
    found = compare(at, run, resamples=20, permutations=20)
    assert found["at_loss_context_similarity"].beats_chance
    assert "with L_g's" in found.summary()
    assert any("agree within 2%" in sentence for sentence in found.limitations)
    itself = compare(at, at, resamples=0, permutations=0)
    assert itself["at_loss_token_similarity"].value == pytest.approx(1.0)
    other = compare(features.at(run.loss_gap * 3), run, resamples=0, permutations=0)
    assert any("like with like" in sentence for sentence in other.limitations)
