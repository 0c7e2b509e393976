"""Contexts that the text does not have: held-out contexts, the test against a recount, and the box in a browser."""

from __future__ import annotations

import re
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
from tokengeom.corpus.stories import stories
from tokengeom.page.formatting import fixed, percent
from tokengeom.page.render import render
from tokengeom.page.sections.unseen import verdict
from tokengeom.page.unseen import (
    BACKED_OFF,
    FEWEST,
    FREQUENCIES,
    KNESER_NEY,
    TIED,
    TIES,
    UnseenContexts,
    cost,
    expected_cost,
    held_out,
    largest_cut,
    why_not_made,
)
from tokengeom.page.unseen import without_held_out as counted_of


@pytest.fixture(scope="module")
def known() -> UnseenContexts:
    """A prediction with ties for some stories."""
    cut = largest_cut(tg.count(list(islice(stories(), 200)), context=2))
    assert cut is not None
    counted = counted_of(cut)
    tied = tg.predict(counted, loss_gap=0.9, ties=TIES, tolerance=2e-2)
    return UnseenContexts(cut, tied, tg.predict(counted, loss_gap=0.9, tolerance=2e-2))


@pytest.fixture(scope="module")
def page(known: UnseenContexts) -> str:
    return render(replace(story_contents(), unseen=known))


def test_contexts_that_are_held_out_are_not_counted(known: UnseenContexts) -> None:
    assert known.cut.contexts is not None
    assert known.counted.contexts is not None
    out = {tuple(row) for row in known.cut.contexts[held_out(known.cut.m)]}
    assert len(out) == round(known.cut.m / 10)
    assert not out & {tuple(row) for row in known.counted.contexts}
    assert known.counted.m + len(out) == known.cut.m


def test_the_cost_of_the_cut_is_expected_before_it_is_counted_and_none_where_there_is_no_cut(
    known: UnseenContexts,
) -> None:
    text = list(islice(stories(), 200))
    some = tg.count(text, context=2, top_contexts=50, vocabulary=20, rest="merge")
    tokens = known.tied.features
    true = cost(known.cut.V, known.cut.m, tokens.F * known.cut.m / known.counted.m)
    expected = expected_cost(some)
    assert expected is not None
    assert 0.5 < expected / true < 2
    assert expected_cost(some.limited(top_contexts=20)) == expected
    few = tg.count(text[:4], context=2)
    assert few.m < FEWEST
    assert largest_cut(few) is None
    assert expected_cost(few) is None
    assert "at least 300 of them" in why_not_made(is_cut=False)
    assert expected_cost(tg.count(text, context=1)) is None


def means_of_alike(known: UnseenContexts) -> np.ndarray[Any, Any]:
    """Probabilities without ties after contexts of two tokens: the mean after those with the same last one."""
    counted, L = known.counted, known.untied.L  # type: ignore[union-attr]
    assert counted.contexts is not None
    assert known.cut.contexts is not None
    q = np.exp(L) / np.exp(L).sum(axis=0)
    seen = np.maximum(counted.table.toarray().sum(axis=1), 1)
    columns = []
    for j in known.out:
        alike = np.flatnonzero(counted.contexts[:, 1] == known.cut.contexts[j, 1])
        columns.append(q[:, alike] @ counted.pi[alike] / counted.pi[alike].sum() if alike.size else seen / seen.sum())
    return np.array(columns).T


