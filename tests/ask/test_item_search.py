"""A token or context is found by its text: exactly, folded, by its beginning, or named in "did you mean"."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

import tokengeom as tg
from tokengeom.ask.item_search import find_item, fold, quoted, shown
from tokengeom.ask.named_vectors import Items
from tokengeom.core.errors import InputError
from tokengeom.figures.prepare import legible
from tokengeom.statistics.next_token import NextTokenStatistics


def statistics(tokens: list[str], contexts: list[str]) -> NextTokenStatistics:
    """Statistics with these names; earlier tokens and contexts are more frequent."""
    counts = np.add.outer(np.arange(len(tokens), 0, -1), np.arange(len(contexts), 0, -1))
    return NextTokenStatistics.from_counts(counts, contexts, tokens)


SHALOM = "\u05e9\u05dc\u05d5\u05dd"
STATS = statistics(
    ["king", "queen", " king", "Café", "▁tree", "שָׁלוֹם", "kitten", "kite", "\n", "other", "naïve", "Naive"],
    ["once upon a", "once there was", "king", "the old king", "a\tb", "twice", "twice"],
)


@pytest.mark.parametrize(
    ("text", "items", "index"),
    [
        ("king", "tokens", 0),
        (" king", "tokens", 2),
        ("QUEEN", "tokens", 1),
        ("cafe", "tokens", 3),
        ("NAIVE", "tokens", 11),
        ("NAÏVE", "tokens", 10),
        ("onceupon  A", "contexts", 0),
        ("CAFE\u0301", "tokens", 3),
        ("tree", "tokens", 4),
        (SHALOM, "tokens", 5),
        (f"\u202b{SHALOM}\u202c", "tokens", 5),
        ("que", "tokens", 1),
        ("\\n", "tokens", 8),
        ("'\\n'", "tokens", 8),
        ("Once  Upon a ", "contexts", 0),
        ("once u", "contexts", 0),
        ("a b", "contexts", 4),
        ("a\\tb", "contexts", 4),
        ("twice", "contexts", 5),
        ("twice\\#2", "contexts", 6),
    ],
)
def test_an_item_is_found(text: str, items: Items, index: int) -> None:
    found = find_item(STATS, text)
    assert (found.items, found.index) == (items, index)
    assert found.name == (STATS.vocabulary[index] if items == "tokens" else STATS.context_text(index))


def test_an_exact_name_comes_before_a_folded_one() -> None:
    assert find_item(STATS, "Naive").index == 11
    assert find_item(STATS, "naïve").index == 10
    assert find_item(STATS, unicodedata.normalize("NFC", "naïve")).index == 10


def test_a_token_is_meant_unless_contexts_are_asked_for() -> None:
    token = find_item(STATS, "king")
    assert token.items == "tokens"
    assert "A context has this name too" in token.note
    context = find_item(STATS, "king", "contexts")
    assert (context.items, context.index, context.note) == ("contexts", 2, "")
    assert find_item(STATS, "twice").note.startswith("2 contexts have this name")
    assert "No other token begins with 'que'" in find_item(STATS, "que").note


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nai\u0308ve\u0301", r"can mean 2 tokens: 'naïve', 'Naive'\. Give one name in full"),
        ("kit", "2 names begin with it. Did you mean one of these\\? 'kitten', 'kite'"),
        ("once", "2 names begin with it. Did you mean one of these\\? 'once upon a', 'once there was'"),
        ("old king", "Did you mean one of these\\? 'the old king'"),
        ("and so once upon a", "Did you mean one of these\\? 'once upon a'"),
        ("qeen", "Did you mean one of these\\? 'queen'"),
        ("xyzzy", "nor anything like it. There are 12 tokens and 7 contexts, such as 'king'"),
        ("twice\\#3", "No token or context"),
        ("", "No token or context is called ''"),
    ],
)
def test_other_texts_are_refused_with_candidates(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        find_item(STATS, text)


def test_what_is_not_a_text_is_refused() -> None:
    with pytest.raises(InputError, match="by its text; got int"):
        find_item(STATS, 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="items must be tokens or contexts; got 'words'"):
        find_item(STATS, "king", "words")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="No context is called 'queen'"):
        find_item(STATS, "queen", "contexts")


def test_candidates_are_few_and_the_most_frequent_come_first() -> None:
    names = [f"word {k:03d}" for k in range(50)]
    with pytest.raises(InputError, match="50 names begin with it") as refused:
        find_item(statistics(names, ["a", "b"]), "word")
    listed = str(refused.value).split("? ")[1].rstrip(".").split(", ")
    assert listed == [repr(name) for name in names[:8]]


def test_the_closest_of_many_names_comes_first() -> None:
    rng = np.random.default_rng(0)
    names = [row.tobytes().decode() for row in rng.integers(97, 123, (2_000, 7)).astype(np.uint8)]
    swapped = names[123][:2] + names[123][3] + names[123][2] + names[123][4:]
    with pytest.raises(InputError, match=f"Did you mean one of these\\? {names[123]!r}"):
        find_item(statistics(names, ["a", "b"]), swapped)


def test_an_unknown_context_is_told_what_was_cut_away_and_what_places_contexts() -> None:
    stats = tg.count(["a b c a b d a c b d c a"], context=2, tokenizer="word")
    kept = f"the cuts kept 2 of its {stats.m} contexts"
    with pytest.raises(InputError, match=f"{kept}. A prediction with ties places contexts of any text"):
        find_item(stats.limited(top_contexts=2), "zebra")
    with pytest.raises(InputError, match=r"There are 4 tokens, such as [^.]*\.$"):
        find_item(stats.limited(top_contexts=2), "zebra", "tokens")
    with pytest.raises(InputError, match=f"Did you mean .* It is not in the text, or was cut away: {kept}. A pred"):
        find_item(stats.limited(top_contexts=2), "a b x")
    merged = stats.limited(vocabulary=2, rest="merge")
    with pytest.raises(InputError, match=r"was cut away: the cuts kept 2 of its 4 tokens\.$"):
        find_item(merged, "zebra", "tokens")
    with pytest.raises(InputError, match=r"Did you mean one of these\? [^.]*\. A pred.* any text: tokengeom place\.$"):
        find_item(stats, "a b x")


def test_folding_and_printing() -> None:
    assert fold("\uff33\uff54\uff52\uff41ße  \u200fÀ") == "strasse a"
    assert fold("שָׁלוֹם") == SHALOM
    assert [shown(name) for name in ("a", " a", "", "a\u0301", "\x1b")] == ["a", "' a'", "''", "a\u0301", "'\\x1b'"]
    persian, hidden = "\u0645\u06cc\u200c\u0634\u0648\u062f", "pass\u200cword"
    assert (shown(persian), quoted(persian), legible(persian)) == (persian, f"“{persian}”", persian)
    assert (shown(hidden), legible(hidden)) == (repr(hidden), "pass\\u200cword")
    assert shown(f"{persian}\u200c") == repr(f"{persian}\u200c")
    assert quoted(" a") == "“ a”"
    assert quoted("\n") == "“\\n”"
    assert quoted("a" * 50 + "b" * 50) == f"“{'a' * 28} … {'b' * 28}”"
    with pytest.raises(InputError, match="No token or context") as refused:
        find_item(STATS, "x" * 100_000)
    assert len(str(refused.value)) < 200
