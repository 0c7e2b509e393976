"""The data of the explorer, compared with brute force on the same embeddings."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from scipy.stats import special_ortho_group

from page_cases import CASES, RUN, story_contents
from tokengeom.core.numerics import cosines
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections import explore, explorer_numbers
from tokengeom.page.sections.base import Page
from tokengeom.page.sections.explore import Explorer
from tokengeom.page.sections.explorer_numbers import leading_axes
from tokengeom.page.sections.figures import packed
from tokengeom.page.stages import PATH_SHARES
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predicted_path import PredictedPath


@cache
def contents() -> ReportContents:
    """The stories with a path."""
    made = story_contents()
    assert isinstance(made.prediction, FeaturePrediction)
    gaps = [share * made.prediction.largest_gap for share in PATH_SHARES]
    return replace(made, path=PredictedPath.of(made.prediction.path(gaps, tolerance=1e-3)).points)


def data_of(given: ReportContents) -> dict[str, Any]:
    """The data as the browser reads it."""
    found = Explorer(given, Page(given).order).data()
    assert found is not None
    read: dict[str, Any] = json.loads(str(packed(found)))
    return read


@cache
def data() -> dict[str, Any]:
    return data_of(contents())


def numbers(one: dict[str, Any]) -> Any:
    """An array as the page's script unpacks it."""
    found = np.frombuffer(b64decode(one["packed"]), dtype=np.dtype(one["type"]).newbyteorder("<"))
    return found.reshape(one["shape"]) * one.get("step", 1)


def source(found: dict[str, Any], key: str) -> dict[str, Any]:
    return next(one for one in found["sources"] if one["key"] == key)


def expected_cosines(W: Any, H: Any, found: ReportContents) -> dict[str, Any]:
    """Cosines of tokens and contexts in the explorer's order, computed in full."""
    tokens = np.argsort(-np.asarray(found.stats.P @ found.stats.pi), kind="stable")
    contexts = found.stats.most_frequent(found.stats.m)
    return {
        "tokens": cosines((W - W.mean(axis=0)).T)[np.ix_(tokens, tokens)],
        "contexts": cosines(H)[np.ix_(contexts, contexts)],
    }


@pytest.mark.parametrize("kind", explore.KINDS)
def test_neighbours_are_those_of_all_cosines(kind: str) -> None:
    run = contents().runs[RUN]
    C = expected_cosines(run.W, run.H, contents())[kind]
    np.fill_diagonal(C, -2.0)
    found = source(data(), f"model {RUN}")[kind]
    items, shown = numbers(found["neighbours"]), numbers(found["cosines"])
    assert np.abs(np.take_along_axis(C, items, axis=1) - shown).max() <= 0.6e-4
    assert np.abs(np.sort(C, axis=1)[:, ::-1][:, : items.shape[1]] - shown).max() <= 0.6e-4
    assert (items != np.arange(len(items))[:, None]).all()


@pytest.mark.parametrize("kind", explore.KINDS)
def test_both_cosines_and_the_disagreement_are_those_of_the_two_geometries(kind: str) -> None:
    model = data()["models"][0]
    judged = next(one for one in contents().at_loss[RUN] if one.norm == contents().comparisons[RUN].norm)
    run = contents().runs[RUN]
    P, M = (expected_cosines(one.W, one.H, contents())[kind] for one in (judged, run))
    near = numbers(data()["sources"][model["predicted"]][kind]["neighbours"])
    assert np.abs(np.take_along_axis(M, near, axis=1) - numbers(model[kind]["at_predicted"])).max() <= 0.6e-4
    for i in range(0, len(P), 7):
        others = np.arange(len(P)) != i
        expected = 1.0 - np.corrcoef(P[i, others], M[i, others])[0, 1]
        assert numbers(model[kind]["disagreement"])[i] == pytest.approx(expected, abs=2e-5)
    difference = np.abs(P - M)
    np.fill_diagonal(difference, -1.0)
    worst = numbers(model[kind]["worst"])
    assert np.abs(np.take_along_axis(difference, worst, axis=1) - np.sort(difference, axis=1)[:, :-4:-1]).max() < 2e-4
    assert np.abs(np.take_along_axis(P, worst, axis=1) - numbers(model[kind]["worst_predicted"])).max() <= 0.6e-4


def test_places_are_those_after_the_best_rotation() -> None:
    explorer = Explorer(contents(), Page(contents()).order)
    places = explorer._places()
    reference = explorer.judged
    model = next(one for one in explorer.sources if one.kind == "model")
    width = max(one.stacked.shape[1] for one in (reference, model))
    both = [np.pad(one.stacked, ((0, 0), (0, width - one.stacked.shape[1]))) for one in (model, reference)]
    R, _ = orthogonal_procrustes(*both)
    axes = np.zeros((width, 3))
    axes[: reference.stacked.shape[1]] = leading_axes(reference.stacked)
    turned = np.pad(model.tokens, ((0, 0), (0, width - model.tokens.shape[1]))) @ R @ axes
    assert np.abs(turned - places[model.key]["tokens"]).max() < 1e-3


