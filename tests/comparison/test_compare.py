"""The verb compare: 1 for the prediction itself, chance for noise, a verdict, and NaN for what is not defined."""

from __future__ import annotations

import builtins
import inspect
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr

from geometry_cases import grouped_counts, structural_similarity
from network_cases import small_stories
from tokengeom.comparison.agreement import permutation_orders
from tokengeom.comparison.compare import compare, frequency_gap, judged_inputs
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.inputs import CompareSettings, gather, support_groups
from tokengeom.comparison.linear_numbers import DecoderNumbers
from tokengeom.comparison.similarity import cosine
from tokengeom.comparison.target import MEANINGS
from tokengeom.core.errors import InputError, MissingExtraError, ProblemError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import cosines
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction, predict_linear
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import predict_proxy
from tokengeom.training.objective import SoftLabels
from tokengeom.training.simulate import simulate
from tokengeom.training.train import train
from tokengeom.verification.verify import verify
from training_problems import paper_setting, random_statistics
from work import calls_in

FEW: dict[str, Any] = {"permutations": 40, "tolerance": 4e-3}
NONE: dict[str, Any] = {"permutations": 0, "at_loss": False}


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


def statistics() -> NextTokenStatistics:
    return NextTokenStatistics.from_counts(grouped_counts(20, 12, 4, 3, seed=0))


def test_the_prediction_itself_rotated_scaled_and_shifted_agrees_fully(features: FeaturePrediction) -> None:
    rng = np.random.default_rng(1)
    R = np.linalg.qr(rng.standard_normal((25, 25)))[0][: features.rank]
    run = 3.0 * features.W @ R + rng.standard_normal(25), 0.5 * R.T @ features.H
    found = compare(features, run, permutations=40, at_loss=False)
    for name in ("agreement", "similarity"):
        for items in ("context", "token"):
            number = found[f"limit_{items}_{name}"]
            assert number.value == pytest.approx(1.0, abs=1e-6)
            assert number.low == pytest.approx(1.0, abs=1e-5)
            assert number.floor < 0.9
            assert number.above_floor
    assert found["limit_logit_cosine"].value > 1 - 1e-6
    assert found["collapse"].value < 1e-20
    assert found["finite_distance"].value == pytest.approx(np.linalg.norm(features.L_in), rel=1e-5)
    assert (found.verdict, found.norm) == ("agrees", None)
    assert found.in_limit["context_agreement"] is found.context_agreement


def test_noise_is_at_chance_and_does_not_agree(features: FeaturePrediction) -> None:
    found = compare(features, noise(features), permutations=100)
    for name in ("context_agreement", "token_agreement", "context_similarity", "token_similarity"):
        number = found[f"limit_{name}"]
        assert number.low < number.value < number.high
        assert not number.above_floor
    assert found.verdict == "does not agree"
    assert found.summary().startswith(found.reasons[0])
    assert any("is at least that of a uniform guess" in sentence for sentence in found.limitations)


def test_values_are_those_of_plain_loops_and_scipy(features: FeaturePrediction) -> None:
    W, H = noise(features, d=6)
    found = compare(features, (W, H), **NONE)
    # Tokens that follow some context; the mean is theirs.
    seen = np.unique(features.P.indices)
    ours, theirs = W[seen], features.W[seen]
    groups = support_groups(features)
    apart = groups[:, None] != groups[None, :]
    off = ~np.eye(seen.size, dtype=bool)
    C, D = cosines(H), features.context_cosines
    T, U = (cosines((rows - rows.mean(axis=0)).T) for rows in (ours, theirs))
    expected = {
        "limit_context_agreement": pearsonr(C[apart], D[apart])[0],
        "limit_token_agreement": pearsonr(T[off], U[off])[0],
        "limit_context_similarity": structural_similarity(C, D),
    }
    assert {name: found[name].value for name in expected} == pytest.approx(expected, abs=1e-7)
    assert np.isnan(found.context_agreement.floor)
    assert np.isfinite(found.context_agreement.low)
    assert found.verdict == "cannot be determined"


