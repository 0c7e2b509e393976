"""Explanations: facts of the text, logits, neighbours and pulls, checked against the counts and plain arithmetic."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tokengeom as tg
from html_reader import read
from tokengeom.ask.explain import PlainFactors, context_gap, measured_by_name
from tokengeom.ask.item_report import ItemReport
from tokengeom.core.errors import InputError
from tokengeom.core.factors import Factors
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import predict_proxy
from tokengeom.training.objective import SoftLabels
from tokengeom.training.train import train

TOKENS = ["cat", "dog", "sat", "ran", "<b>", "never"]
CONTEXTS = ["the big", "the old", "the small", "a cat", "a dog", "cats and"]
COUNTS = np.array(
    [
        [6, 2, 3, 0, 0, 0],
        [2, 6, 1, 0, 0, 5],
        [0, 0, 0, 4, 1, 0],
        [0, 0, 0, 2, 7, 0],
        [0, 0, 1, 0, 0, 2],
        [0, 0, 0, 0, 0, 0],
    ]
)
STATS = NextTokenStatistics.from_counts(COUNTS, CONTEXTS, TOKENS)


@pytest.fixture(scope="module")
def prediction() -> FeaturePrediction:
    return predict(STATS)


def test_a_context_has_the_facts_of_its_counts(prediction: FeaturePrediction) -> None:
    found = prediction.explain("The Big")
    assert found.share == pytest.approx(8 / COUNTS.sum())
    assert found.count == 8
    assert [(one.name, one.count, one.share) for one in found.support.rows] == [("cat", 6, 0.75), ("dog", 2, 0.25)]
    assert (found.support.size, found.support.left_out) == (2, 0.0)
    assert (found.group.size, found.group.names) == (2, ("the old",))
    assert found.group.low == pytest.approx(1.0)
    assert "the old" not in {row.name for row in found.neighbours.rows}, "it has the same support"
    assert "8 windows" in found.summary()
    assert "1 other context has the same next tokens (cosine 1.000): “the old”." in found.summary()


def test_logits_in_the_limit_are_finite_part_and_direction(prediction: FeaturePrediction) -> None:
    found = prediction.explain("the big")
    for one in found.logits:
        z = TOKENS.index(one.token)
        assert one.values["finite"] == pytest.approx(prediction.L_in[z, 0], abs=1e-12)
        assert one.values["direction"] == pytest.approx(prediction.L_mm[z, 0], abs=1e-12)
        assert one.in_support == (COUNTS[z, 0] > 0)
    assert [one.token for one in found.logits[:2]] == ["cat", "dog"]
    assert found.context_gap is None


def test_logits_at_a_loss_are_probabilities(prediction: FeaturePrediction) -> None:
    at = prediction.at(0.05, tolerance=1e-6)
    q = np.exp(at.L) / np.exp(at.L).sum(axis=0)
    gaps = SoftLabels.from_statistics(STATS).context_gaps(at.L)
    for j, name in enumerate(CONTEXTS):
        found = at.explain(name)
        for one in found.logits:
            assert one.values["probability"] == pytest.approx(q[TOKENS.index(one.token), j], abs=1e-12)
        assert found.context_gap == pytest.approx(gaps[j], abs=1e-10)
    assert "predicted at a loss gap of 0.05 nats (nuclear norm)" in found.summary()


def test_a_token_has_the_facts_of_its_counts(prediction: FeaturePrediction) -> None:
    found = prediction.explain("dog")
    assert found.share == pytest.approx(14 / COUNTS.sum())
    assert found.count == 14
    assert [(one.name, one.count) for one in found.support.rows] == [
        ("the old", 6),
        ("cats and", 5),
        ("the big", 2),
        ("the small", 1),
    ]
    assert found.companions == (("cat", 3), ("<b>", 2))
    assert found.logits == ()
    assert found.pulled[0].own
    assert found.pulled[0].cosine == pytest.approx(1.0)
    unseen = prediction.explain("never")
    assert (unseen.share, unseen.count, unseen.support.size) == (0.0, 0, 0)
    assert "It follows no context." in unseen.summary()


def test_a_run_and_a_pair_of_arrays_have_no_pulls(prediction: FeaturePrediction) -> None:
    run = train(STATS, "ufm", dim=4, steps=50, learning_rate=0.05)
    found = run.explain("the big", stats=STATS)
    assert found.pulled == ()
    assert "Only predictions have optimality conditions" in found.summary()
    assert found.context_gap == pytest.approx(SoftLabels.from_statistics(STATS).context_gaps(run.logits)[0], rel=1e-9)
    assert [row.name for row in run.neighbours("dog", 2, stats=STATS).rows] == [
        row.name for row in PlainFactors((run.W, run.H)).neighbours("dog", 2, stats=STATS).rows
    ]
    with pytest.raises(InputError, match=r"This Run has no names .* --stats FOLDER"):
        run.explain("dog")
    proxy = predict_proxy(STATS, components=2).explain("the big")
    assert "The proxy has no optimality conditions" in proxy.summary()
    assert set(proxy.logits[0].values) == {"direction"}


def test_a_bias_belongs_to_the_probabilities_and_not_to_the_geometry() -> None:
    rng = np.random.default_rng(0)
    W, H, bias = rng.normal(size=(6, 3)), rng.normal(size=(3, 6)), np.arange(6.0)
    plain, biased = PlainFactors((W, H)), PlainFactors(Factors(W, H, bias))
    first, second = (one.explain("the big", stats=STATS) for one in (plain, biased))
    assert [row.cosine for row in first.neighbours.rows] == [row.cosine for row in second.neighbours.rows]
    logits = W @ H[:, 0] + bias
    found = {one.token: one.values["probability"] for one in second.logits}
    assert found["cat"] == pytest.approx(np.exp(logits[0]) / np.exp(logits).sum())


def test_what_was_measured_stands_beside_the_prediction(prediction: FeaturePrediction) -> None:
    same, other = (prediction.W, prediction.H), train(STATS, "ufm", dim=4, steps=20)
    found = prediction.explain("the big", 4, measured={"same": same, "run": other})
    rows = found.neighbours.rows
    assert found.measured["same"].common == len(rows) == 4
    assert found.measured["same"].cosines == pytest.approx([row.cosine for row in rows])
    near = {row.index for row in other.neighbours("the big", 4, stats=STATS, other_supports=True).rows}
    assert found.measured["run"].common == sum(row.index in near for row in rows)
    assert f"{found.measured['run'].common} of 4 predicted neighbours are among them" in found.summary()
    assert found.measured["run"].context_gap == pytest.approx(
        SoftLabels.from_statistics(STATS).context_gaps(other.logits)[0]
    )
    with pytest.raises(InputError, match="W and H have 5 tokens"):
        prediction.explain("the big", measured=(prediction.W[1:], prediction.H))


def test_runs_have_the_names_of_their_folders() -> None:
    pair = (np.eye(2), np.eye(2))
    assert list(measured_by_name(["a/run", "b/run", pair])) == ["run", "run (2)", "run (3)"]
    assert measured_by_name(None) == {}
    assert list(measured_by_name(pair)) == ["run"]


def test_an_explanation_as_data_and_in_a_notebook(prediction: FeaturePrediction) -> None:
    context = json.loads(json.dumps(prediction.explain("the small", measured=(prediction.W, prediction.H)).to_dict()))
    assert {"support", "group", "logits", "neighbours", "pulled", "measured", "share", "count"} <= set(context)
    assert set(context["logits"][0]) == {"token", "in_support", "share", "finite", "direction"}
    assert set(context["neighbours"][0]) == {"name", "index", "cosine", "shared", "size"}
    first = context["pulled"][1]
    shares = [pull["contribution"] / first["cosine"] for pull in first["pulls"]]
    assert first["share"] == pytest.approx(shares)
    token = json.loads(json.dumps(prediction.explain("<b>").to_dict()))
    assert {"support", "group", "companions", "neighbours"} <= set(token)
    shown = prediction.explain("<b>")
    page = read(shown._repr_html_())
    assert "b" not in page.tags
    assert "“<b>”" in page.texts[0]
    assert repr(shown) == "ItemReport(token <b>, predicted in the limit)"
    assert isinstance(shown, ItemReport)


def test_what_cuts_left_out_is_said() -> None:
    text = ["a b a b a c a b d a c e a b"] * 3
    stats = tg.count(text, context=1, tokenizer="whitespace").limited(vocabulary=2, rest="drop")
    found = predict(stats).explain("a", items="contexts")
    assert found.support.left_out > 0
    assert f"cuts left out {found.support.left_out:.1%} of its windows" in found.summary()


def test_the_loss_of_one_context_is_a_divergence() -> None:
    share = np.array([0.5, 0.5, 0.0])
    assert context_gap(np.zeros(3), share) == pytest.approx(np.log(3) - np.log(2))
    assert context_gap(np.array([50.0, 50.0, 0.0]), share) == pytest.approx(0.0, abs=1e-12)
