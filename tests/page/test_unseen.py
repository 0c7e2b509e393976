"""Contexts that the text does not have: held-out documents, the test against a recount, and the box in a browser."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from browser import NEEDS_BROWSER, PATIENCE
from page_cases import story_contents
from pipeline_cases import QUICK, plain_page, write_text
from tokengeom.comparison.explanations.base import ContextStatistics
from tokengeom.comparison.explanations.kneser_ney import Backoff, KneserNey
from tokengeom.corpus.stories import stories
from tokengeom.page.executor import measure_unseen
from tokengeom.page.formatting import fixed, percent
from tokengeom.page.render import render
from tokengeom.page.sections import unseen as section
from tokengeom.page.sections.unseen import verdict
from tokengeom.page.source_text import SourceText, find_text
from tokengeom.page.unseen import (
    DOCUMENTS,
    DRAWN,
    FEWEST,
    FREQUENCIES,
    KNESER_NEY,
    PIECES_OF_TEXT,
    TIED,
    UNTIED,
    LongestSuffix,
    UnseenContexts,
    batch_for,
    is_part,
    parts,
    sizes,
    smoothed,
    training,
    why_not_made,
    without_drawn,
    without_windows,
)
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.simulate import simulated

DOCUMENTS_OF_TEXT = list(islice(stories(), 200))


def held_out(text: SourceText, cut: NextTokenStatistics, context: int) -> tuple[NextTokenStatistics, str]:
    """A cut without its held-out part, and that part in words."""
    part, said = parts(text.token_documents(cut.tokenizer), cut)
    known = {"vocabulary_size": cut.V} if cut.tokenizer is None else {"tokenizer": cut.tokenizer}
    out = tg.count(part, context=context, **known)
    return without_windows(cut, out, said), said


@pytest.fixture(scope="module")
def known() -> UnseenContexts:
    """Trained features for some stories, of which every tenth is held out."""
    cut = tg.count(DOCUMENTS_OF_TEXT, context=2, vocabulary=60, rest="merge")
    counted, _ = held_out(find_text(DOCUMENTS_OF_TEXT, tg.ReadingSettings()), cut, 2)
    return UnseenContexts(cut, simulated(counted, training(counted, "cpu"), None, 1))


@pytest.fixture(scope="module")
def page(known: UnseenContexts) -> str:
    return render(replace(story_contents(), unseen=known))


def windows_of(documents: list[str], vocabulary: tuple[str, ...]) -> Counter[tuple[str, str]]:
    """How often a token followed a context of two words, by hand, with all other tokens as one."""
    found: Counter[tuple[str, str]] = Counter()
    for document in documents:
        (ids,) = TOKENIZER.encode([document])
        words = [TOKENIZER.token(int(token)) for token in ids]
        for a, b, next_one in zip(words, words[1:], words[2:], strict=False):
            found[f"{a} {b}", next_one if next_one in vocabulary[:-1] else vocabulary[-1]] += 1
    return found


TOKENIZER: Any = tg.count(DOCUMENTS_OF_TEXT, context=2).tokenizer


def test_the_windows_of_every_tenth_document_are_not_counted(known: UnseenContexts) -> None:
    kept = [document for number, document in enumerate(DOCUMENTS_OF_TEXT) if number % 10 != 9]
    expected, table = windows_of(kept, known.cut.vocabulary), known.counted.table.tocoo()
    names = [known.counted.context_text(j) for j in range(known.counted.m)]
    counted = {(names[j], known.counted.vocabulary[z]): n for z, j, n in zip(*table.coords, table.data, strict=True)}
    assert counted == expected
    assert known.counted.effects[-1].cut == DOCUMENTS
    assert {known.cut.context_text(int(j)) for j in known.out} == {
        context for context, _ in windows_of(DOCUMENTS_OF_TEXT, known.cut.vocabulary)
    } - set(names)
    assert known.out.size > 10
    assert is_part(known.counted, known.cut)
    assert not is_part(known.cut.limited(top_contexts=50), known.counted.limited(top_contexts=20))


def test_a_text_of_few_documents_is_cut_into_pieces() -> None:
    whole = [" ".join(DOCUMENTS_OF_TEXT)]
    cut = tg.count(whole, context=2)
    counted, said = held_out(find_text(whole, tg.ReadingSettings()), cut, 2)
    assert said == counted.effects[-1].cut == PIECES_OF_TEXT
    assert 0.88 < counted.n / cut.n < 0.92
    assert counted.m < cut.m
    assert is_part(counted, cut)


def test_token_ids_are_held_out_by_document_too(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    documents = [random.integers(0, 9, random.integers(5, 30)) for _ in range(40)]
    np.concatenate([np.append(ids, 9) for ids in documents]).astype(np.uint16).tofile(tmp_path / "ids.bin")
    text = find_text(tmp_path / "ids.bin", tg.ReadingSettings(separator_id=9))
    read = list(text.token_documents(None))
    assert list(map(list, read)) == list(map(list, documents))
    cut = tg.count(text.corpus, context=2, separator_id=9)
    counted, _ = held_out(text, cut, 2)
    kept = [ids for number, ids in enumerate(documents) if number % 10 != 9]
    assert counted.n == sum(ids.size - 2 for ids in kept)


def test_contexts_are_drawn_where_documents_are_not_known(known: UnseenContexts) -> None:
    left = without_drawn(known.cut)
    assert left.effects[-1].cut == DRAWN
    assert known.cut.m - left.m == round(known.cut.m / 10)
    assert is_part(left, known.cut)
    assert not is_part(left, known.counted)


def test_the_time_is_that_of_the_cut_that_will_be_made() -> None:
    """A part of a text is estimated as the text, and given statistics as they are."""
    whole = tg.count(DOCUMENTS_OF_TEXT, context=2)
    some = whole.limited(top_contexts=50)
    assert sizes(some, None) == sizes(whole, None) == sizes(some, whole) == whole.totals
    assert sizes(whole, some) is None
    expected = measure_unseen(None, "cpu", some)
    assert expected is not None
    assert 0 < expected.shortest < expected.longest
    assert expected.bytes > 4 * 64 * whole.m
    assert (batch_for(10), batch_for(5_000), batch_for(10**9)) == (1, 100, 4096)


def test_the_test_is_that_of_a_recount_window_by_window(known: UnseenContexts) -> None:
    placed = known.tied.place([known.cut.context_text(int(j)) for j in known.out], stats=known.counted)
    seen = np.maximum(known.counted.table.toarray().sum(axis=1), 1)
    probabilities = {
        TIED: placed.probabilities,
        FREQUENCIES: np.tile((seen / seen.sum())[:, None], known.out.size),
    }
    rows = {row.name: row for row in known.rows}
    for name, p in probabilities.items():
        loss, right, moved, n = 0.0, 0, 0.0, 0
        for k, j in enumerate(known.out):
            column = known.cut.table[:, [j]].toarray().ravel()
            for z in np.flatnonzero(column):
                loss -= column[z] * np.log(p[z, k])
                right += column[z] * (z == p[:, k].argmax())
                n += column[z]
            moved += column.sum() * np.maximum(column / column.sum() - p[:, k], 0).sum()
        assert rows[name].variation == pytest.approx(moved / n)
        assert rows[name].loss == pytest.approx(loss / n)
        assert rows[name].right == pytest.approx(right / n)
    assert rows[TIED].loss < rows[FREQUENCIES].loss - 0.5


def test_one_training_does_not_say_how_alike_others_are(known: UnseenContexts) -> None:
    assert "replicates would agree" not in known.tied.summary()
    assert "nan" not in known.tied.summary()


def test_the_test_does_not_depend_on_how_many_contexts_are_judged_at_once(
    known: UnseenContexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = UnseenContexts(known.cut, known.tied)
    monkeypatch.setattr("tokengeom.page.unseen.AT_ONCE", 7)
    for one, other in zip(known.rows, again.rows, strict=True):
        assert (one.loss, one.right, one.variation) == pytest.approx((other.loss, other.right, other.variation))


def test_kneser_ney_knows_nothing_of_what_followed_a_context_that_was_held_out(known: UnseenContexts) -> None:
    """Of contexts of two tokens only the last one is left: continuation counts, by hand."""
    assert known.counted.contexts is not None
    assert known.cut.contexts is not None
    table, D = known.counted.table.toarray() > 0, known.discount
    everything = np.maximum(
        np.array([len({c[1] for c, f in zip(known.counted.contexts, row, strict=True) if f}) for row in table]), 1
    )
    lowest = everything / everything.sum()
    for k in (0, 5, 11):
        last = known.cut.contexts[known.out[k], 1]
        n = table[:, known.counted.contexts[:, 1] == last].sum(axis=1)
        p = lowest if n.sum() == 0 else np.maximum(n - D, 0) / n.sum() + D * (n > 0).sum() / n.sum() * lowest
        found = known.log_probabilities(np.array([k]))[KNESER_NEY][:, 0]
        assert np.exp(found) == pytest.approx(p / p.sum())


def test_without_ties_the_longest_suffix_that_was_counted_stands_for_a_context(known: UnseenContexts) -> None:
    """Of contexts of two tokens that is the last one, or none: frequencies, by hand."""
    contexts, table = known.counted.contexts, known.counted.table.toarray()
    assert contexts is not None
    assert known.cut.contexts is not None
    unknown = (contexts.max() + 1) * np.ones((1, 2), np.int32)
    given = np.concatenate([known.cut.contexts[known.out[:8]], contexts[:1], unknown])
    found = np.exp(LongestSuffix.of(known.counted).log_probabilities(given))
    for k, (first, last) in enumerate(given.tolist()):
        same = contexts[:, 1] == last
        same &= (contexts[:, 0] == first) if (same & (contexts[:, 0] == first)).any() else True
        followed = table[:, same if same.any() else slice(None)].sum(axis=1)
        assert found[:, k] == pytest.approx(followed / followed.sum())
    (row,) = [row for row in known.rows if row.name == UNTIED]
    assert 0 < row.right < 1


def test_every_text_is_said_how_much_of_it_the_section_has(known: UnseenContexts) -> None:
    assert known.cut.coverage == 1
    merged = f"they have all of the text's windows, and {percent(known.cut.merged_share)} of these windows end in"
    assert merged in section._cut(known)
    few = known.cut.limited(top_contexts=300)
    some = f"they have {percent(few.coverage or 0.0)} of the text's windows"
    assert some in section._cut(replace(known, cut=few))
    whole = tg.count(DOCUMENTS_OF_TEXT, context=2)
    assert "and none of these windows ends in a token that stands for others" in section._cut(replace(known, cut=whole))
    unknown = tg.NextTokenStatistics.from_counts(np.ones((4, 400), int))
    if unknown.coverage is None:
        assert "it is not known what share" in section._cut(replace(known, cut=unknown))


def test_no_discount_beside_the_chosen_one_is_better(known: UnseenContexts) -> None:
    others, some = ContextStatistics.of(without_drawn(known.counted)), known.tuned
    assert known.counted.contexts is not None
    tokens, counts = known.counted.contexts[some], known.counted.table[:, some].toarray()

    def loss(D: float) -> float:
        return -float((counts * smoothed(Backoff.of(others, D), tokens)).sum())

    best = loss(known.discount)
    for up in (True, False):
        assert loss(KneserNey.next_value(known.discount, up=up)) >= best - 1e-9


def test_the_page_states_the_numbers_and_who_is_best(known: UnseenContexts, page: str) -> None:
    for row in known.rows:
        cells = (fixed(row.loss, 3), percent(row.right), fixed(row.variation, 3))
        assert re.search(rf"{row.name}</th>" + "".join(f".*?>{cell}</td>" for cell in cells), page)
    assert '<section id="unseen">' in page
    said = verdict(known)
    assert said in page
    best = min(known.rows, key=lambda row: row.loss)
    assert best.name in re.search(r"Lowest loss: (.*?)\.", said)[1]  # type: ignore[index]
    ahead, low, high = known.ahead
    assert low <= ahead <= high
    losses = {row.name: row.loss for row in known.rows}
    assert ahead == pytest.approx(losses[TIED] - losses[KNESER_NEY])


def test_statistics_without_tokens_or_with_few_contexts_have_no_such_section() -> None:
    few = tg.count(DOCUMENTS_OF_TEXT[:4], context=2)
    assert few.m < FEWEST
    for stats in (
        few,
        tg.NextTokenStatistics.from_counts(np.ones((4, 400), int)),
        tg.NextTokenStatistics.from_probabilities(np.full((4, 400), 0.25)),
        tg.count(DOCUMENTS_OF_TEXT, context=1, tokenizer="char"),
    ):
        assert sizes(stats, None) is None
        assert measure_unseen(None, "cpu", stats) is None
    assert "at least 300 of them" in why_not_made(is_cut=False)


def test_a_report_keeps_the_training_and_verifies_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_page(monkeypatch)
    text = write_text(tmp_path / "stories.txt", 200)
    made = tg.report(text, tmp_path / "page.html", **{**QUICK, "unseen": True, "seeds": 1})
    assert {"unseen-cut", "unseen-counted", "unseen"} <= set(made.made)
    assert made.results is not None
    said = made.to_dict()["unseen"]
    assert (said["kept"], said["held_out_contexts"] > 0) == (DOCUMENTS, True)
    (placed,) = tg.place(made.results / "unseen", ["the small"]).to_dict(3)
    assert placed["next_tokens"]
    found = tg.verify(made.results)
    assert found.failed == ()
    assert "unseen-counted: its windows are some of the larger cut" in found.checked
    assert "unseen: its settings are those in the record" in found.checked
    assert "unseen: the loss gaps are those of the weights" in found.checked
    assert any(line.startswith("unseen-counted: that they are those of the documents") for line in found.not_checked)
    assert tg.report(text, tmp_path / "page.html", **{**QUICK, "unseen": True, "seeds": 1}).made == ()


@NEEDS_BROWSER
def test_a_context_that_is_typed_is_placed_as_the_training_places_it(
    known: UnseenContexts, browser: Any, tmp_path: Path
) -> None:
    # A short training hardly moves the gain, which is then of no consequence.
    gain = np.linspace(0.1, 2.0, 64)
    known = UnseenContexts(known.cut, replace(known.tied, gain=gain))
    file = tmp_path / "page.html"
    file.write_text(render(replace(story_contents(), unseen=known)), encoding="utf-8")
    typed = box_of(browser, file)
    counted, out = known.counted.context_text(0), known.cut.context_text(int(known.out[0]))
    names = {known.cut.context_text(j) for j in range(known.cut.m)}
    ends = sorted({name.split()[1] for name in names})
    never = next(f"the {end}" for end in ends if f"the {end}" not in names)
    for text, expected in ((counted, "was trained on"), (out, "was held out"), (never, "does not have")):
        said, tables = typed(text)
        assert expected in said
        placed = known.tied.place([text], stats=known.counted)
        p, near, shares = (
            dict(placed.next_tokens(0, 300)), dict(placed.neighbours(0, 5_000)), dict(placed.shared_features(0))
        )  # fmt: skip
        assert tables["next"][0][0] == placed.next_tokens(0, 1)[0][0]
        assert all(abs(value / 100 - p[token]) < 0.02 for token, value in tables["next"])
        assert all(abs(value - near[other]) < 0.02 for other, value in tables["near"])
        assert {name for name, _ in tables["features"]} == set(shares)
        assert all(abs(value / 100 - shares[name]) < 0.02 for name, value in tables["features"])
    assert "“qwertz” is not in the text." in typed("the qwertz")[0]
    assert "nothing is predicted" in typed("qwertz qwertz")[0]


@NEEDS_BROWSER
def test_a_page_with_the_most_frequent_features_alone_says_so_and_predicts_nearly_the_same(
    known: UnseenContexts, browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(section, "MOST_FEATURES", 250)
    monkeypatch.setattr(section, "MOST_PLACED", 30)
    file = tmp_path / "page.html"
    html = render(replace(story_contents(), unseen=known))
    file.write_text(html, encoding="utf-8")
    assert f"the 250 most frequent of {known.tied.features.F:,} features" in html
    assert f"among the 30 most frequent of {known.counted.m:,} contexts" in html
    typed, often = box_of(browser, file), int(known.counted.context_counts.argmax())
    said, tables = typed(known.counted.context_text(often))
    placed = known.tied.place([known.counted.context_text(often)], stats=known.counted)
    assert "was trained on" in said
    assert tables["next"][0][0] == placed.next_tokens(0, 1)[0][0]
    rare = known.counted.context_text(int(known.counted.context_counts.argmin()))
    said, tables = typed(rare)
    assert "was trained on" in said
    assert len(tables["near"]) == 8


def box_of(browser: Any, file: Path) -> Any:
    """A function that types a context into the box of a page, and gives what it says and its tables."""
    tab = browser.new_page()
    tab.set_default_timeout(PATIENCE)
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(file.as_uri())

    def typed(text: str) -> tuple[str, dict[str, list[tuple[str, float]]]]:
        tab.fill("#unseen-query", text)
        rows = {
            name: [
                (row.query_selector("th").inner_text(), row.query_selector("td").inner_text())
                for row in tab.query_selector_all(f'#unseen-answer [data-of="{name}"] tbody tr')
            ]
            for name in ("features", "near", "next")
        }
        number = {
            name: [(one, float(value.replace("\u2212", "-").rstrip("%"))) for one, value in table]
            for name, table in rows.items()
        }
        assert errors == []
        return tab.inner_text("#unseen-said"), number

    return typed