def test_a_run_is_compared_at_its_own_loss_in_both_norms_and_in_the_limit(features: FeaturePrediction) -> None:
    at = features.at(0.05)
    found = compare(features, (at.W, at.H), permutations=40)
    assert found.norm == "nuclear", "the papers' norm, where the optimizer is not known and supports are few"
    assert any("With 12 supports the norm was not chosen by agreement" in sentence for sentence in found.limitations)
    assert found.loss_gap == pytest.approx(0.05, rel=0.02)
    assert found.context_agreement.value > 0.9999
    assert found.token_agreement.value > 0.9999
    assert found["limit_context_agreement"].value < found.context_agreement.value
    assert found.at_loss.keys() == found.in_limit.keys()
    assert {one.norm for one in found.at} == {"nuclear", "gamma2"}
    assert 0.99 < found.efficiency <= 1.0
    assert found.split["contexts"] > 0.9999
    assert found.split["exponent"] == pytest.approx(0.5, abs=1e-3)
    assert found.verdict == "agrees"
    assert any("optimizer is not known" in sentence for sentence in found.reasons)
    again = compare(features, (at.W, at.H), at=at, permutations=40)
    assert again.norm == "nuclear"
    assert "gamma2_context_agreement" not in again.agreements


@pytest.mark.parametrize("norm", ["nuclear", "gamma2"])
def test_an_unknown_norm_is_chosen_on_half_of_the_supports_and_judged_on_the_others(norm: str) -> None:
    stats = NextTokenStatistics.from_counts(grouped_counts(14, 24, 2, 3, seed=2))
    prediction = predict(stats, spread_solves=0)
    at = [prediction.at(0.1, norm=one, tolerance=1e-3) for one in ("nuclear", "gamma2")]
    made = at[norm == "gamma2"]
    inputs = gather([(made.W, made.H)], prediction, at, None)
    contexts = {one.norm: one.H for one in at}
    chosen, judged = judged_inputs(inputs, contexts)
    assert chosen == norm
    left = np.setdiff1d(inputs.kept, judged.kept)
    assert [np.unique(inputs.groups[half]).size for half in (left, judged.kept)] == [10, 11], "of 21 supports"
    assert not set(inputs.groups[judged.kept]) & set(inputs.groups[left]), "whole supports"
    # Of the judged half, nothing has a part in the choice.
    other = made.H.copy()
    other[:, judged.kept] = np.random.default_rng(0).standard_normal(other[:, judged.kept].shape)
    assert judged_inputs(replace(inputs, runs=[Factors(made.W, other)]), contexts)[0] == norm
    known = SimpleNamespace(W=made.W, H=made.H, settings={"optimizer": "adam"})
    named, whole = judged_inputs(replace(inputs, observed=[known]), contexts)
    assert (named, whole.kept.size) == ("gamma2", stats.m), "nothing is left out where the norm is known"
    found = compare(prediction, (made.W, made.H), at=at, permutations=0)
    assert (found.norm, found.circumstances and found.circumstances.groups) == (norm, 11)
    assert any("The norm was chosen on 10 of 21 supports" in sentence for sentence in found.limitations)
    units = np.unique(inputs.groups[judged.kept], return_inverse=True)[1].reshape(-1)
    mine, theirs = (cosines(H[:, judged.kept]) for H in (made.H, contexts[norm]))
    apart = units[:, None] != units[None, :]
    expected = pearsonr(mine[apart], theirs[apart])[0]
    assert found.context_agreement.value == pytest.approx(expected, abs=1e-9)


def test_the_norm_goes_with_the_optimizer(features: FeaturePrediction) -> None:
    at = [features.at(0.5 * features.largest_gap, norm=norm, tolerance=1e-3) for norm in ("nuclear", "gamma2")]
    for optimizer, norm in (("adamw", "gamma2"), ("gd", "nuclear")):
        run = train(statistics(), "ufm", dim=16, optimizer=optimizer, steps=2)
        found = compare(features, run, at=at, **FEW)
        assert found.norm == norm
        assert any(f"goes with the optimizer {optimizer}" in sentence for sentence in found.reasons)