def test_the_test_is_that_of_a_recount_window_by_window(known: UnseenContexts) -> None:
    placed = known.tied.place([known.cut.context_text(int(j)) for j in known.out], stats=known.counted)
    seen = np.maximum(known.counted.table.toarray().sum(axis=1), 1)
    probabilities = {
        TIED: placed.probabilities,
        FREQUENCIES: np.tile((seen / seen.sum())[:, None], known.out.size),
        BACKED_OFF: means_of_alike(known),
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


def test_kneser_ney_knows_nothing_of_what_followed_a_context_that_was_held_out(known: UnseenContexts) -> None:
    """Of contexts of two tokens only the last one is left: continuation counts, by hand."""
    assert known.counted.contexts is not None
    assert known.cut.contexts is not None
    table, D = known.counted.table.toarray() > 0, known.discount
    everything = np.maximum(
        np.array([len({c[1] for c, f in zip(known.counted.contexts, row, strict=True) if f}) for row in table]), 1
    )
    lowest = everything / everything.sum()
    for k in (0, 5, 17):
        last = known.cut.contexts[known.out[k], 1]
        n = table[:, known.counted.contexts[:, 1] == last].sum(axis=1)
        p = lowest if n.sum() == 0 else np.maximum(n - D, 0) / n.sum() + D * (n > 0).sum() / n.sum() * lowest
        assert np.exp(known.log_probabilities[KNESER_NEY][:, k]) == pytest.approx(p / p.sum())


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
    assert len(page.split('id="unseen-data">')[1].split("</script>")[0]) < 1_500_000


def test_statistics_without_tokens_or_with_few_contexts_have_no_such_section() -> None:
    assert largest_cut(tg.count(list(islice(stories(), 5)), context=2)) is None
    assert largest_cut(tg.NextTokenStatistics.from_counts(np.ones((4, 400), int))) is None
    assert largest_cut(tg.count(list(islice(stories(), 200)), context=1, tokenizer="char")) is None


def test_a_report_keeps_the_prediction_and_verifies_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_page(monkeypatch)
    monkeypatch.setattr("tokengeom.page.stages.TOLERANCE", 5e-2)
    text = write_text(tmp_path / "stories.txt", 200)
    made = tg.report(text, tmp_path / "page.html", **{**QUICK, "unseen": True, "seeds": 1})
    assert {"unseen-cut", "unseen-counted", "unseen", "unseen-untied"} <= set(made.made)
    assert made.results is not None
    assert made.to_dict()["unseen"]["held_out_contexts"] > 0
    (placed,) = tg.place(made.results / "unseen", ["the small"]).to_dict(3)
    assert placed["next_tokens"]
    found = tg.verify(made.results)
    assert any(check.startswith("unseen-counted: the contexts that were held out") for check in found.checked)
    assert found.failed == ()
    assert tg.report(text, tmp_path / "page.html", **{**QUICK, "unseen": True, "seeds": 1}).made == ()


@NEEDS_BROWSER
def test_a_context_that_is_typed_is_placed_as_the_prediction_places_it(
    known: UnseenContexts, page: str, browser: Any, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
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
        return tab.inner_text("#unseen-said"), number

    counted, out = known.counted.context_text(0), known.cut.context_text(int(known.out[0]))
    names = {known.cut.context_text(j) for j in range(known.cut.m)}
    ends = sorted({name.split()[1] for name in names})
    never = next(f"the {end}" for end in ends if f"the {end}" not in names)
    for text, expected in ((counted, "was counted"), (out, "was held out"), (never, "does not have")):
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
    assert errors == []
    tab.close()


def test_no_discount_beside_the_chosen_one_is_better(known: UnseenContexts) -> None:
    from tokengeom.comparison.explanations.kneser_ney import KneserNey
    from tokengeom.page.unseen import held_out, smoothed, without_held_out

    tenth, others = held_out(known.counted.m), without_held_out(known.counted)
    assert known.counted.contexts is not None
    tokens, counts = known.counted.contexts[tenth], known.counted.table[:, tenth].toarray()

    def loss(D: float) -> float:
        logits = smoothed(others, tokens, D)
        return -float((counts * (logits - np.log(np.exp(logits).sum(axis=0)))).sum())

    best = loss(known.discount)
    for up in (True, False):
        assert loss(KneserNey.next_value(known.discount, up=up)) >= best - 1e-9
