"""Figures inside the page: packed data that can be read back, shared scales, one order of heat-maps."""

from __future__ import annotations

import json
from base64 import b64decode

import numpy as np
import pytest

from page_cases import ATTACK, RUN, proxy_contents, story_contents
from tokengeom.figures.base import Figure, HeatmapPanel
from tokengeom.page.sections import figures
from tokengeom.page.sections.figures import geometry_figures, packed, page_order, picture, supports_figure


def test_packed_data_have_no_character_that_html_interprets() -> None:
    nasty = {"a": "</script><!--<script>&\u2028", "b": [ATTACK], "c": float("nan")}
    text = str(packed(nasty))
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {**nasty, "c": None}


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_packed_matrix_can_be_read_back(symmetric: bool) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((7, 7))
    matrix = matrix + matrix.T if symmetric else matrix
    matrix[2, 2] = np.nan
    found = json.loads(str(packed(matrix)))
    numbers = np.frombuffer(b64decode(found["packed"]), "<i2").astype(float)
    assert found["symmetric"] == symmetric
    whole = np.empty(found["shape"])
    if symmetric:
        whole[np.tril_indices(7)] = numbers
        whole.T[np.tril_indices(7)] = numbers
    else:
        whole = numbers.reshape(found["shape"])
    read = np.where(whole < 0, np.nan, found["low"] + whole * found["step"])
    np.testing.assert_allclose(read, matrix, atol=(np.nanmax(matrix) - np.nanmin(matrix)) / 60_000)


def test_heat_maps_share_a_scale_only_where_their_ends_are_equal() -> None:
    def panel(reach: float) -> HeatmapPanel:
        return HeatmapPanel("a", np.eye(3), "x", "y", low=-reach, high=reach, colour_label="cosine")

    same = picture(Figure("f", "t", "c", [panel(1.0), panel(1.0)]))
    assert same.scale is not None
    assert same.scale.reach == 1.0
    assert all(box.drawn["data"][0]["showscale"] is False for _, box in same.boxes)
    assert picture(Figure("f", "t", "c", [panel(1.0), panel(2.0)])).scale is None


def test_the_logits_of_a_figure_are_those_of_the_run() -> None:
    contents = story_contents()
    order = page_order(contents)
    at = contents.at_loss[RUN][1]
    assert at.norm == contents.comparisons[RUN].norm == "gamma2"
    found = figures.geometry_sources(contents)
    assert list(found) == [
        RUN, f"predicted for: {RUN}", "predicted in the limit: L^mm", "proxy: S~",
    ]  # fmt: skip
    np.testing.assert_array_equal(found[f"predicted for: {RUN}"].H, at.H)
    logits = geometry_figures(contents, order)[2].panels[0]
    assert isinstance(logits, HeatmapPanel)
    assert logits.title == RUN
    run = contents.runs[RUN]
    L = (run.W - run.W.mean(axis=0)) @ run.H
    L = L[np.ix_(order.tokens.indices, order.contexts.indices)]
    L = L - L.mean(axis=0)
    np.testing.assert_allclose(logits.values, L / np.sqrt(np.mean(L**2)), atol=1e-9)


def test_large_statistics_show_their_most_frequent_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MOST", 10)
    contents = story_contents()
    order = page_order(contents)
    assert set(order.contexts.indices) == set(contents.stats.most_frequent(10))
    assert "the 10 most frequent of 60 contexts and the 10 most frequent of 40 tokens" in figures.order_sentence(order)


def test_the_proxy_stands_for_the_prediction_where_there_is_none() -> None:
    contents = proxy_contents()
    titles = [panel.title for panel in supports_figure(contents, page_order(contents)).panels]
    assert titles == ["S: which tokens may follow", "S~: the proxy, columns centred"]
