"""Results show themselves in a notebook: key facts, the proof beside the prediction, tokens as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from html_reader import read
from tokengeom.theory.proxy import predict_proxy

EVIL = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """One result of each kind, of counts whose words are written to do harm."""
    counts = np.array([[3, 1, 0, 0], [2, 0, 4, 0], [0, 5, 1, 0], [0, 0, 0, 7]])
    stats = tg.NextTokenStatistics.from_counts(
        counts, contexts=[EVIL, "a & b", "c", "d"], vocabulary=[EVIL, "<b>", "'q'", "&amp;"]
    )
    prediction = tg.predict(stats)
    run = tg.train(stats, model="ufm", dim=4, steps=30)
    few, many = (np.random.default_rng(0).normal(size=(d, 4)) for d in (1, 6))
    return {
        "statistics": stats,
        "features": prediction,
        "run": run,
        "comparison": tg.compare(prediction, run, permutations=20),
        "linear": tg.predict(stats, embeddings=many),
        "blocked": tg.predict(stats, embeddings=few),
        "proxy": predict_proxy(stats, components=2),
    }


KINDS = ["statistics", "features", "run", "comparison", "linear", "blocked", "proxy"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_is_whole_html_and_its_tokens_stay_text(results: dict[str, Any], kind: str) -> None:
    found = read(results[kind]._repr_html_())
    assert "script" not in found.tags
    assert "b" not in found.tags
    assert "table" in found.tags


def test_statistics_show_sizes_floor_and_contexts(results: dict[str, Any]) -> None:
    stats = results["statistics"]
    texts = read(stats._repr_html_()).texts
    assert texts[texts.index("windows") + 1] == str(stats.n)
    assert texts[texts.index("entropy floor") + 1] == f"{stats.entropy:.4f} nats"
    assert any(EVIL in text for text in texts), "a harmful token is shown, as text"
    given = tg.NextTokenStatistics.from_probabilities([[0.5], [0.5]])
    assert "windows" not in read(given._repr_html_()).texts


@pytest.mark.parametrize("kind", ["features", "linear"])
def test_the_proof_stands_beside_the_prediction(results: dict[str, Any], kind: str) -> None:
    texts = read(results[kind]._repr_html_()).texts
    prediction = results[kind]
    assert texts[texts.index("proven gap") + 1] == f"{prediction.certificate.relative_gap:.1e}"


@pytest.mark.parametrize("kind", ["linear", "blocked"])
def test_a_linear_prediction_gives_its_reasons(results: dict[str, Any], kind: str) -> None:
    linear = results[kind]
    texts = read(linear._repr_html_()).texts
    assert texts[texts.index("separable") + 1] == ("yes" if linear.separable else "no")
    assert linear.separable.sentence in texts
    assert linear.compatible.sentence in texts


def test_the_proxy_says_that_it_proves_nothing(results: dict[str, Any]) -> None:
    assert "none: the proxy proves nothing about L_mm" in read(results["proxy"]._repr_html_()).texts


def test_a_run_shows_its_gap_and_status(results: dict[str, Any]) -> None:
    texts = read(results["run"]._repr_html_()).texts
    assert texts[texts.index("loss gap") + 1] == f"{results['run'].loss_gap:.3g} nats"
    assert "Status: finished." in texts


def test_a_comparison_shows_every_number_with_interval_floor_and_limitations(results: dict[str, Any]) -> None:
    comparison = results["comparison"]
    texts = read(comparison._repr_html_()).texts
    assert set(comparison) <= set(texts)
    place = texts.index("limit_context_similarity")
    number = comparison.context_similarity
    assert texts[place + 1] == f"{number.value:.4g}"
    assert f"{number.floor:.3g}" in texts[place + 1 : place + 5]
    assert set(comparison.limitations) <= set(texts)
