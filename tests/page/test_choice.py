"""Settings that suit a text, with reasons that are true of it; tokens that suit its script."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from pipeline_cases import write_text
from tokengeom import NextTokenStatistics, count
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.corpus.tokenizers import WordTokenizer
from tokengeom.errors import CorpusError, InputError
from tokengeom.page.choice import Choice, choose, choose_tokenizer
from tokengeom.page.settings import ReportSettings
from tokengeom.page.text import find_text
from tokengeom.progress import SilentProgress


def chosen(source: object, reading: ReadingSettings | None = None, **asked: Any) -> Choice:
    return choose(find_text(source, reading or ReadingSettings()), ReportSettings(**asked), SilentProgress())


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
    assert found["shared_support"] == pytest.approx(sum(shared) / len(shared))
    assert found["well_sampled"] == pytest.approx(sum(seen) / len(seen))


def test_a_text_whose_next_word_depends_on_the_last_two_gets_contexts_of_two_or_more() -> None:
    """Any word may follow any word; only contexts of two words have informative supports."""
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


def test_settings_that_are_given_are_kept_and_named(documents: list[str]) -> None:
    choice = chosen(documents, tokenizer="character", context=3, top_contexts=25, vocabulary=9)
    assert choice.settings == {"tokenizer": "character", "context": 3, "top_contexts": 25, "vocabulary": 9}
    assert choice.candidates == ()
    assert choice.reasons[0] == "The tokenizer 'character' was given."
    assert all("as requested" in reason for reason in choice.reasons[1:])
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
    for share in ("one_hot", "informative", "shared_support"):
        assert f"{found[share]:.0%}" in said


def test_a_short_text_gets_the_smallest_cut_and_is_called_short() -> None:
    choice = chosen(["the cat saw the dog and the dog saw a bird and the bird sang to the cat"])
    assert choice.settings["top_contexts"] == 50
    assert any("The text is short" in reason for reason in choice.reasons)


def test_lengths_that_no_document_has_are_left_out() -> None:
    choice = chosen(["a b c", "a b d", "c b a"] * 30)
    assert {one["context"] for one in choice.candidates} == {1, 2}


def test_one_distinct_word_is_refused_with_a_remedy() -> None:
    with pytest.raises(InputError, match=re.escape("at least 2 tokens; this text, as cut, has 1")):
        chosen(["the the the the the the the the"])


def test_a_cut_that_leaves_nothing_is_refused(documents: list[str]) -> None:
    with pytest.raises(InputError, match="at least 2 tokens"):
        chosen(documents, vocabulary=1)
    with pytest.raises(InputError, match="1 or more"):
        chosen(documents, top_contexts=-3)


def test_a_long_text_is_judged_by_its_beginning_and_a_reason_says_so(
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
    said = reason(choice, "The context length is")
    (best,) = [one for one in choice.candidates if one["chosen"]]
    same_cut = [one["score"] for one in choice.candidates if one["top_contexts"] == best["top_contexts"]]
    assert ("highest of the lengths tried at this cut" in said) == (best["score"] == max(same_cut))


def test_a_few_contexts_are_not_called_the_size_of_the_papers() -> None:
    said = reason(chosen(["a b c d e f g h . " * 200]), "At most")
    assert "At most 400" in said
    assert "papers" not in said


def test_none_is_not_written_as_only_zero_percent() -> None:
    said = reason(chosen(["the cat saw the dog and a fox met the hen while an owl ate"], context=3), "At most")
    assert "none of these contexts were seen" in said


def test_an_empty_text_is_refused_by_its_name() -> None:
    with pytest.raises(CorpusError, match="has no text"):
        chosen([" ", ""])


def test_the_text_is_tokenized_once_for_all_context_lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    encode = WordTokenizer.encode

    def counting(self: WordTokenizer, texts: Any) -> Any:
        encoded.append(sum(map(len, texts)))
        return encode(self, texts)

    monkeypatch.setattr(WordTokenizer, "encode", counting)
    text = write_text(tmp_path / "a.txt")
    choice = chosen(text)
    assert {one["context"] for one in choice.candidates} == {1, 2, 3, 4, 5, 6}
    assert 0 < sum(encoded) <= len(text.read_text())


def write_ids(path: Path) -> Path:
    np.random.default_rng(0).integers(0, 7, 3000).astype(np.uint16).tofile(path)
    return path


def test_token_ids_are_called_ids_and_not_words(tmp_path: Path) -> None:
    path = write_ids(tmp_path / "ids.bin")
    choice = chosen(path)
    assert choice.settings["tokenizer"] is None
    assert choice.reasons[0] == "Tokens are the ids in the file; without a tokenizer they are shown as numbers."
    assert "contexts cross the ends of documents" in choice.reasons[1]
    said = " ".join(chosen(path, tokenizer="word").reasons)
    assert not re.search(r"word|was given\.", said)
    ended = chosen(path, ReadingSettings(separator_id=3))
    assert "separator_id" not in " ".join(ended.reasons)


def test_token_ids_get_their_names_from_a_saved_tokenizer(tmp_path: Path) -> None:
    tokenizer = WordTokenizer()
    tokenizer.encode(["zero one two three four five six"])
    (tmp_path / "names.json").write_text(tokenizer.freeze().to_json())
    named = str(tmp_path / "names.json")
    choice = chosen(write_ids(tmp_path / "ids.bin"), tokenizer=named)
    assert choice.settings["tokenizer"] == named
    assert choice.reasons[0] == f"Tokens are the ids in the file; the tokenizer '{named}' gives their names."


def test_given_statistics_state_only_what_is_known_of_them() -> None:
    plain = Choice.given(NextTokenStatistics.from_counts([[1, 2], [3, 0]]))
    assert plain.settings == {"contexts": 2, "vocabulary": 2}
    assert plain.reasons == ("The statistics were given: nothing was chosen.",)
    ids = Choice.given(NextTokenStatistics.from_counts([[1, 2], [3, 0]], contexts=np.array([[4], [5]], np.int32)))
    assert "ids without a tokenizer" in ids.reasons[1]
    words = Choice.given(count(["a b c a b"], context=1))
    assert (words.settings["tokenizer"], words.settings["context"]) == ("word", 1)


def test_a_choice_can_be_saved_and_described(tmp_path: Path, documents: list[str]) -> None:
    choice = chosen(documents)
    again = Choice.load(choice.save(tmp_path / "choice"))
    assert again.to_dict() == choice.to_dict()
    assert again.summary().splitlines() == list(choice.reasons)
    assert "context=" in repr(choice)


@pytest.mark.parametrize(
    ("text", "kind", "script"),
    [
        ("Once upon a time there was a little girl.", "word", ""),
        ("Жила-была маленькая девочка, и звали её Маша.", "word", ""),
        ("옛날 옛적에 작은 소녀가 살았습니다.", "word", ""),
        ("从前有一个小女孩,她住在森林里。", "character", "Han"),
        ("むかしむかし、あるところに", "character", "Hiragana"),
        ("กาลครั้งหนึ่งนานมาแล้ว", "character", "Thai"),
        ("ACGTACGTTTGACAACGT" * 20, "character", "white space"),
    ],
)
def test_tokens_are_words_where_spaces_separate_them_and_else_characters(text: str, kind: str, script: str) -> None:
    found, sentence = choose_tokenizer([text, text])
    assert found == kind
    assert script in sentence


def test_a_few_foreign_words_do_not_change_the_tokens() -> None:
    assert choose_tokenizer(["The sign said 你好 and the little girl read it aloud to her mother."])[0] == "word"


def test_an_empty_text_has_tokens_too() -> None:
    assert choose_tokenizer([])[0] == "character"
