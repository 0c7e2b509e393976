"""`Placed`: what can be placed, what is refused, and what is said where nothing is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from tokengeom.ask.place import Placed
from tokengeom.core.errors import InputError, StatisticsError


@pytest.fixture(scope="module")
def tied() -> tg.TiedPrediction:
    stats = tg.count(["a b c a b d a c b d c a d b a c"], context=2, tokenizer="word")
    return tg.predict(stats, loss_gap=0.3, ties="positions+self")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "got no context"),
        (np.zeros((0, 2), int), "got no context"),
        (b"a b", "by their texts, such as .* type bytes"),
        ([b"a b"], "type bytes"),
        (3, "type int"),
        (np.array(3), "type ndarray"),
        (None, "type NoneType"),
        ([1, 2], "one context per row"),
        ([[1], [2, 3]], "as many in each"),
        (np.array([[0.5, 1.0]]), "one context per row"),
        (["a b", 3], "type str"),
        ([[99, 1]], "from 0 to 3, or -1 .* got 99. Contexts with tokens that the text does not have"),
        ([[-5, 1]], "from 0 to 3, or -1 .* got -5"),
        ("", "at least one token"),
    ],
)
def test_what_is_neither_texts_nor_token_ids_is_refused(tied: tg.TiedPrediction, given: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        tied.place(given)


def test_lists_of_token_ids_are_rows_of_an_array(tied: tg.TiedPrediction) -> None:
    assert tied.place([[1, 2]]).to_dict() == tied.place(np.array([[1, 2]])).to_dict() == tied.place("b c").to_dict()
    with pytest.raises(StatisticsError, match="2 tokens"):
        tied.place([[1, 2, 3]])


def test_numbers_outside_are_refused(tied: tg.TiedPrediction) -> None:
    placed = tied.place(["a b", "b b"])
    for wrong in (2, -1):
        for ask in (placed.next_tokens, placed.neighbours, placed.shared_features, placed.sentence):
            with pytest.raises(InputError, match=f"i must be .* 0 to 1; got {wrong}"):
                ask(wrong)
    for wrong in (11, -1):
        with pytest.raises(InputError, match=f"j must be .* 0 to 10; got {wrong}"):
            placed.why(wrong)
    with pytest.raises(InputError, match="whole number; got 'b c'"):
        placed.why("b c")  # type: ignore[arg-type]


def test_of_a_longer_text_the_end_is_placed_and_is_not_its_own_neighbour(tied: tg.TiedPrediction) -> None:
    longer, itself = tied.place("c c a b"), tied.place("a b")
    assert longer.names == ("a b",)
    assert (
        longer.sentence()
        == "The last tokens of \u201cc c a b\u201d count: \u201ca b\u201d is a context of these statistics."
    )
    assert longer.neighbours() == itself.neighbours()
    assert "a b" not in [name for name, _ in longer.neighbours()]
    unknown = tied.place("c c zebra b")
    assert (unknown.names, unknown.seen) == (("c c zebra b",), ("never",))
    assert [name for name, _ in unknown.shared_features()] == ["\u2026 b"]


def test_where_no_feature_is_known_nothing_is_predicted_and_that_is_said(tied: tg.TiedPrediction) -> None:
    placed = tied.place(["zebra", "a b"])
    assert isinstance(placed, Placed)
    nothing, known = json.loads(json.dumps(placed.to_dict()))
    assert (nothing["predicted"], known["predicted"]) == (False, True)
    assert nothing["sentence"].endswith("None of its features is in the text: nothing is predicted for it.")
    assert nothing["next_tokens"] == nothing["neighbours"] == nothing["features"] == []
    assert set(placed.to_frame().context) == {"a b"}


def test_what_places_no_contexts_says_how_to_get_what_does(tied: tg.TiedPrediction) -> None:
    stats = tied.stats
    assert stats is not None
    with pytest.raises(InputError, match=r"got a Run. Simulate its training: tg.simulate\(stats, like=run\)"):
        tg.place(tg.train(stats, "ufm", dim=2, steps=1), "a b")
    own = tg.predict(stats, loss_gap=0.3, ties=tg.ContextFeatures.from_matrix(np.eye(stats.m)))
    with pytest.raises(StatisticsError, match="not known for other contexts"):
        own.place(["a b", "a"])
    for refused in (own, tg.train(stats, "ufm", dim=2, steps=1), tg.predict(stats, loss_gap=0.3)):
        for verb in (tg.neighbours, tg.explain):
            with pytest.raises(InputError, match=r"No token or context is called 'c d'.* tokengeom place"):
                verb(refused, "c d", stats=stats)


def results(stats: tg.NextTokenStatistics) -> list[Any]:
    ties = "positions+self"
    tied, limit = tg.predict(stats, loss_gap=0.3, ties=ties), tg.predict(stats, ties=ties)
    simulated = tg.simulate(stats, loss_gap=0.3, ties=ties, dim=6, replicates=2, learning_rate=1e-2, last_norm=True)
    return [tied, limit, simulated, tg.train(stats, "tied", ties=ties, dim=6, steps=20, last_norm=True)]


@pytest.mark.parametrize("which", range(4))
def test_a_context_that_was_not_counted_is_answered_from_its_place(
    which: int, tied: tg.TiedPrediction, tmp_path: Path
) -> None:
    stats = tied.stats
    assert stats is not None
    result = results(stats)[which]
    placed = tg.place(result, "c d", stats=stats)
    found, report = result.neighbours("c d", 3, stats=stats), result.explain("c d", 3, stats=stats)
    assert [(row.name, row.cosine) for row in found.rows] == placed.neighbours(0, 3)
    assert {row.shared for row in found.rows} == {None}
    assert found.to_dict()["seen"] == report.to_dict()["seen"] == placed.seen[0] == "never"
    assert found.notes == (placed.sentence(),)
    assert report.facts()[0] == placed.sentence()
    assert "Its features in the text, as shares" in report.summary()
    assert [(row.token, row.values["probability"]) for row in report.logits] == placed.next_tokens(0, 3)
    assert report.features[0].cosine == pytest.approx(1.0)
    assert report.features[1] == placed.why(report.neighbours.rows[0].index)
    # A longer text is asked for by its end, which here was counted.
    known = result.neighbours("d b c a b", 3, stats=stats)
    assert (known.item.name, known.item.placed) == ("a b", None)
    assert known.rows == result.neighbours("a b", 3, stats=stats).rows
    with pytest.raises(InputError, match="No token is called 'c d'"):
        result.neighbours("c d", items="tokens", stats=stats)
    with pytest.raises(InputError, match="nor anything like it"):
        result.explain("zzz yyy", stats=stats)
    stats.save(tmp_path / "stats")
    result.save(tmp_path / "result")
    assert tg.explain(tmp_path / "result", "c d", k=3).to_dict()["seen"] == "never"
    assert tg.place(tmp_path / "result", "c d").names == ("c d",)


def test_contexts_are_placed_with_the_statistics_of_the_prediction_alone(tied: tg.TiedPrediction) -> None:
    with pytest.raises(InputError, match="for other statistics"):
        tied.place("a b", tg.count(["a b c a b d a c b d c a d b a c"], context=1, tokenizer="word"))


def test_cut_contexts_are_said_to_be_cut_or_never_and_runs_are_not_shown_beside_them() -> None:
    stats = tg.count(["a b c a b d a c b d c a d b a c"], context=2, tokenizer="word").limited(top_contexts=3)
    tied, run = tg.predict(stats, loss_gap=0.3, ties="positions+self"), tg.train(stats, "ufm", dim=4, steps=1)
    report = tied.explain("d d", measured=run)
    assert report.to_dict()["seen"] == "cut or never"
    assert "or was cut away" in report.facts()[0]
    assert report.measured == {}
    assert "their vectors are those of counted contexts" in report.notes[-1]


def test_a_cosine_is_the_sum_of_what_kinds_of_features_give(tied: tg.TiedPrediction) -> None:
    stats = tied.stats
    assert stats is not None
    both = tg.predict(stats, loss_gap=0.3, ties="positions+suffixes+pairs+self")
    assert both.features.kinds == ("position", "self")
    shared = both.explain("a b", items="contexts").features
    for each in shared:
        assert sum(each.by_kind.values()) + each.others == pytest.approx(each.cosine)
        assert each.to_dict()["by_kind"] == each.by_kind
    assert shared[0].by_kind["self"] > 0 == shared[1].by_kind["self"]
    own, other = shared[0], shared[1]
    share = [f"{part / own.cosine:.0%}" for part in (*own.by_kind.values(), own.others)]
    said = "By kind: shared positions {}, the contexts themselves {}, pairs of different features {}."
    assert own.sentence.endswith(said.format(*share))
    assert "the contexts themselves 0%," in other.sentence
    longer = tg.count(["a b c a b d a c b d c a d b a c"], context=3, tokenizer="word")
    assert tg.ContextFeatures.of_contexts(np.asarray(longer.contexts), "pairs+suffixes+self").kinds == (
        "position", "suffix", "pair", "self"
    )  # fmt: skip
