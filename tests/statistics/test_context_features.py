"""Features of contexts, compared with spans that are written out by hand, and invariances."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokengeom.core import resources
from tokengeom.core.errors import ResourceError, StatisticsError
from tokengeom.statistics import context_features
from tokengeom.statistics.context_features import BYTES_PER_ENTRY, SORTED, ContextFeatures, parse_ties
from tokengeom.statistics.mlp_kernel import kernel_of_overlaps
from tokengeom.statistics.windows import ABSENT

ALL = "positions+pairs+suffixes+self"


def spans_of(context: tuple[int, ...], ties: str) -> set[tuple[int, tuple[int, ...]]]:
    """Features of a context without the package: place after the span, and its tokens."""
    L = len(context)
    spans = []
    if "positions" in ties:
        spans += [(i, i + 1) for i in range(L)]
    if "pairs" in ties:
        spans += [(i, i + 2) for i in range(L - 1)]
    if "suffixes" in ties:
        spans += [(i, L) for i in range(1, L)]
    if "self" in ties:
        spans += [(0, L)]
    return {(L - j, context[i:j]) for i, j in spans}


@given(
    st.lists(st.tuples(*[st.integers(-1, 3)] * 4), min_size=1, max_size=12),
    st.lists(st.tuples(*[st.integers(-1, 5)] * 4), min_size=1, max_size=6),
    st.sampled_from([ALL, "positions", "pairs+self", "suffixes", "self", "positions+suffixes+self"]),
)
def test_features_are_the_spans_that_contexts_have(
    contexts: list[tuple[int, ...]], others: list[tuple[int, ...]], ties: str
) -> None:
    features = ContextFeatures.of_contexts(np.array(contexts), ties)
    written = [(after[-1], tuple(ids)) for ids, after in map(features.tokens, range(features.F))]
    assert len(set(written)) == len(written)
    assert set(written) == set().union(*(spans_of(context, ties) for context in contexts))
    for given_contexts, matrix in ((contexts, features.matrix), (others, features.of(np.array(others)))):
        for j, context in enumerate(given_contexts):
            there = {written[f] for f in np.flatnonzero(matrix[:, [j]].toarray().reshape(-1))}
            assert there == spans_of(context, ties) & set(written)


def test_absent_tokens_have_no_features_but_a_shorter_context_is_itself() -> None:
    features = ContextFeatures.of_contexts(np.array([[-2, 1, 2], [0, 1, 2]]), ALL)
    names = [[features.name(f) for f in features.matrix[:, [j]].indices] for j in (0, 1)]
    assert sorted(names[0]) == sorted(
        ["\u2026 2", "\u2026 1, 1 before the end", "\u2026 1 2", "the context \u201c1 2\u201d itself"]
    )
    assert len(names[1]) == 3 + 2 + 1


def test_weights_are_those_given_and_a_span_of_two_kinds_has_the_larger() -> None:
    features = ContextFeatures.of_contexts(np.array([[0, 1, 2]]), "3*positions+0.5*suffixes+2*self")
    spans = [features.tokens(f) for f in range(features.F)]
    weights = {(after[-1], len(ids)): features.matrix[f, 0] for f, (ids, after) in enumerate(spans)}
    assert weights == {(0, 1): 3.0, (1, 1): 3.0, (2, 1): 3.0, (0, 2): 0.5, (0, 3): 2.0}
    assert features.has_self
    assert not ContextFeatures.of_contexts(np.array([[0, 1]]), "positions").has_self


def test_many_contexts_are_numbered_exactly() -> None:
    rng = np.random.default_rng(0)
    contexts = np.unique(rng.integers(0, 50_000, (200_000, 6)), axis=0)
    features = ContextFeatures.of_contexts(contexts, ALL)
    spans = [(i, i + 1) for i in range(6)] + [(i, i + 2) for i in range(5)] + [(i, 6) for i in range(4)]
    assert sum(len(np.unique(contexts[:, i:j], axis=0)) for i, j in spans) == features.F


@pytest.mark.parametrize(
    "ties", ["position", "", "positions++self", "0*self", "-1*self", "nan*self", "positions*2", "self:2", "kernel:0"]
)
def test_ties_that_mean_nothing_are_refused(ties: str) -> None:
    with pytest.raises(StatisticsError, match="ties"):
        parse_ties(ties, 3)


def test_a_matrix_of_ones_own_has_rows_but_says_nothing_of_other_contexts() -> None:
    features = ContextFeatures.from_matrix([[1.0, 0.0], [0.5, -2.0]], ("a", "b"))
    assert features.names == ["a", "b"]
    assert features.kind(0) == "own"
    with pytest.raises(StatisticsError, match="not known for other contexts"):
        features.of(np.array([[0, 1]]))
    for wrong in ([[np.nan]], [1.0, 2.0], np.zeros((0, 3))):
        with pytest.raises(StatisticsError):
            ContextFeatures.from_matrix(wrong)


def test_the_features_of_the_kernel_are_sets_of_places_whose_gram_matrix_it_is() -> None:
    rng = np.random.default_rng(0)
    contexts, others = (rng.integers(-1, 3, (k, 4)) for k in (30, 12))
    for ties, layers in (("kernel", 2), ("kernel:1", 1), ("2*kernel:3", 3)):
        features = ContextFeatures.of_contexts(contexts, ties)
        K = kernel_of_overlaps(4, layers) * (4.0 if ties[0] == "2" else 1.0)
        for some, Phi in ((contexts, features.matrix), (others, features.of(others))):
            shared = (some[:, None, :] == contexts[None, :, :]).sum(axis=2)
            assert (Phi.T @ features.matrix).toarray() == pytest.approx(K[shared], abs=1e-9)
        assert features.has_self


def test_features_of_the_kernel_have_names_with_gaps() -> None:
    features = ContextFeatures.of_contexts(np.array([[7, 8, 9], [-2, 8, 9]]), "kernel")
    names = {features.name(f): features.kind(f) for f in features.matrix[:, [0]].indices}
    assert names == {
        "any context": "places",
        "\u2026 9": "position",
        "\u2026 8, 1 before the end": "position",
        "\u2026 7, 2 before the end": "position",
        "\u2026 8 9": "pair",
        "\u2026 7 _ 9": "places",
        "\u2026 7 8, 1 before the end": "pair",
        "the context \u201c7 8 9\u201d itself": "self",
    }
    # An absent token is one of its own: a shorter context has the length of the others.
    assert (features.matrix.T @ features.matrix).diagonal() == pytest.approx([1.0, 1.0])
    with pytest.raises(StatisticsError, match="at most 8 tokens; got 9"):
        parse_ties("kernel", 9)


@pytest.mark.parametrize("ties", [ALL, "kernel", "positions"])
def test_columns_that_are_put_together_in_blocks_are_those_of_one_block(
    ties: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    contexts = rng.integers(0, 6, (500, 4))
    contexts[rng.random(500) < 0.2, 0] = ABSENT
    whole = ContextFeatures.of_contexts(contexts, ties)
    monkeypatch.setattr(context_features, "BLOCK", 7)
    blocks = ContextFeatures.of_contexts(contexts, ties)
    others = rng.integers(0, 9, (30, 4))
    for one, other in ((whole.matrix, blocks.matrix), (whole.of(others), blocks.of(others))):
        assert one.shape == other.shape
        assert (one != other).nnz == 0
    assert (blocks.of(contexts) != whole.matrix).nnz == 0


def test_the_memory_that_features_take_is_stated_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = np.random.default_rng(0).integers(0, 50, (20_000, 6))
    monkeypatch.setattr(context_features, "BLOCK", 1000)
    tracemalloc.start()
    features = ContextFeatures.of_contexts(contexts, ALL)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # One span is numbered at a time, into the matrix itself.
    assert peak < 1.2 * kept
    stated = BYTES_PER_ENTRY * features.m * (len(features.weights) + SORTED)
    assert 0.5 * stated < peak < 1.2 * stated
    monkeypatch.setattr(resources, "free_memory", lambda device=None: stated - 1)
    with pytest.raises(ResourceError, match=r"Features of 20,000 contexts, 15 each, must fit .* fewer kinds of ties"):
        ContextFeatures.of_contexts(contexts, ALL)
