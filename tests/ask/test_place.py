"""`Placed`: what can be placed, what is refused, and what is said where nothing is known."""

from __future__ import annotations

import json
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
        tg.place(tg.train(stats, "ufm", dim=2, steps=1), "a b")  # type: ignore[arg-type]
    own = tg.predict(stats, loss_gap=0.3, ties=tg.ContextFeatures.from_matrix(np.eye(stats.m)))
    with pytest.raises(StatisticsError, match="not known for other contexts"):
        own.place(["a b", "a"])