def test_a_rotated_run_lies_at_the_same_places_with_the_same_neighbours() -> None:
    run = contents().trained[RUN]
    R = special_ortho_group.rvs(run.W.shape[1], random_state=3)
    turned = data_of(replace(contents(), runs={RUN: replace(run, W=run.W @ R, H=R.T @ run.H)}))
    for kind in explore.KINDS:
        before, after = (source(one, f"model {RUN}")[kind] for one in (data(), turned))
        assert np.abs(numbers(before["cosines"]) - numbers(after["cosines"])).max() <= 1.01e-4
        assert np.abs(numbers(before["places"]) - numbers(after["places"])).max() < 1e-3


def test_the_loss_of_a_context_is_that_of_the_softmax() -> None:
    run, stats = contents().runs[RUN], contents().stats
    L = run.W @ run.H
    Q = np.exp(L - L.max(axis=0))
    Q /= Q.sum(axis=0)
    loss = numbers(source(data(), f"model {RUN}")["loss"])
    for place, j in enumerate(stats.most_frequent(5)):
        p = stats.P[:, [int(j)]].toarray().ravel()
        expected = float((p[p > 0] * np.log(p[p > 0] / Q[p > 0, int(j)])).sum())
        assert loss[place] == pytest.approx(expected, rel=1e-4)
    assert float(stats.pi[stats.most_frequent(stats.m)] @ loss) == pytest.approx(run.loss_gap, rel=1e-4)


def test_the_path_falls_to_the_limit_and_holds_the_model() -> None:
    found = data()
    gaps = [found["sources"][place]["gap"] for place in found["path"]]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] == 0
    assert len(gaps) == len(PATH_SHARES) + 2
    position = found["models"][0]["position"]
    assert found["sources"][found["path"][int(position)]]["gap"] == pytest.approx(found["models"][0]["gap"], rel=0.011)


def test_next_tokens_are_those_of_the_text() -> None:
    found, stats = data(), contents().stats
    starts = numbers(found["follows"]["starts"])
    for place, j in enumerate(stats.most_frequent(6)):
        entries = slice(int(starts[place]), int(starts[place + 1]))
        names = [found["tokens"]["names"][z] for z in numbers(found["follows"]["tokens"])[entries]]
        shares = numbers(found["follows"]["shares"])[entries]
        expected = [(z, p * (1 - stats.left_out[j])) for z, p in stats.next_tokens(int(j), stats.V)]
        assert sorted(names) == sorted(token for token, _ in expected)
        assert sorted(shares) == pytest.approx(sorted(p for _, p in expected), abs=1e-5)
        assert list(shares) == sorted(shares, reverse=True)
        assert numbers(found["follows"]["counts"])[entries].sum() == stats.context_counts[int(j)]


def test_more_than_fits_is_cut_to_the_most_frequent_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore, "MOST_TOKENS", 7)
    monkeypatch.setattr(explore, "MOST_CONTEXTS", 11)
    found = data_of(contents())
    assert found["summary"] == (
        f"The 7 most frequent of {found['tokens']['total']} tokens and the 11 most frequent of "
        f"{found['contexts']['total']} contexts are shown; neighbours are among these."
    )
    assert found["tokens"]["names"] == data()["tokens"]["names"][:7]
    assert all(numbers(one["tokens"]["neighbours"]).max() < 7 for one in found["sources"])
    tokens = numbers(found["follows"]["tokens"])
    assert tokens.size
    assert tokens.max() < 7


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer_numbers, "BLOCK", 7)
    again = data_of(contents())["models"][0]["contexts"]
    for name in ("disagreement", "worst_predicted"):
        before, after = numbers(data()["models"][0]["contexts"][name]), numbers(again[name])
        assert np.nanmax(np.abs(before - after)) <= 1.01e-4


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_page_has_data_that_fits_together(case: str) -> None:
    given = CASES[case]()
    found = Explorer(given, Page(given).order).data()
    if found is None:
        return
    n = {kind: len(found[kind]["names"]) for kind in explore.KINDS}
    for one in found["sources"]:
        for kind in explore.KINDS:
            assert one[kind]["places"]["shape"] == [n[kind], 3]
            items, cosine = numbers(one[kind]["neighbours"]), numbers(one[kind]["cosines"])
            known = cosine > -3
            assert items[known].size == 0 or items[known].max() < n[kind]
            assert (np.abs(cosine[known]) <= 1.0).all()
    assert all(0 <= place < len(found["sources"]) for place in found["path"])
    assert all(0 <= one["position"] <= max(len(found["path"]) - 1, 0) for one in found["models"])
    for one in found["concepts"]:
        for kind in explore.KINDS:
            assert all(0 <= item < n[kind] for side in one[kind] for item in side)
