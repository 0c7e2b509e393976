"""``tokengeom predict --ties`` and ``tokengeom place``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tokengeom as tg
from command_line import run_here


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tied")
    tg.count(["a b c a b d a b c b c d a c b"], context=2, tokenizer="word").save(place / "stats")
    ties = ("--loss-gap", "0.3", "--ties", "positions+self", "--out", place / "tied")
    made = run_here("predict", place / "stats", *ties, "--json")
    assert made.code == 0, made.err
    numbers = json.loads(made.out)
    assert numbers["ties"] == "positions+self"
    assert numbers["features"] > 0
    assert numbers["relative_gap"] <= 0.005
    assert numbers["nuclear_norm"] == numbers["norm_value"]
    return place


def test_contexts_are_placed(folder: Path) -> None:
    asked = run_here("place", folder / "tied", "d b", "a b", "-k", 2, "--json")
    assert asked.code == 0, asked.err
    unseen, counted = json.loads(asked.out)["contexts"]
    assert (unseen["seen"], counted["seen"]) == ("never", "counted")
    assert len(unseen["next_tokens"]) == len(unseen["neighbours"]) == 2
    shown = run_here("place", folder / "tied", "d b", "z z").out
    assert "is not in the text" in shown
    assert "nothing is predicted for it" in shown


def test_an_explanation_names_features_in_both_norms_and_in_the_limit(folder: Path) -> None:
    tg.predict(folder / "stats", loss_gap=0.3, ties="positions+self", norm="gamma2").save(folder / "gamma2")
    tg.predict(folder / "stats", ties="positions+self").save(folder / "limit")
    for name in ("tied", "gamma2", "limit"):
        shown = run_here("explain", folder / name, "a b")
        assert shown.code == 0, shown.err
        assert "by features that both have" in " ".join(shown.out.split()), name
        assert ("contribution" in shown.out) == (name != "limit")


def test_a_context_with_an_unknown_token_was_never_in_the_text_even_where_others_were_cut_away(tmp_path: Path) -> None:
    stats = tg.count(["a b c a b d a c b d c a d b a c"], context=2, tokenizer="word").limited(top_contexts=3)
    placed = tg.predict(stats, loss_gap=0.3, ties="positions+self").place(["z b", "d d"])
    assert placed.seen == ("never", "cut or never")
    assert placed.sentence(0) == "“z b” is not in the text."


def test_neighbours_and_explain_answer_about_contexts_that_were_not_counted(folder: Path) -> None:
    tg.train(folder / "stats", "tied", ties="positions+self", dim=4, steps=5).save(folder / "run")
    for name in ("tied", "run"):
        shown = {verb: run_here(verb, folder / name, "d b", "-k", 2) for verb in ("neighbours", "explain", "place")}
        for verb, answer in shown.items():
            assert answer.code == 0, (verb, answer.err)
            assert "“d b” is not in the text." in answer.out
        assert "Nearest contexts\n" in shown["explain"].out
        plain = json.loads(run_here("explain", folder / name, "d b", "--json").out)
        assert plain["seen"] == "never"
        assert {row["shared"] for row in plain["neighbours"]} == {None}


def test_place_says_what_it_needs(folder: Path) -> None:
    tg.predict(folder / "stats").save(folder / "plain")
    refused = run_here("place", folder / "plain", "d b")
    assert refused.code == 2
    assert "predictions with ties" in " ".join(refused.err.split())
    both = run_here("predict", folder / "stats", "--ties", "self", "--proxy")
    assert both.code == 2
    assert "--ties are for learned features" in " ".join(both.err.split())