def test_a_second_run_says_what_is_reproducible_and_the_start_is_a_floor(features: FeaturePrediction) -> None:
    one, two = (
        train(statistics(), "ufm", dim=24, optimizer="adamw", steps=800, learning_rate=0.01, seed=seed)
        for seed in (0, 1)
    )
    found = compare(features, [one, two], **FEW)
    mine, theirs = (run.H for run in (one, two))
    groups = support_groups(features)
    apart = groups[:, None] != groups[None, :]
    expected = pearsonr(cosines(mine)[apart], cosines(theirs)[apart])[0]
    assert found.context_agreement.reproducible == pytest.approx(expected, abs=1e-9)
    for number in (found.context_agreement, found.support_agreement, found.token_agreement):
        assert number.explained == pytest.approx(number.mean**2 / number.reproducible)
    assert f"{found.support_agreement.explained_text()} of the reproducible geometry of contexts" in found.reasons[0]
    assert one.start is not None
    start = pearsonr(cosines(one.start.H)[apart], cosines(features.H)[apart])[0]
    assert found["limit_context_agreement"].untrained == pytest.approx(start, abs=1e-9)
    assert np.isfinite(found["collapse"].untrained)
    assert found.runs == 2
    assert found.verdict in ("agrees", "another explanation fits better", "agrees in part")
    same = compare(features, [one, one], **FEW)
    assert any("same seed" in sentence for sentence in same.limitations)
    assert same.context_agreement.reproducible == pytest.approx(1.0)


def test_the_start_of_a_run_does_not_agree(features: FeaturePrediction) -> None:
    run = train(statistics(), "ufm", dim=16, steps=1, learning_rate=1e-12)
    assert compare(features, run, **FEW).verdict == "does not agree"
    with pytest.raises(ProblemError, match="empty list"):
        compare(features, [])


def test_a_loss_above_that_of_token_frequencies_is_known(features: FeaturePrediction) -> None:
    stats = statistics()
    share = np.asarray(stats.P @ stats.pi)
    labels = SoftLabels.from_statistics(stats)
    L = np.log(np.maximum(share, 1e-300))[:, None] * np.ones(stats.m)
    assert frequency_gap(features) == pytest.approx(labels.loss_gap(L), rel=1e-9)
    assert frequency_gap(features) < features.largest_gap


def test_full_supports_are_compared_at_the_loss_alone() -> None:
    rng = np.random.default_rng(0)
    stats = NextTokenStatistics.from_counts(rng.integers(1, 40, (12, 15)))
    features = predict(stats)
    assert features.rank == 0
    at = features.at(0.05)
    found = compare(features, (at.W, at.H), **FEW)
    assert found.context_agreement.value > 0.999
    assert found.in_limit == {}
    assert found.verdict == "agrees"
    nothing = compare(features, (at.W, at.H), permutations=40, at_loss=False)
    assert nothing.verdict == "cannot be determined"


def test_one_hot_supports_and_few_groups_cannot_be_told() -> None:
    stats = NextTokenStatistics.from_counts(np.eye(12, dtype=int)[:, np.repeat(np.arange(12), 2)])
    found = compare(predict(stats), noise(predict(stats)), **FEW)
    assert found.verdict == "cannot be determined"
    assert "one next token" in found.reasons[0]
    few = predict(NextTokenStatistics.from_counts(grouped_counts(6, 3, 4, 2, seed=1)))
    assert compare(few, noise(few), **FEW).verdict == "cannot be determined"


def test_logits_that_overflow_are_refused(features: FeaturePrediction) -> None:
    W, H = noise(features)
    with pytest.raises(ProblemError, match="overflow"):
        compare(features, (1e200 * W, 1e200 * H), **FEW)


def test_no_number_changes_under_rotation_or_softmax_shift(features: FeaturePrediction) -> None:
    rng = np.random.default_rng(2)
    W, H = noise(features, d=7)
    R = np.linalg.qr(rng.standard_normal((7, 7)))[0]
    one = values(compare(features, (W, H), **NONE))
    other = values(compare(features, (W @ R + rng.standard_normal(7), R.T @ H), **NONE))
    assert other == pytest.approx(one, rel=1e-8)


def test_relabelled_contexts_and_tokens_give_the_same_numbers() -> None:
    counts = grouped_counts(12, 8, 2, 3, seed=1)
    rng = np.random.default_rng(3)
    W, H = rng.standard_normal((12, 5)), rng.standard_normal((5, 16))
    z, j = rng.permutation(12), rng.permutation(16)
    first, second = (
        predict(NextTokenStatistics.from_counts(c), tolerance=1e-9, spread_solves=0) for c in (counts, counts[z][:, j])
    )
    one = values(compare(first, (W, H), **NONE))
    other = values(compare(second, (W[z], H[:, j]), **NONE))
    assert other == pytest.approx(one, rel=1e-3)  # the gap 1e-9 leaves about its square root in L_mm


