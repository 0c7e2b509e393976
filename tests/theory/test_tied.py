"""Tied features: compared with cvxpy, with the prediction without ties, and with closed forms for repeated features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from scipy.sparse import csc_array

import tokengeom as tg
from tokengeom.ask.item_search import Item
from tokengeom.ask.place import Placed
from tokengeom.core.errors import InputError, ProblemError, ResourceError, StatisticsError
from tokengeom.core.numerics import Float, x_log_x
from tokengeom.problems.backend import Backend
from tokengeom.problems.regularised_logits import Merging
from tokengeom.problems.tied_logits import DistinctFeatures, TiedLogits
from tokengeom.solvers.proximal_gradient import ProximalGradient
from tokengeom.theory.at_loss import LossSettings
from tokengeom.theory.pulls import Pulls
from tokengeom.theory.tied_path import TiedPath

TEXT = [
    "the cat sat on the mat . the dog sat on the log . the cat ran to the dog . a cat ran to a mat .",
    "the old cat sat on a log . a dog ran on the mat . the dog ran to the old log . a cat sat on the mat .",
]


@pytest.fixture(scope="module")
def stats() -> tg.NextTokenStatistics:
    return tg.count(TEXT, context=2, tokenizer="word")


@pytest.fixture(scope="module")
def tied(stats: tg.NextTokenStatistics) -> tg.TiedPrediction:
    return tg.predict(stats, loss_gap=0.3, ties="positions+self", tolerance=1e-4)


def random_problem(seed: int, negative: bool) -> tuple[Float, Float, Float]:
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(5), 7).T * (rng.random((5, 7)) < 0.6)
    P[0] += P.sum(axis=0) == 0
    Phi = (rng.random((6, 7)) < 0.5) * (rng.standard_normal((6, 7)) if negative else 1.0)
    return np.asarray(P / P.sum(axis=0)), rng.dirichlet(np.ones(7)), np.asarray(Phi, np.float64)


@pytest.mark.parametrize(("seed", "negative", "lam"), [(0, False, 0.05), (1, True, 0.01), (2, True, 0.003)])
def test_the_optimum_of_cvxpy_lies_between_value_and_bound(seed: int, negative: bool, lam: float) -> None:
    P, pi, Phi = random_problem(seed, negative)
    merging, sparse = Merging.of_tokens(csc_array(P)), csc_array(Phi)
    problem = TiedLogits.of(csc_array(P), pi, sparse, merging, Backend.on()).at(lam)
    solution, _ = ProximalGradient(1e-7, 20_000)(problem)
    B = cp.Variable((5, 6))
    L = B @ Phi
    loss = pi @ cp.log_sum_exp(L, axis=0) - cp.sum(cp.multiply(P * pi, L))
    best = cp.Problem(cp.Minimize(loss + lam * cp.normNuc(B))).solve(solver=cp.CLARABEL)
    entropy = -float(pi @ np.where(P > 0, P * np.log(np.where(P > 0, P, 1.0)), 0.0).sum(axis=0))
    proof = solution.certificate
    assert proof.bound - 1e-7 <= best - entropy <= proof.value + 1e-7
    assert proof.relative_gap < 1e-6


def test_gradient_and_curvature_are_those_of_finite_differences() -> None:
    from tokengeom.solvers.proximal_gradient import ContextRows

    P, pi, Phi = random_problem(3, True)
    problem = TiedLogits.of(csc_array(P), pi, csc_array(Phi), Merging.of_tokens(csc_array(P)), Backend.on())
    rows, rng = ContextRows(problem), np.random.default_rng(0)
    X, D = rng.standard_normal((6, rows.a.size)), rng.standard_normal((6, rows.a.size))
    loss = [problem.loss_gap(X + h * D) for h in (-1e-4, 0.0, 1e-4)]
    q = rows.softmax(rows.logits(X))
    assert float((rows.gradient(q) * D).sum()) == pytest.approx((loss[2] - loss[0]) / 2e-4, rel=1e-5)
    second = (loss[2] - 2 * loss[1] + loss[0]) / 1e-8
    assert rows.curvature(q, rows.logits(D)) == pytest.approx(second, rel=1e-3)


def test_with_a_feature_per_context_it_is_the_prediction_without_ties(stats: tg.NextTokenStatistics) -> None:
    tied = tg.predict(stats, loss_gap=0.3, ties="self", tolerance=1e-4)
    plain = tg.predict(stats, loss_gap=tied.loss_gap, tolerance=1e-5)
    # Their loss gaps differ by up to 1%, and the norm falls by 1 / lam per nat.
    moved = (tied.loss_gap - plain.loss_gap) / plain.lam
    assert tied.norm_value == pytest.approx(plain.norm_value - moved, rel=1e-3)
    assert np.corrcoef(tied.context_cosines.ravel(), plain.context_cosines.ravel())[0, 1] > 0.999


def test_in_the_limit_with_a_feature_per_context_it_is_the_limit_without_ties(stats: tg.NextTokenStatistics) -> None:
    few = stats.limited(top_contexts=8)
    tied, plain = tg.predict(few, ties="self"), tg.predict(few)
    assert tied.in_limit
    assert tied.norm_value == pytest.approx(plain.nuclear_norm, rel=5e-3)
    assert tied.lower_bound <= plain.nuclear_norm * (1 + 1e-6)


def test_features_that_cannot_separate_are_refused_with_a_proof() -> None:
    # The next token is the exclusive or of the two tokens of the context.
    contexts = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    stats = tg.NextTokenStatistics.from_counts(np.array([[1, 0, 0, 1], [0, 1, 1, 0]]), contexts)
    with pytest.raises(ProblemError, match="cannot separate"):
        tg.predict(stats, ties="positions")
    assert tg.predict(stats, ties="positions+self").in_limit


def test_repeated_features_are_one_of_the_length_of_all(stats: tg.NextTokenStatistics) -> None:
    assert stats.contexts is not None
    Phi = tg.ContextFeatures.of_contexts(stats.contexts, "positions+self").matrix.toarray()
    three = tg.ContextFeatures.from_matrix(np.vstack([3.0 * Phi, -4.0 * Phi]))
    one = tg.ContextFeatures.from_matrix(5.0 * Phi)
    both = [tg.predict(stats, loss_gap=0.3, ties=ties, tolerance=1e-4) for ties in (three, one)]
    assert both[0].norm_value == pytest.approx(both[1].norm_value, rel=1e-6)
    assert np.allclose(both[0].H.T @ both[0].H, both[1].H.T @ both[1].H, atol=1e-8)


@pytest.mark.parametrize("largest_rows", [False, True])
def test_distinct_features_give_the_same_logits(largest_rows: bool) -> None:
    Phi = csc_array(np.array([[1.0, 2, 0], [2, 4, 0], [-1, -2, 0], [0, 0, 3], [0, 0, 0], [1, 0, 0]]))
    distinct = DistinctFeatures.of(Phi, largest_rows=largest_rows)
    A = np.random.default_rng(0).standard_normal((2, distinct.matrix.shape[0]))
    assert distinct.matrix.shape[0] == 4
    assert np.allclose(distinct.of_all(A) @ Phi, A @ distinct.matrix)
    size = np.abs if largest_rows else np.square
    shared = size(distinct.share[:3])
    assert np.allclose(shared, 1.0) if largest_rows else shared.sum() == pytest.approx(1.0)


def test_the_answer_does_not_depend_on_the_order_of_contexts_and_tokens(stats: tg.NextTokenStatistics) -> None:
    assert stats.contexts is not None
    rng = np.random.default_rng(0)
    tokens, contexts = rng.permutation(stats.V), rng.permutation(stats.m)
    moved = tg.NextTokenStatistics.from_counts(stats.counts.toarray()[tokens][:, contexts], stats.contexts[contexts])
    first, second = (tg.predict(s, loss_gap=0.3, ties="positions+self", tolerance=1e-4) for s in (stats, moved))
    assert np.allclose(first.context_cosines[contexts][:, contexts], second.context_cosines, atol=2e-3)
    assert np.allclose(first.token_cosines[tokens][:, tokens], second.token_cosines, atol=2e-3)


def test_optimality_makes_contexts_and_tokens_sums_of_each_other(tied: tg.TiedPrediction) -> None:
    pulls = tied._pulls()
    assert isinstance(pulls, Pulls)
    G, Phi = pulls.on_tokens, tied.features.matrix.toarray()
    assert np.linalg.norm(tied.H - tied.W.T @ G @ Phi.T @ Phi) < 0.05 * np.linalg.norm(tied.H)
    contexts = np.column_stack([pulls.on(Item("contexts", j, "")) for j in range(tied.features.m)])
    assert np.allclose(contexts, G @ Phi.T @ Phi)
    assert np.linalg.norm(tied.W - G @ tied.H.T) < 0.05 * np.linalg.norm(tied.W)
    report = tied.explain("the cat")
    for pulled in report.pulled:
        assert sum(pull.contribution for pull in pulled.pulls) + pulled.others + pulled.residual == pytest.approx(
            pulled.cosine
        )


def test_optimality_in_gamma_2_makes_contexts_and_tokens_sums_of_each_other(stats: tg.NextTokenStatistics) -> None:
    tied = tg.predict(stats, loss_gap=0.3, ties="positions+pairs+self", norm="gamma2", tolerance=1e-3)
    pulls = tied._pulls()
    assert isinstance(pulls, Pulls)
    contexts = [pulls.residual(Item("contexts", j, "")) for j in range(stats.m)]
    tokens = [pulls.residual(Item("tokens", z, "")) for z in range(stats.V)]
    assert max(contexts) < 0.02
    assert max(tokens) < 0.04
    assert pulls.weights is not None
    assert [len(weights) for weights in pulls.weights] == [stats.V, stats.m]
    report = tied.explain("the cat")
    assert report.pulled
    assert report.notes == ()
    assert "is shown for predictions at a loss" in tg.predict(stats, ties="self").explain("the cat").summary()


def test_the_nuclear_norm_is_that_of_b_in_both_norms(stats: tg.NextTokenStatistics) -> None:
    for norm in ("nuclear", "gamma2"):
        tied = tg.predict(stats, loss_gap=0.3, ties="positions+pairs+self", norm=norm)
        assert tied.nuclear_norm == pytest.approx(np.linalg.norm(tied.B, "nuc"), rel=1e-6)
        assert tied.to_dict()["nuclear_norm"] == tied.nuclear_norm


def test_a_counted_context_is_placed_where_it_lies(tied: tg.TiedPrediction, stats: tg.NextTokenStatistics) -> None:
    names = [stats.context_text(j) for j in range(stats.m)]
    placed = tied.place(names)
    assert isinstance(placed, Placed)
    assert np.allclose(placed.H, tied.H)
    assert set(placed.seen) == {"counted"}
    assert np.allclose(placed.probabilities.sum(axis=0), 1.0)
    assert sum(share for _, share in placed.shared_features(0)) == pytest.approx(1.0)
    assert placed.neighbours(0, 3)[0][0] != names[0]


def test_contexts_that_the_text_does_not_have_are_placed_by_their_features(tied: tg.TiedPrediction) -> None:
    placed = tied.place(["old dog", "zebra cat", "on", "zebra"])
    assert placed.seen == ("never",) * 4
    assert placed.next_tokens(0, 1)[0][0] in {"sat", "ran", "cat", "log", "."}
    assert [name for name, _ in placed.shared_features(1)] == ["\u2026 cat"]
    assert placed.shared_features(3) == []
    assert np.allclose(placed.probabilities[:, 3], 1 / tied.W.shape[0])
    assert "is not in the text" in placed.sentence(0)
    with pytest.raises(InputError, match="at least one token"):
        tied.place(" ")


def test_cut_contexts_are_told_from_counted_ones(stats: tg.NextTokenStatistics) -> None:
    few = stats.limited(top_contexts=6)
    placed = tg.predict(few, loss_gap=0.3, ties="positions+self").place("old log")
    assert placed.seen == ("cut or never",)
    assert f"kept 6 of its {stats.m}" in placed.sentence()


def test_it_is_saved_loaded_and_verified(
    tied: tg.TiedPrediction, stats: tg.NextTokenStatistics, tmp_path: Path
) -> None:
    stats.save(tmp_path / "stats")
    tied.save(tmp_path / "tied")
    loaded = tg.load(tmp_path / "tied")
    assert isinstance(loaded, tg.TiedPrediction)
    assert loaded.to_dict() == tied.to_dict()
    assert np.array_equal(tg.place(tmp_path / "tied", "old dog").H, tied.place("old dog").H)
    assert tg.explain(tmp_path / "tied", "the cat").features[0].towards == "the cat"
    checked = tg.verify(tmp_path / "tied")
    assert checked.ok
    assert len(checked.checked) >= 6
    gap, proof = loaded.proven_again()
    assert gap == pytest.approx(tied.loss_gap, rel=1e-9)
    assert proof.bound <= proof.value


def test_names_of_own_features_are_saved(stats: tg.NextTokenStatistics, tmp_path: Path) -> None:
    names = tuple(f"own {j}" for j in range(stats.m))
    for given in (names, None):
        features = tg.ContextFeatures.from_matrix(np.eye(stats.m), given)
        tg.predict(stats, loss_gap=0.5, ties=features).save(tmp_path / "own")
        loaded = tg.load(tmp_path / "own")
        assert isinstance(loaded, tg.TiedPrediction)
        assert loaded.features.given_names == given
        assert loaded.features.name(3) == ("feature 3" if given is None else "own 3")
    changed = tg.ContextFeatures(features.ties, features.matrix, {}, {}, given_names=names[:2])
    assert isinstance(loaded, tg.TiedPrediction)
    replace(loaded, features=changed).save(tmp_path / "forged")
    with pytest.raises(InputError, match="one name per feature"):
        tg.load(tmp_path / "forged")


def test_a_changed_vector_is_noticed(tied: tg.TiedPrediction, tmp_path: Path) -> None:
    replace(tied, A=tied.A * 1.01, stats=None).save(tmp_path / "forged")
    assert not tg.verify(tmp_path / "forged").ok


def test_what_cannot_be_tied_is_refused(stats: tg.NextTokenStatistics) -> None:
    plain = tg.NextTokenStatistics.from_counts(np.eye(3, dtype=int))
    with pytest.raises(InputError, match="have none"):
        tg.predict(plain, loss_gap=0.1, ties="self")
    with pytest.raises(InputError, match="leave one out"):
        tg.predict(stats, embeddings=np.eye(stats.m), ties="self")  # type: ignore[call-overload]
    with pytest.raises(InputError, match="features of these"):
        tg.predict(stats, loss_gap=0.1, ties=tg.ContextFeatures.from_matrix(np.eye(2)))
    with pytest.raises(StatisticsError, match="sum of"):
        tg.predict(stats, loss_gap=0.1, ties="words")
    with pytest.raises(InputError, match="predictions with ties"):
        tg.place(tg.predict(stats), "old dog")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="strictly between"):
        tg.predict(stats, loss_gap=50.0, ties="self")


def test_the_estimate_states_time_and_memory(stats: tg.NextTokenStatistics) -> None:
    from tokengeom.theory.predict import estimate_prediction

    estimate = estimate_prediction(stats, loss_gap=0.3, ties="positions+self")
    assert estimate.bytes > 0
    assert 0 < estimate.shortest <= estimate.longest


@pytest.mark.parametrize("norm", ["nuclear", "gamma2"])
def test_a_search_on_torch_is_that_on_numpy(stats: tg.NextTokenStatistics, norm: str) -> None:
    features = tg.ContextFeatures.of_contexts(np.asarray(stats.contexts), "positions+self")
    how = {"norm": norm, "tolerance": 5e-3, "max_iterations": 2000}
    first, second = (
        TiedPath(stats.P, stats.pi, features.matrix, LossSettings(**how), Backend.on(device)).at(0.3)  # type: ignore[arg-type]
        for device in (None, "cpu")
    )
    assert first.loss_gap == pytest.approx(second.loss_gap, rel=0.02)
    assert np.allclose(first.W @ first.A @ features.matrix, second.W @ second.A @ features.matrix, atol=0.1)


def test_torch_and_numpy_agree(stats: tg.NextTokenStatistics) -> None:
    features = tg.ContextFeatures.of_contexts(np.asarray(stats.contexts), "positions+self")
    merging = Merging.of_tokens(stats.P)
    values = []
    for device in (None, "cpu"):
        problem = TiedLogits.of(stats.P, stats.pi, features.matrix, merging, Backend.on(device)).at(0.01)
        solution, _ = ProximalGradient(1e-5, 2000)(problem)
        values.append((solution.certificate.value, solution.certificate.bound))
    assert np.allclose(values[0], values[1], rtol=1e-5)


def test_blocks_of_contexts_prove_the_same(stats: tg.NextTokenStatistics) -> None:
    features, merging = (
        tg.ContextFeatures.of_contexts(np.asarray(stats.contexts), "pairs+self"),
        Merging.of_tokens(stats.P),
    )
    whole, blocks = (
        TiedLogits.of(stats.P, stats.pi, features.matrix, merging, replace(Backend.on(), largest_block=size)).at(0.02)
        for size in (None, 40)
    )
    X = ProximalGradient(1e-3)(whole)[0].x
    proofs = [problem.certify(X, problem.change(X)) for problem in (whole, blocks)]
    assert len(blocks.loss.layout) > 1
    assert proofs[0].value == pytest.approx(proofs[1].value, rel=1e-9)
    assert proofs[0].bound == pytest.approx(proofs[1].bound, rel=1e-6)


def test_a_cosine_is_divided_among_the_features_that_both_contexts_have(
    tied: tg.TiedPrediction, stats: tg.NextTokenStatistics
) -> None:
    report = tied.explain("the cat", k=3)
    cosine, Phi = tied.context_cosines, tied.features.matrix.toarray()
    index = {stats.context_text(j): j for j in range(stats.m)}
    lengths = np.linalg.norm(tied.H, axis=0)
    for shared in report.features:
        j, k = index["the cat"], index[shared.towards]
        assert shared.cosine == pytest.approx(cosine[j, k])
        own = Phi[:, j] * Phi[:, k] * (tied.A**2).sum(axis=0) / (lengths[j] * lengths[k])
        assert sum(part for _, _, part in shared.rows) == pytest.approx(own.sum())
        assert shared.others == pytest.approx(shared.cosine - own.sum())
    assert report.features[0].towards == "the cat"
    assert "by features that both have" in report.summary()
    assert tied.place("the dog").why(index["the cat"]).rows[0][1] == "\u2026 the, 1 before the end"


@pytest.mark.parametrize("loss_gap", [1.0, 0.3])
def test_gamma_2_lies_between_the_bounds_of_the_semidefinite_program(
    stats: tg.NextTokenStatistics, loss_gap: float
) -> None:
    few = stats.limited(top_contexts=7)
    tied = tg.predict(few, loss_gap=loss_gap, ties="positions+self", norm="gamma2")
    Phi = tied.features.matrix.toarray()
    (V, _m), F = few.P.shape, Phi.shape[0]
    square, t = cp.Variable((V + F, V + F), PSD=True), cp.Variable()
    L = square[:V, V:] @ Phi
    P = few.P.toarray()
    loss = few.pi @ cp.log_sum_exp(L, axis=0) - cp.sum(cp.multiply(P * few.pi, L))
    best = cp.Problem(cp.Minimize(loss + tied.lam * t), [cp.diag(square) <= t]).solve(solver=cp.CLARABEL)
    assert tied.certificate.bound - 1e-6 <= best - few.entropy <= tied.certificate.value + 1e-6
    assert tied.relative_gap <= 0.005
    assert max(np.linalg.norm(tied.W, axis=1).max() ** 2, (tied.A**2).sum(axis=0).max()) <= tied.norm_value * (1 + 1e-6)


def test_gamma_2_is_verified_again(stats: tg.NextTokenStatistics, tmp_path: Path) -> None:
    tg.predict(stats, loss_gap=0.3, ties="positions+self", norm="gamma2").save(tmp_path / "tied")
    assert tg.verify(tmp_path / "tied").ok


def test_the_limit_in_gamma_2_lies_between_the_bounds_of_the_semidefinite_program(
    stats: tg.NextTokenStatistics, tmp_path: Path
) -> None:
    few = stats.limited(top_contexts=8)
    tied = tg.predict(few, ties="positions+self", norm="gamma2")
    Phi, S = tied.features.matrix.toarray(), few.S.toarray() > 0
    (V, m), F = S.shape, Phi.shape[0]
    square, t, level = cp.Variable((V + F, V + F), PSD=True), cp.Variable(), cp.Variable(m)
    L = square[:V, V:] @ Phi
    margins = [L[z, j] == level[j] if S[z, j] else L[z, j] <= level[j] - 1 for z in range(V) for j in range(m)]
    best = cp.Problem(cp.Minimize(t), [cp.diag(square) <= t, *margins]).solve(solver=cp.SCS, eps=1e-8)
    assert tied.lower_bound - 1e-5 <= best <= tied.norm_value + 1e-5
    assert tied.relative_gap <= 0.005
    assert tied.in_limit
    longest = max(np.linalg.norm(tied.W, axis=1).max() ** 2, (tied.A**2).sum(axis=0).max())
    assert longest <= tied.norm_value * (1 + 1e-6)
    tied.save(tmp_path / "tied")
    assert tg.load(tmp_path / "tied").summary() == tied.summary()
    assert tg.verify(tmp_path / "tied").failed == ()


def test_the_limit_in_gamma_2_without_ties_is_that_of_the_untied_prediction(stats: tg.NextTokenStatistics) -> None:
    untied, tied = tg.predict(stats).gamma2_limit(), tg.predict(stats, ties="self", norm="gamma2")
    assert tied.relative_gap <= 0.005
    for one, other in ((tied.certificate, untied.certificate), (untied.certificate, tied.certificate)):
        assert one.bound <= other.value * (1 + 1e-9)
    assert tied.norm_value == pytest.approx(untied.certificate.value, rel=0.02)


def test_the_limit_in_gamma_2_is_refused_where_it_is_too_large_or_does_not_exist(
    stats: tg.NextTokenStatistics, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ProblemError, match="cannot separate"):
        tg.predict(stats, ties="positions", norm="gamma2")
    monkeypatch.setattr("tokengeom.theory.tied_path.LARGEST_GAMMA2_MARGINS", 10)
    with pytest.raises(ProblemError, match="norm gamma2 is solved for up to 10 tokens x features"):
        tg.predict(stats, ties="self", norm="gamma2")


def test_work_that_does_not_fit_in_memory_is_refused(stats: tg.NextTokenStatistics) -> None:
    features = tg.ContextFeatures.of_contexts(np.asarray(stats.contexts), "self")
    with pytest.raises(ResourceError, match="contexts"):
        TiedPath(stats.P, stats.pi, features.matrix, LossSettings(memory_limit=1000))


def test_momentum_is_what_makes_low_losses_affordable(stats: tg.NextTokenStatistics) -> None:
    """Without it this point takes 7,260 iterations, with it 580."""
    features = tg.ContextFeatures.of_contexts(np.asarray(stats.contexts), "positions+self")
    problem = TiedLogits.of(stats.P, stats.pi, features.matrix, Merging.of_tokens(stats.P), Backend.on()).at(1e-3)
    solution, _ = ProximalGradient(1e-4, 20_000)(problem)
    assert solution.converged
    assert solution.iterations < 2_000


def test_a_token_that_nearly_always_follows_does_not_lead_steps_astray() -> None:
    """The softmax soon gives it everything, and there the loss has no curvature, whatever the length of a step."""
    V, m = 50, 100
    P, pi = np.zeros((V, m)), 1.0 / np.arange(1, m + 1)
    P[0] = 0.9
    P[1 + np.random.default_rng(0).integers(0, V - 1, m), np.arange(m)] += 0.1
    Phi = csc_array(np.vstack([np.ones((1, m)), np.eye(m)]))
    path = TiedPath(csc_array(P), pi / pi.sum(), Phi, LossSettings(tolerance=5e-3, max_iterations=300))
    found = path.at(0.3 * path.largest_gap)
    assert found.status.startswith("norm proven within 5e-03")
    assert int(found.status.split(", ")[1].split()[0]) <= 200


def test_a_loss_gap_that_features_cannot_reach_is_refused_with_the_proof(stats: tg.NextTokenStatistics) -> None:
    with pytest.raises(ProblemError, match="share all of them have equal logits") as refused:
        tg.predict(stats, loss_gap=0.1, ties="suffixes")
    _, group = np.unique(np.asarray(stats.contexts)[:, -1], return_inverse=True)
    joint = stats.P.toarray() * stats.pi
    pooled = np.stack([joint[:, group == g].sum(axis=1) for g in range(group.max() + 1)], axis=1)
    floor = x_log_x(pooled.sum(axis=0)).sum() - x_log_x(pooled).sum() - stats.entropy
    assert f"at least {floor:.4g}" in str(refused.value)
    assert tg.predict(stats, loss_gap=1.05 * floor, ties="suffixes").loss_gap == pytest.approx(1.05 * floor, rel=0.011)
    nothing = tg.ContextFeatures.from_matrix(np.zeros((1, stats.m)))
    with pytest.raises(ProblemError, match="share all of them have equal logits"):
        tg.predict(stats, loss_gap=0.5, ties=nothing)


def test_out_of_reach_is_what_lies_below_the_floor_of_the_linear_model(stats: tg.NextTokenStatistics) -> None:
    given = np.random.default_rng(0).standard_normal((4, stats.m))
    floor = tg.predict(stats, embeddings=given).loss_floor - stats.entropy
    assert floor > 0.1
    ties = tg.ContextFeatures.from_matrix(given)
    with pytest.raises(ProblemError, match="proven to need a nuclear norm above"):
        tg.predict(stats, loss_gap=0.8 * floor, ties=ties)
    assert tg.predict(stats, loss_gap=1.1 * floor, ties=ties).loss_gap == pytest.approx(1.1 * floor, rel=0.011)


def test_in_the_limit_features_of_the_users_own_are_the_embeddings_of_the_linear_model(
    stats: tg.NextTokenStatistics,
) -> None:
    """With Phi = H both separate the same supports: B is W_mm where H has one row, as all norms are then the same."""
    P = np.array([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 1.0, 0], [0, 0, 1.0, 0]]).T
    few = tg.NextTokenStatistics.from_probabilities(P, np.full(4, 0.25))
    H = np.array([[1.0, 0.5, -2.0, -0.25]])
    tied, linear = (
        tg.predict(few, **given) for given in ({"ties": tg.ContextFeatures.from_matrix(H)}, {"embeddings": H})
    )
    assert np.allclose(tied.B, linear.W_mm, atol=1e-6)
    assert tied.norm_value == pytest.approx(np.linalg.norm(linear.W_mm))
    H = np.random.default_rng(1).standard_normal((2 * stats.m, stats.m))
    tied, linear = tg.predict(stats, ties=tg.ContextFeatures.from_matrix(H)), tg.predict(stats, embeddings=H)
    assert tied.lower_bound <= np.linalg.norm(linear.W_mm, "nuc")
    assert np.linalg.norm(linear.W_mm) <= np.linalg.norm(tied.B) * (1 + 1e-6)
