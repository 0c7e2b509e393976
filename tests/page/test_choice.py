"""Settings that suit a text, with reasons that are true of it."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from random import Random

import numpy as np
import pytest

from pipeline_cases import write_text
from tokengeom.corpus.locate import ReadingOptions
from tokengeom.errors import CorpusError, InputError, StatisticsError
from tokengeom.page.choice import Wishes, choose
from tokengeom.page.contents import Choice
from tokengeom.page.text import find_text
from tokengeom.progress import SilentProgress


def chosen(source: object, **wishes: object) -> Choice:
    return choose(find_text(source, ReadingOptions()), Wishes(**wishes), SilentProgress())  # type: ignore[arg-type]


def row(choice: Choice, **values: object) -> dict[str, object]:
    (found,) = [dict(one) for one in choice.candidates if values.items() <= one.items()]
    return found


@pytest.fixture(scope="module")
def documents() -> list[str]:
    """Words w0..w11: after (a, b) come two words that b decides, and after b alone as many as its a's allow."""
    random, found = Random(0), []
    for _ in range(300):
        words = [random.randrange(12)]
        for _ in range(12):
            words.append((2 * words[-1] + random.randrange(2)) % 12)
        found.append(" ".join(f"w{word}" for word in words))
    return found


def test_the_numbers_of_a_candidate_are_those_of_plain_counting(documents: list[str]) -> None:
    found = row(chosen(documents), context=2, top_contexts=400)
    follows: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for document in documents:
        words = document.split()
        for place in range(2, len(words)):
            follows[tuple(words[place - 2 : place])].append(words[place])
    supports = {context: frozenset(after) for context, after in follows.items()}
    sizes = [len(support) for support in supports.values()]
    shared = [list(supports.values()).count(support) > 1 and len(support) > 1 for support in supports.values()]
    seen = [len(follows[context]) >= 5 * len(supports[context]) for context in supports]
    assert found["windows"] == sum(map(len, follows.values()))
    assert found["contexts"] == len(supports)
    assert found["support_groups"] == len(set(supports.values()))
    assert found["one_hot"] == pytest.approx(sizes.count(1) / len(sizes))
    assert found["accompanied"] == pytest.approx(sum(shared) / len(shared))
    assert found["well_seen"] == pytest.approx(sum(seen) / len(seen))


def test_a_text_whose_next_word_hangs_on_the_last_two_gets_contexts_of_more_than_one() -> None:
    """Each word may follow each word; only two words back do supports say something."""
    random, found = Random(1), []
    rule = {(a, b): random.sample(range(30), 2) for a in range(30) for b in range(30)}
    for _ in range(600):
        words = [random.randrange(30), random.randrange(30)]
        while len(words) < 60:
            words.append(random.choice(rule[words[-2], words[-1]]))
        found.append(" ".join(f"w{word}" for word in words))
    choice = chosen(found)
    assert row(choice, context=1, top_contexts=400)["informative"] < 0.1  # type: ignore[operator]
    assert choice.settings["context"] >= 2


def test_what_the_user_fixed_stays_and_is_said(documents: list[str]) -> None:
    choice = chosen(documents, tokenizer="character", context=3, top_contexts=25, vocabulary=9)
    assert choice.settings == {"tokenizer": "character", "context": 3, "top_contexts": 25, "vocabulary": 9}
    assert choice.candidates == ()
    assert all("as asked for" in reason for reason in choice.reasons)
    half = chosen(documents, context=3)
    assert {one["context"] for one in half.candidates} == {3}


def test_the_choice_is_one_of_its_candidates_and_nearly_the_best_of_its_size(tmp_path: Path) -> None:
    choice = chosen(write_text(tmp_path / "a.txt"))
    (found,) = [one for one in choice.candidates if one["chosen"]]
    assert found["context"] == choice.settings["context"]
    assert (found["top_contexts"], found["vocabulary_limit"]) == (
        choice.settings["top_contexts"],
        choice.settings["vocabulary"],
    )
    rivals = [one for one in choice.candidates if one["top_contexts"] == found["top_contexts"]]
    assert found["score"] >= 0.95 * max(one["score"] for one in rivals)
    assert all(one["context"] <= found["context"] for one in rivals if one["score"] > found["score"])
    said = " ".join(choice.reasons)
    for share in ("one_hot", "informative", "accompanied"):
        assert f"{found[share]:.0%}" in said


def test_a_short_text_gets_the_smallest_cut_and_is_called_short() -> None:
    choice = chosen(["the cat saw the dog and the dog saw a bird and the bird sang to the cat"])
    assert choice.settings["top_contexts"] == 50
    assert any("The text is short" in reason for reason in choice.reasons)


def test_lengths_that_no_document_has_are_passed_over() -> None:
    choice = chosen(["a b c", "a b d", "c b a"] * 30)
    assert {one["context"] for one in choice.candidates} == {1, 2}


def test_one_distinct_word_is_refused_with_a_remedy() -> None:
    with pytest.raises(InputError, match=re.escape("at least 2 tokens; this text, as cut, has 1")):
        chosen(["the the the the the the the the"])


def test_a_cut_that_is_no_cut_is_refused(documents: list[str]) -> None:
    with pytest.raises(InputError, match="at least 2 tokens"):
        chosen(documents, vocabulary=1)
    with pytest.raises(StatisticsError, match="1 or more"):
        chosen(documents, top_contexts=-3)


def test_a_long_text_is_judged_by_its_beginning_and_says_so(
    documents: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokengeom.page.text.SAMPLE_CHARACTERS", 2000)
    assert "first 2,0" in chosen(documents).reasons[0]


def reason(choice: Choice, beginning: str) -> str:
    (found,) = [one for one in choice.reasons if one.startswith(beginning)]
    return found


def test_the_score_is_called_the_highest_of_its_cut_alone() -> None:
    """Smaller cuts can score higher: the table beside the sentence shows them."""
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(12)]
    choice = chosen([" ".join(rng.choice(words, 2000)) for _ in range(3)])
    assert "highest of those tried" not in " ".join(choice.reasons)
    said = reason(choice, "A context is")
    (best,) = [one for one in choice.candidates if one["chosen"]]
    same_cut = [one["score"] for one in choice.candidates if one["top_contexts"] == best["top_contexts"]]
    assert ("highest of the lengths tried under this cut" in said) == (best["score"] == max(same_cut))


def test_a_few_contexts_are_not_called_the_size_of_the_papers() -> None:
    said = reason(chosen(["a b c d e f g h . " * 200]), "Kept are")
    assert "up to 400" in said
    assert "papers" not in said


def test_none_is_not_called_only_zero_percent() -> None:
    said = reason(chosen(["the cat saw the dog and a fox met the hen while an owl ate"], context=3), "Kept are")
    assert "none of these contexts were seen" in said


def test_an_empty_text_is_named() -> None:
    with pytest.raises(CorpusError, match="holds no text"):
        chosen([" ", ""])
