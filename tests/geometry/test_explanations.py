"""Explanations: each follows its formula, and places a context that it knows where it is."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from geometry_cases import explained_counts
from tokengeom.errors import InputError, ProblemError
from tokengeom.geometry import explanations
from tokengeom.geometry.explanations.base import AbstractRival
from tokengeom.geometry.explanations.finite_part import FinitePart
from tokengeom.geometry.explanations.maximum_margin import MaximumMargin
from tokengeom.geometry.explanations.pmi import ShiftedPMI
from tokengeom.geometry.explanations.probabilities import CentredProbabilities
from tokengeom.geometry.explanations.proxy import Proxy
from tokengeom.geometry.explanations.simplex_frame import SimplexFrame
from tokengeom.geometry.rival_numbers import full_cosines
from tokengeom.geometry.rivals import RivalSettings, explanations_of, rivals
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.proxy import predict_proxy

V, M = 12, 24
ALL: tuple[AbstractRival, ...] = (
    SimplexFrame(), ShiftedPMI(), FinitePart(), CentredProbabilities(), Proxy(), MaximumMargin(),
)  # fmt: skip


@pytest.fixture(scope="module")
def counts() -> np.ndarray:
    return explained_counts()


@pytest.fixture(scope="module")
def stats(counts: np.ndarray) -> NextTokenStatistics:
    return NextTokenStatistics.from_counts(counts)


def test_every_file_is_found_simplest_explanation_first() -> None:
    members, left_out = explanations_of(RivalSettings(), None)
    assert [type(one) for one in members] == [type(one) for one in ALL]
    assert [one.name for one in members] == ["ETF", "PMI", "L_in", "P", "S~", "L_mm"]
    assert left_out == ()


def test_explanations_are_chosen_by_file_name(stats: NextTokenStatistics) -> None:
    chosen = RivalSettings(explanations=("proxy", "pmi", "proxy"), k=3.0)
    members, _ = explanations_of(chosen, None)
    assert members[0] == ShiftedPMI(3.0)
    assert [one.name for one in members] == ["PMI", "S~"]
    with pytest.raises(InputError, match="Did you mean 'proxy'"):
        explanations_of(RivalSettings(explanations=("proxi",)), None)
    with pytest.raises(ProblemError, match="At least one explanation"):
        explanations_of(RivalSettings(explanations=()), None)
    only = RivalSettings(explanations=("maximum_margin",))
    with pytest.raises(ProblemError, match="leaves none with this prediction"):
        explanations_of(only, predict_proxy(stats, components=5))


NEW_FILE = """
import numpy as np
from tokengeom.geometry.explanations.base import AbstractLogitRival


class Popularity(AbstractLogitRival):
    name = "p(z)"
    meaning = "how frequent each token is"
    order = 2.5

    def values(self, P, background):
        return np.asarray(background[P.indices])
"""


def test_a_new_file_is_a_new_explanation(
    stats: NextTokenStatistics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "popularity.py").write_text(NEW_FILE)
    monkeypatch.setattr(explanations, "__path__", [*explanations.__path__, str(tmp_path)])
    rng = np.random.default_rng(0)
    run = rng.normal(size=(V, 5)), rng.normal(size=(5, M))
    try:
        assert [one.name for one in explanations_of(RivalSettings(), None)[0]][2] == "p(z)"
        table = rivals(stats, run, resamples=0, permutations=0)
        assert {row.items for row in table.rows if row.rival == "p(z)"} == {"contexts", "tokens", "held-out contexts"}
        alone = rivals(stats, run, explanations=("popularity",), resamples=0, permutations=0, held_out=0)
        assert [row.rival for row in alone.rows] == ["p(z)", "p(z)"]
        assert "how frequent each token is" in alone.summary()
    finally:
        sys.modules.pop("tokengeom.geometry.explanations.popularity", None)


def test_pmi_sums_to_the_mutual_information(stats: NextTokenStatistics, counts: np.ndarray) -> None:
    k = 1e-6  # a shift so low that no pair is cut off
    pmi = ShiftedPMI(k).values(stats.P, stats.P @ stats.pi) + np.log(k)
    weight = np.repeat(stats.pi, stats.support_sizes) * stats.P.data
    assert weight @ pmi == pytest.approx(mutual_info_score(None, None, contingency=counts), rel=1e-10)


def test_a_larger_shift_leaves_fewer_pairs(stats: NextTokenStatistics) -> None:
    background = stats.P @ stats.pi
    plain, shifted = (ShiftedPMI(k).values(stats.P, background) for k in (1.0, 3.0))
    np.testing.assert_allclose(shifted, np.maximum(plain - np.log(3.0), 0.0), atol=1e-12)


def test_the_frame_is_equiangular_and_contexts_are_at_their_most_frequent_token() -> None:
    stats = NextTokenStatistics.from_counts(np.array([[5, 0, 2], [1, 4, 2], [0, 0, 1], [0, 1, 0]]))
    fit = SimplexFrame().fit(stats)
    tokens, contexts = fit.tokens(np.arange(4)), fit.contexts(np.arange(3))
    off = full_cosines(tokens)[~np.eye(4, dtype=bool)]
    np.testing.assert_allclose(off, -1.0 / 3.0)
    np.testing.assert_allclose(contexts[:, 0], tokens[:, 0])
    np.testing.assert_allclose(contexts[:, 1], tokens[:, 1])
    np.testing.assert_allclose(contexts[:, 2], (tokens[:, 0] + tokens[:, 1]) / 2)


@pytest.mark.parametrize("rival", ALL, ids=lambda rival: rival.name)
def test_a_context_of_the_fit_is_placed_where_it_is(stats: NextTokenStatistics, rival: AbstractRival) -> None:
    fit = rival.fit(stats)
    own, placed = fit.contexts(np.arange(M)), fit.place(stats.P)
    # L_mm is solved to a gap of 1e-6, and placing allows slack at a finite price.
    atol = 2e-3 if rival.name == "L_mm" else 1e-9
    np.testing.assert_allclose(placed, own, atol=atol * np.abs(own).max())


@pytest.mark.parametrize("rival", ALL[:-1], ids=lambda rival: rival.name)
def test_tokens_and_contexts_multiply_to_the_logits(stats: NextTokenStatistics, rival: AbstractRival) -> None:
    fit = rival.fit(stats)
    L = fit.tokens(np.arange(V)).T @ fit.contexts(np.arange(M))
    assert np.abs(L.sum(axis=0)).max() < 1e-12, "logits must be centred"
    if rival.name == "P":
        np.testing.assert_allclose(L, stats.P.toarray() - 1.0 / V, atol=1e-12)
    if rival.name == "S~":
        np.testing.assert_allclose(L, stats.S.toarray() - stats.support_sizes / V, atol=1e-12)
