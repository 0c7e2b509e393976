"""Settings that suit a text, with reasons that are true of it; tokens that suit its script."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from forging import forge_json
from pipeline_cases import write_text
from tokengeom import NextTokenStatistics, count
from tokengeom.core.errors import CorpusError, InputError
from tokengeom.core.progress import SilentProgress
from tokengeom.corpus.documents import choose_tokenizer
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.corpus.tokenizers import WordTokenizer
from tokengeom.page.chosen_settings import Choice, choose
from tokengeom.page.settings import ReportSettings
from tokengeom.page.source_text import find_text


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
    found = row(chosen(documents), context=2, top_contexts=600)
    follows: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for document in documents:
        words = document.split()
        for place in range(2, len(words)):
            follows[tuple(words[place - 2 : place])].append(words[place])
    supports = {context: frozenset(after) for context, after in follows.items()}
    sizes = [len(support) for support in supports.values()]
    shared = [list(supports.values()).count(support) > 1 and len(support) > 1 for support in supports.values()]
    once = {context: sum(after.count(word) == 1 for word in set(after)) for context, after in follows.items()}
    windows = sum(map(len, follows.values()))
    excluded = {one: np.log(12 / len(support)) / np.log(12) * (len(support) > 1) for one, support in supports.items()}
    score = sum((len(after) - once[one]) * excluded[one] for one, after in follows.items()) / windows
    assert found["windows"] == sum(map(len, follows.values()))
    assert found["contexts"] == len(supports)
    assert found["support_groups"] == len(set(supports.values()))
    assert found["one_hot"] == pytest.approx(sizes.count(1) / len(sizes))
    assert found["shared_support"] == pytest.approx(sum(shared) / len(shared))
    assert found["missing"] == pytest.approx(sum(once.values()) / windows)
    assert found["score"] == pytest.approx(score)
    assert found["coverage"] == 1.0
    # With 10 of the 24 contexts, the score falls with the share of the windows that they have.
    few = row(chosen(documents, top_contexts=10), context=2, vocabulary_limit=127)
    most = sorted(follows, key=lambda one: -len(follows[one]))[:10]
    assert few["coverage"] == pytest.approx(sum(len(follows[one]) for one in most) / windows)
    part = sum((len(follows[one]) - once[one]) * excluded[one] for one in most) / windows
    assert few["score"] == pytest.approx(part, rel=0.02)


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
    assert row(choice, context=1, top_contexts=600)["median_support"] > 25  # type: ignore[operator]
    assert row(choice, context=1, top_contexts=600)["score"] < 0.05  # type: ignore[operator]
    assert choice.settings["context"] >= 2


def chain(order: int, size: int, tokens: int = 4, *, noise: float = 0.0, seed: int = 0) -> list[str]:
    """A text whose next token depends on the last ``order`` ones: two may follow each; with noise, sometimes any."""
    random = Random(seed)
    rule: dict[tuple[int, ...], list[int]] = {}
    found: list[int] = [random.randrange(tokens) for _ in range(order)]
    while len(found) < size:
        last = tuple(found[-order:])
        if last not in rule:
            rule[last] = random.sample(range(tokens), 2)
        found.append(random.randrange(tokens) if random.random() < noise else random.choice(rule[last]))
    return [" ".join(f"w{word}" for word in found)]


def test_what_the_first_token_helps_to_predict_is_that_of_leaving_out_every_window() -> None:
    text = chain(2, 300)
    words = text[0].split()
    found = row(chosen(text), context=2, top_contexts=600)["gain"]
    windows = [(words[at : at + 2], words[at + 2]) for at in range(len(words) - 2)]
    gains = []
    for left_out, (context, token) in enumerate(windows):
        others = [window for at, window in enumerate(windows) if at != left_out]
        last = [after for before, after in others if before[1] == context[1]]
        both = [after for before, after in others if before == context]
        q = last.count(token) / len(last)
        p = (both.count(token) + q) / (len(both) + 1)
        gains.append(np.log(p / q) if q else np.log(1 / (len(both) + 1)))
    assert found == pytest.approx(np.mean(gains))


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_contexts_are_not_longer_than_helps_to_predict(order: int) -> None:
    choice = chosen(chain(order, 20_000))
    assert choice.settings["context"] == max(order, 2)
    gains = {one["context"]: one["gain"] for one in choice.candidates if one["top_contexts"] == 600}
    assert gains[max(order, 1)] > 0.01 > max(gains[length] for length in range(order + 1, 7))


def test_where_every_token_follows_every_context_the_longest_that_helps_is_taken() -> None:
    choice = chosen(chain(3, 20_000, 3, noise=0.2, seed=5))
    assert {one["score"] for one in choice.candidates if one["context"] in (2, 3)} == {0.0}
    assert choice.settings["context"] == 3
    assert "helps to predict" in reason(choice, "The context length is")


def test_settings_that_are_given_are_kept_and_named(documents: list[str]) -> None:
    choice = chosen(documents, tokenizer="character", context=3, top_contexts=25, vocabulary=9)
    sizes = {"tokenizer": "character", "context": 3, "top_contexts": 25, "vocabulary": 9}
    assert choice.settings == {**sizes, "rest": "merge", "support": "raw"}
    assert choice.candidates == ()
    assert choice.reasons[0] == "The tokenizer 'character' was given."
    assert all("as requested" in reason for reason in choice.reasons[1:3])
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
    same = [one for one in choice.candidates if one["top_contexts"] == found["top_contexts"]]
    rivals = [one for one in same if one["context"] >= 2]
    assert found["score"] >= 0.9 * max(one["score"] for one in rivals)
    assert all(one["context"] <= found["context"] for one in rivals if one["score"] > found["score"])
    said = " ".join(choice.reasons)
    for share in ("one_hot", "shared_support"):
        assert f"{found[share]:.0%}" in said
    assert f"{100 * found['coverage']:.2g}% of the text's windows" in said


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
        chosen(documents, vocabulary=1, rest="drop")
    with pytest.raises(InputError, match="1 or more"):
        chosen(documents, top_contexts=-3)


def test_a_long_text_is_judged_by_its_beginning_and_a_reason_says_so(
    documents: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokengeom.page.source_text.SAMPLE_CHARACTERS", 2000)
    assert "first 2,0" in chosen(documents).reasons[0]


def reason(choice: Choice, beginning: str) -> str:
    (found,) = [one for one in choice.reasons if one.startswith(beginning)]
    return found


def test_a_single_token_is_a_context_only_where_documents_allow_no_more() -> None:
    assert chosen(["a b", "b c", "c a"] * 30).settings["context"] == 1
    assert chosen(["a b c a b", "b c a a b", "c a b b a"] * 30).settings["context"] >= 2


def test_a_text_in_which_supports_say_nothing_gets_the_shortest_contexts() -> None:
    # After two tokens one follows; after one, "a" is followed by two of nine, in 2 of 10 windows.
    choice = chosen(["a b c d e f a g h . " * 200])
    assert choice.settings["context"] == 2
    said = reason(choice, "The context length is")
    assert f"1: 100% of the windows, score {0.2 * np.log(9 / 2) / np.log(9):.3f}" in said
    assert "2: 100% of the windows, score 0.000" in said


def test_what_is_merged_or_left_out_is_said(documents: list[str]) -> None:
    merged = reason(chosen(documents, context=2, vocabulary=6), "All other next tokens are merged into one")
    share = row(chosen(documents, context=2, vocabulary=6), context=2, top_contexts=600)["other"]
    counted = count(documents, context=2)
    kept = counted.limited(top_contexts=600, vocabulary=6)
    assert share == pytest.approx(1 - kept.n / counted.n)
    assert f"it ends {100 * share:.2g}% of the windows" in merged  # type: ignore[operator]
    dropped = chosen(documents, context=2, vocabulary=6, rest="drop")
    assert dropped.settings["rest"] == "drop"
    assert kept.text_counts is not None
    left_out = 1 - kept.n / kept.text_counts.sum()
    assert row(dropped, context=2, top_contexts=600)["other"] == pytest.approx(left_out)
    assert f"{100 * left_out:.2g}% of the windows of these contexts end in a token" in " ".join(dropped.reasons)
    assert not [one for one in chosen(documents).reasons if "merged" in one]


def test_a_support_policy_is_used_for_every_candidate(documents: list[str]) -> None:
    raw, often = (row(chosen(documents, context=2, support=one), top_contexts=600) for one in ("raw", "top-p:0.5"))
    assert often["median_support"] < raw["median_support"]  # type: ignore[operator]
    assert often["coverage"] < raw["coverage"]  # type: ignore[operator]


def test_a_cut_is_smaller_where_more_contexts_would_have_unknown_supports() -> None:
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(40)]
    choice = chosen([" ".join(rng.choice(words, 800)) for _ in range(3)])
    (best,) = [one for one in choice.candidates if one["chosen"]]
    larger = [one for one in choice.candidates if one["top_contexts"] > best["top_contexts"]]
    assert larger
    assert all(one["missing"] > 0.1 for one in larger if one["context"] >= 2)


def test_files_that_are_not_text_are_named(tmp_path: Path) -> None:
    write_text(tmp_path / "a.story")
    (tmp_path / "b.png").write_bytes(b"\0\1")
    choice = chosen(tmp_path)
    assert choice.reasons[-1] == "1 file is not text in UTF-8, and it was skipped: b.png."


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
        ("def f(x):\n    return x[0] == _g(x)\n\nclass A(B):\n    y = {}\n    z = f(y)", "code", "indentation"),
        ("    To be, or not to be (that is\n    the question):\n  Whether 'tis nobler", "word", ""),
        ("See `f(x)` and `g[0]`. Call f(x) = 1, or set a_b; then print(c).", "word", ""),
    ],
)
def test_tokens_are_words_where_spaces_separate_them_and_else_characters(text: str, kind: str, script: str) -> None:
    found, sentence = choose_tokenizer([text, text])
    assert found == kind
    assert script in sentence


def test_a_few_foreign_words_do_not_change_the_tokens() -> None:
    assert choose_tokenizer(["The sign said 你好 and the little girl read it aloud to her mother."])[0] == "word"


def sentences(count: int, *, comma: str = ", ", stop: str = ". ", odd: str = "Ann") -> str:
    """Sentences of random words with a comma and a full stop each; every fourth one names somebody odd."""
    random, said = Random(3), []
    for number in range(count):
        words = [random.choice(["The", "cat", "dog", "saw", "ran", "home"]) for _ in range(6)]
        said.append(f"{' '.join(words[:3])}{comma}{words[3] if number % 4 else odd} {' '.join(words[4:])}{stop}")
    return "".join(said)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (sentences(60), "word", "lower-case"),
        (sentences(60, comma=" , ", stop=" . "), "whitespace", "120 of 120 commas and full stops"),
        # Abbreviations keep their full stops.
        (sentences(60, comma=" , ", stop=" . ", odd="Mr."), "whitespace", "120 of 135 commas"),
        (sentences(60, comma=" , ", odd="Mr."), "word", "lower-case"),
        (sentences(100, comma=" ", stop="\n", odd="<unk>"), "whitespace", "<unk> and the like stand alone 25 times"),
        (sentences(100, comma=" ", stop="\n", odd="<b>"), "word", "lower-case"),
        (sentences(100, comma=" @-@ ", stop="\n"), "whitespace", "@-@ and the like stand alone 100 times"),
        (sentences(40, comma=" ", stop="\n", odd="<unk>"), "word", "lower-case"),
        # French puts a space before other marks, and SQL or Haskell a comma at the start of a line.
        (sentences(60, stop=" ! ") + sentences(60, stop=" ; "), "word", "lower-case"),
        ("f = {\n    a_b = (x)\n  , c_d = [y]\n  , e_f = (z)\n  }\n" * 30, "code", "indentation"),
    ],
)
def test_a_text_that_is_split_into_tokens_already_is_split_at_white_space(text: str, kind: str, said: str) -> None:
    found, sentence = choose_tokenizer([text])
    assert (found, said in sentence) == (kind, True), sentence


def test_an_empty_text_has_tokens_too() -> None:
    assert choose_tokenizer([])[0] == "character"


@pytest.fixture
def saved(documents: list[str], tmp_path: Path) -> Path:
    return chosen(documents).save(tmp_path / "choice")


@pytest.mark.parametrize(
    ("entry", "value"),
    [("settings", []), ("settings", {"context": [2]}), ("settings", {"support": 3}), ("reasons", [1]),
     ("candidates", [{"a": 1}, {"b": 1}]), ("candidates", [{}]), ("candidates", [3])],
)  # fmt: skip
def test_a_choice_with_wrong_parts_is_refused(saved: Path, entry: str, value: object) -> None:
    forge_json(saved, "choice.json", entry, lambda before: value)
    with pytest.raises(InputError, match="choice is damaged"):
        Choice.load(saved)
