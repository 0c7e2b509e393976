"""Kneser-Ney: probabilities of nltk and of the definition, for contexts of one or several lengths and for new ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

import tokengeom as tg
from geometry_cases import explained_contexts, explained_counts, kneser_ney
from tokengeom.comparison.explained import CrossFit, try_candidates
from tokengeom.comparison.explanations.base import AbstractFit, ContextStatistics, FitInputs
from tokengeom.comparison.explanations.kneser_ney import KneserNey
from tokengeom.comparison.similarity_numbers import full_cosines
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.windows import ABSENT

TEXT = "the cat sat on the mat and the dog sat on the rug and the cat saw the dog and a dog saw a cat on the mat"


def probabilities(stats: NextTokenStatistics, discount: float) -> Float:
    """Softmax of the logits: they are log-probabilities up to a constant per context."""
    return np.asarray(softmax(KneserNey(discount, 1.0).fit(stats).contexts(np.arange(stats.m)), axis=0))


@pytest.mark.parametrize("discount", [0.3, 0.75])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_probabilities_are_those_of_nltk(length: int, discount: float) -> None:
    from nltk.lm import KneserNeyInterpolated  # type: ignore[import-untyped]

    words = TEXT.split()
    vocabulary = sorted(set(words))
    ids = np.array([vocabulary.index(word) for word in words])
    windows = np.lib.stride_tricks.sliding_window_view(ids, length + 1)
    contexts, place = np.unique(windows[:, :-1], axis=0, return_inverse=True)
    counts = np.zeros((len(vocabulary), len(contexts)), dtype=np.int64)
    np.add.at(counts, (windows[:, -1], place.ravel()), 1)
    seen = np.flatnonzero(counts.any(axis=1))
    found = probabilities(NextTokenStatistics.from_counts(counts[seen], contexts), discount)
    model = KneserNeyInterpolated(length + 1, discount)
    named = [tuple(vocabulary[z] for z in window) for window in windows]
    model.fit([[window[start:] for start in range(length + 1)] for window in named], vocabulary)
    for j, context in enumerate(contexts):
        for z, token in enumerate(seen):
            expected = model.score(vocabulary[token], [vocabulary[one] for one in context])
            assert found[z, j] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "windows", [{"windows": "prefixes"}, {"windows": "prefixes", "pad": True}, {"pad": True}], ids=str
)
def test_contexts_of_several_lengths_and_starts_of_documents(windows: dict[str, object]) -> None:
    documents = TEXT.split(" and ")
    stats = tg.count(documents, context=3, **windows)  # type: ignore[arg-type]
    assert stats.contexts is not None
    assert stats.contexts.min() < 0
    assert FitInputs().on(stats).has_tokens
    seen = np.unique(stats.table.indices)
    counts = stats.counts.toarray()[seen]
    found = probabilities(NextTokenStatistics.from_counts(counts, stats.contexts), 0.5)
    np.testing.assert_allclose(found, kneser_ney(counts, stats.contexts, 0.5), rtol=1e-12)
    np.testing.assert_allclose(found.sum(axis=0), 1.0)


def test_new_contexts_have_their_own_counts_and_the_suffixes_of_the_fit() -> None:
    counts, contexts = explained_counts(), explained_contexts()
    contexts[23, 2] = 7  # a last token that no other context has
    held_out = np.array([0, 12, 5, 23])  # the first two have the same suffix, which no other context has
    kept = np.setdiff1d(np.arange(24), held_out)
    part, whole = (NextTokenStatistics.from_counts(counts[:, some], contexts[some]) for some in (kept, np.arange(24)))
    rule = KneserNey(0.3, 1.0).rule(part)
    found = rule(ContextStatistics.of(whole).select(held_out)).toarray()
    np.testing.assert_allclose(softmax(found, axis=0), kneser_ney(counts, contexts, 0.3, kept)[:, held_out], rtol=1e-12)


def test_names_of_tokens_and_order_of_contexts_do_not_matter() -> None:
    counts, contexts = explained_counts(), explained_contexts()
    rng = np.random.default_rng(0)
    z, j, name = rng.permutation(12), rng.permutation(24), rng.permutation(1000)
    expected = probabilities(NextTokenStatistics.from_counts(counts, contexts), 0.7)
    other = NextTokenStatistics.from_counts(counts[z][:, j], name[contexts[j]])
    np.testing.assert_allclose(probabilities(other, 0.7), expected[z][:, j], rtol=1e-12)


def test_a_token_that_never_occurs_has_a_finite_logit() -> None:
    counts = np.concatenate([explained_counts(), np.zeros((1, 24), dtype=np.int64)])
    found = probabilities(NextTokenStatistics.from_counts(counts, explained_contexts()), 0.5)
    assert (found > 0).all()
    np.testing.assert_allclose(found.sum(axis=0), 1.0)


def test_it_is_left_out_where_counts_or_tokens_are_not_known() -> None:
    counts, contexts = explained_counts(), explained_contexts()
    stats = NextTokenStatistics.from_counts(counts, contexts)
    H, groups = KneserNey(0.3, 0.5).fit(stats).contexts(np.arange(24)), np.asarray(stats.groups.label, dtype=np.int64)
    pairs, X = CrossFit.of(groups, by_unit=True), full_cosines(H)

    def score(fit: AbstractFit) -> list[float]:
        return [float(pairs.agreements(X, [full_cosines(fit.contexts(np.arange(24)))])[0])]

    trials = try_candidates(KneserNey, stats, FitInputs(), score)
    assert len(trials) == 2 * len(KneserNey.grid)
    assert max(trials, key=lambda trial: trial.scores[0]).candidate.chosen == "D=0.3, power 0.5"
    absent = np.concatenate([contexts, np.full((24, 1), ABSENT)], axis=1)
    for other in (
        NextTokenStatistics.from_counts(counts),
        NextTokenStatistics.from_counts(counts, contexts[:, :0]),
        NextTokenStatistics.from_counts(counts, absent),
        NextTokenStatistics.from_probabilities(stats.P, stats.pi, contexts),
    ):
        assert try_candidates(KneserNey, other, FitInputs(), score) == []


@pytest.mark.parametrize("discount", [0.0, 1.1, float("nan")])
def test_the_discount_must_leave_probabilities(discount: float) -> None:
    with pytest.raises(ProblemError, match="needs a discount D above 0 and at most 1; got D="):
        KneserNey(discount)


def test_the_tokens_of_contexts_are_those_of_the_statistics() -> None:
    stats = NextTokenStatistics.from_counts(explained_counts(), explained_contexts())
    some = ContextStatistics.of(stats).select(np.array([3, 1]))
    np.testing.assert_array_equal(some.tokens, explained_contexts()[[3, 1]])


def test_a_grid_of_discounts_stays_between_0_and_1() -> None:
    value = 0.9
    for _ in range(12):
        value = KneserNey.next_value(value, up=True)
    assert value == 0.999
    assert KneserNey.next_value(0.5, up=False) == pytest.approx(0.24)