def test_the_same_seed_gives_the_same_comparison(features: FeaturePrediction) -> None:
    run = noise(features)
    first, second = compare(features, run, **FEW), compare(features, run, **FEW)
    assert str(first.to_dict()) == str(second.to_dict()), "NaN differs from itself; its text does not"
    assert str(compare(features, run, **FEW, seed=1).agreements) != str(first.agreements)


def test_a_trained_model_agrees_more_than_chance_also_below_the_vocabulary(features: FeaturePrediction) -> None:
    run = train(statistics(), "ufm", dim=14, optimizer="adam", steps=1500, learning_rate=0.01)
    found = compare(features, run, **FEW)
    assert found.context_similarity.value > 0.8
    for number in (found.context_agreement, found.token_agreement, found.context_similarity, found["collapse"]):
        assert number.above_floor
    assert "nats above its floor" in found.summary()
    assert found.verdict in ("agrees", "agrees in part", "another explanation fits better")
    small = compare(features, train(statistics(), "ufm", dim=2, optimizer="adam", steps=200, learning_rate=0.01), **FEW)
    assert f"d=2 < rank L_mm = {features.rank}" in small.summary()
    assert any("d=2 dimensions" in sentence for sentence in small.reasons)


def test_a_bias_changes_only_the_numbers_about_logits(features: FeaturePrediction) -> None:
    W, H = noise(features)
    bias = np.random.default_rng(4).standard_normal(W.shape[0]) * 5
    plain = values(compare(features, SimpleNamespace(W=W, H=H), **NONE))
    biased = values(compare(features, SimpleNamespace(W=W, H=H, bias=bias), **NONE))
    assert {name for name in plain if not np.isclose(plain[name], biased[name])} == {
        "limit_logit_cosine",
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
    assert found["margin_max"].above_floor
    assert found.verdict == "agrees"
    assert np.isnan(found["margin_max"].low)
    with pytest.raises(ProblemError, match="cosine_without_finite"):
        _ = found.context_similarity


def test_linear_values_are_those_of_the_definitions(linear: LinearPrediction) -> None:
    W = np.random.default_rng(5).standard_normal(linear.W_mm.shape)
    found = compare(linear, (W, 2.0 * linear.data.H), **NONE)
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
    text = compare(prediction, run, **NONE).summary()
    assert "0.125 nats above its floor" in text
    assert "not complete: interrupted" in text
    assert "not separable" in text


def test_permuted_numbers_are_those_of_the_permuted_decoder(linear: LinearPrediction) -> None:
    rng = np.random.default_rng(7)
    run = Factors(rng.standard_normal(linear.W_mm.shape), linear.data.H)
    orders = permutation_orders(rng, 10, 3)
    found = DecoderNumbers(run, linear).permuted(orders)
    for k, order in enumerate(orders):
        expected = values(compare(linear, (run.W[order], run.H), **NONE))
        # W_star is subtracted before tokens are permuted: what is permuted is the part that diverges.
        D = (run.W - linear.W_star)[order]
        expected["cosine_without_finite"] = cosine(D, linear.W_mm)
        assert {name: found["", name][k] for name in expected} == pytest.approx(expected, rel=1e-9)


def test_numbers_are_nan_where_nothing_is_predicted() -> None:
    full = NextTokenStatistics.from_probabilities(np.array([[0.3, 0.6, 0.5], [0.7, 0.4, 0.5]]))
    H = np.random.default_rng(6).standard_normal((3, 3))
    found = compare(predict(full), (np.eye(2, 3), H), **FEW)
    assert np.isnan([found.context_agreement.value, found["collapse"].value]).all()
    assert found.verdict == "cannot be determined"
    assert "no geometry" in found.summary()
    decoder = compare(predict_linear(full, H), (np.eye(2, 3), H), **FEW)
    assert np.isnan([decoder["cosine"].value, decoder["margin_frobenius"].value]).all()
    assert "W_mm is 0, so nothing diverges" in decoder.summary()


def test_contexts_with_full_support_are_left_out_with_a_limitation() -> None:
    counts = np.concatenate([grouped_counts(8, 6, 2, 3, seed=2), np.ones((8, 1), int)], axis=1)
    p = predict(NextTokenStatistics.from_counts(counts))
    W, H = noise(p)
    found = compare(p, (W, H), **FEW)
    groups = p.context_groups[:-1]
    apart = groups[:, None] != groups[None, :]
    expected = pearsonr(cosines(H[:, :-1])[apart], p.context_cosines[:-1, :-1][apart])[0]
    assert found["limit_context_agreement"].value == pytest.approx(expected, abs=1e-9)
    assert "1 of 13 contexts have full support" in found.summary()


def test_the_proxy_alone_can_be_compared() -> None:
    stats = random_statistics(0, V=12, m=20)
    p = predict_proxy(stats, components=11)
    found = compare(p, (p.W, p.H), **FEW)
    assert found["proxy_context_similarity"].value == pytest.approx(1.0, abs=1e-6)
    assert found.context_agreement is found["proxy_context_agreement"]
    with pytest.raises(ProblemError, match="two predictions"):
        compare(p, p, **FEW)
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
    for name in ("support_agreement", "context_agreement", "token_agreement"):
        assert {"value", "low", "high", "floor", "reproducible", "attainable", "explained"} <= set(data[name])
        assert data["in_limit"][name].keys() == data[name].keys()
    assert {"verdict", "reasons", "efficiency", "split", "loss_gap", "numbers", "explanations"} <= set(data)
    frame = found.to_frame()
    assert list(frame.index) == list(found)
    assert frame.loc["limit_token_similarity", "value"] == found.token_similarity.value
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
    # NaN differs from itself; its text does not.
    assert str(found.agreements) == str(compare(features, run, **FEW).agreements)
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
    with pytest.raises(ProblemError, match="compare_texts"):
        compare(features, run)
    assert compare(features, (run.W, run.H), **FEW).context_similarity.has_floor, "arrays can be compared regardless"
    elsewhere = predict(other).at(0.1)
    with pytest.raises(ProblemError, match="prediction at a loss come from different statistics"):
        compare(features, noise(features), at=elsewhere)


def test_a_loss_gap_can_be_given_with_arrays(features: FeaturePrediction) -> None:
    found = compare(features, noise(features), loss_gap=0.25, **FEW)
    assert "The run's loss is 0.25 nats above its floor" in found.summary()


def test_settings_are_checked_and_shown_in_the_signature(features: FeaturePrediction) -> None:
    with pytest.raises(InputError, match="Did you mean 'permutations'"):
        compare(features, noise(features), permutation=40)  # type: ignore[call-arg]
    with pytest.raises(ProblemError, match="permutations=5"):
        CompareSettings(permutations=5)
    assert inspect.signature(compare).parameters["permutations"].default == CompareSettings().permutations == 200


def test_four_hundred_contexts_take_little_work() -> None:
    p = predict(NextTokenStatistics.from_counts(grouped_counts(104, 40, 10, 4, seed=3)), spread_solves=0)
    # Some 500,000; one call per pair of contexts and permutation would be 16 million.
    assert calls_in(lambda: compare(p, noise(p, d=128))) < 2_000_000


def test_a_prediction_at_a_loss_can_be_compared_alone(features: FeaturePrediction) -> None:
    run = train(statistics(), "ufm", dim=20, learning_rate=1e-2, steps=300)
    at = features.at(run.loss_gap)
    found = compare(at, run, **FEW)
    assert found["nuclear_context_similarity"].above_floor
    assert found.norm == "nuclear"
    assert all(row.ours for row in found.rows)
    assert any("agree within 2%" in sentence for sentence in found.limitations)
    itself = compare(at, (at.W, at.H), permutations=0)
    assert itself.token_agreement.value == pytest.approx(1.0)
    assert itself.token_similarity.value == pytest.approx(1.0)
    assert any("is not known" in sentence for sentence in itself.limitations)
    other = compare(features.at(run.loss_gap * 3), run, permutations=0)
    assert any("like with like" in sentence for sentence in other.limitations)


def test_large_statistics_are_compared_at_the_loss_only_when_asked(
    features: FeaturePrediction, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = features.at(0.05)
    monkeypatch.setattr("tokengeom.comparison.target.AT_LOSS_ENTRIES", dict.fromkeys(("nuclear", "gamma2"), 1))
    left_out = compare(features, (at.W, at.H), **FEW)
    assert left_out.norm is None
    assert any("would take minutes" in sentence for sentence in left_out.limitations)
    assert compare(features, (at.W, at.H), at_loss=True, **FEW).norm == "nuclear"


def test_tokens_that_never_follow_cost_nothing_at_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    counts = np.zeros((3000, 15), dtype=np.int64)
    counts[:12] = rng.integers(0, 4, (12, 15)) + np.eye(12, 15, dtype=np.int64)
    counts[0] += 1
    wide = predict(NextTokenStatistics.from_counts(counts))
    monkeypatch.setattr("tokengeom.comparison.target.AT_LOSS_ENTRIES", dict.fromkeys(("nuclear", "gamma2"), 13 * 15))
    at = wide.at(0.05)
    assert compare(wide, (at.W, at.H), permutations=0).norm is not None


def test_a_prediction_that_is_hardly_proven_is_not_compared_with(features: FeaturePrediction) -> None:
    at = features.at(0.05)
    rough = replace(at, certificate=replace(at.certificate, bound=0.5 * at.certificate.bound))
    found = compare(features, (at.W, at.H), at=[rough], permutations=0)
    assert found.norm is None
    assert any("is not used: its norm is proven only" in sentence for sentence in found.limitations)


def test_half_a_percent_of_proof_is_asked_for_unless_another_share_is_named(features: FeaturePrediction) -> None:
    at = features.at(0.05)
    norms = {}
    for gap in (0.004, 0.006):
        bound = at.certificate.value - gap * (at.certificate.value - at.loss_gap)
        known = replace(at, certificate=replace(at.certificate, bound=bound))
        assert known.relative_gap == pytest.approx(gap)
        norms[gap] = compare(features, (at.W, at.H), at=known, permutations=0).norm
    assert norms == {0.004: "nuclear", 0.006: None}
    widened = compare(features, (at.W, at.H), at=known, proven_within=0.05, permutations=0)
    assert widened.norm == "nuclear"
    assert widened.made_from is not None
    assert widened.made_from.settings["proven_within"] == 0.05
    alone = compare(known, (at.W, at.H), loss_gap=at.loss_gap, permutations=0)
    assert "Its norm is proven only to a relative gap of 6.0e-03." in alone.limitations
    with pytest.raises(ProblemError, match="a relative gap between 0 and 1"):
        compare(features, (at.W, at.H), proven_within=2.0)


def test_a_simulation_is_compared_as_a_prediction_is(tmp_path: Path) -> None:
    stats = small_stories()
    runs = [train(stats, "mlp", dim=8, steps=60, seed=s, learning_rate=1e-2, rate_schedule="constant") for s in (0, 1)]
    simulation = simulate(stats, like=runs[0], replicates=3)
    found = compare(simulation, runs, permutations=0)
    pairs = np.triu(stats.groups.label[:, None] != stats.groups.label[None, :], 1)
    own = np.corrcoef(simulation.context_cosines[pairs], cosines(runs[0].H)[pairs])[0, 1]
    assert found["simulated_context_agreement"].value == pytest.approx(own, abs=1e-9)
    assert np.isfinite(found["simulated_context_agreement"].seed_error), "it has seeds of its own"
    assert "simulated training" in found.reasons[0]
    parts, _ = gather(list(runs), simulation, [], None).by_frequency()
    for items, key in (("frequent contexts", "frequent"), ("rare contexts", "rare")):
        inside = np.isin(np.arange(stats.m), parts[items])  # type: ignore[index]
        some = pairs & np.outer(inside, inside)
        own_part = np.corrcoef(simulation.context_cosines[some], cosines(runs[0].H)[some])[0, 1]
        assert found[f"simulated_{key}_context_agreement"].value == pytest.approx(own_part, abs=1e-9)
    for name, result in (("stats", stats), ("simulation", simulation), ("run", runs[0]), ("other", runs[1])):
        result.save(tmp_path / name)
    again = compare(tmp_path / "simulation", [tmp_path / "run", tmp_path / "other"], permutations=0)
    assert again["simulated_context_agreement"].value == pytest.approx(own, abs=1e-9)
    again.save(tmp_path / "comparison")
    assert verify(tmp_path / "comparison").ok
    (tmp_path / "alone").mkdir()
    simulation.save(tmp_path / "alone" / "simulation")
    with pytest.raises(InputError, match="give stats"):
        compare(tmp_path / "alone" / "simulation", runs[0])
    given = compare(tmp_path / "alone" / "simulation", runs, stats=stats, permutations=0)
    assert given["simulated_token_agreement"].value == found["simulated_token_agreement"].value
