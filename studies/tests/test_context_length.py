"""The study of the context length: languages have the order asked for, and every outcome of every hypothesis."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from scipy.stats import binomtest

from tokengeom_studies.context_length import ContextLength, cells, interval, language


@pytest.mark.parametrize("kind", ["even", "uneven", "documents", "grammar"])
def test_what_follows_depends_on_as_many_tokens_as_the_order(kind: str) -> None:
    documents = [one.split() for one in language(Random(1), kind, 2, 20, 0.0, 20_000)]
    assert sum(map(len, documents)) == 20_000
    assert {len(one) for one in documents} == {50 if kind == "documents" else 20_000}
    follows: dict[tuple[str, ...], set[str]] = defaultdict(set)
    shorter: dict[str, set[str]] = defaultdict(set)
    for one in documents:
        for place in range(2, len(one)):
            follows[tuple(one[place - 2 : place])].add(one[place])
            shorter[one[place - 1]].add(one[place])
    most = max(map(len, follows.values()))
    assert most == {"uneven": 4, "grammar": 6}.get(kind, 2)
    assert len({frozenset(after) for after in follows.values() if len(after) == most}) > 1
    assert max(map(len, shorter.values())) > most
    if kind == "grammar":
        known = [after for after in follows.values() if len(after) > 1]
        assert len({frozenset(after) for after in known if sum(after < other for other in known) == 0}) <= 17


def test_noise_lets_any_token_follow() -> None:
    (words,) = (one.split() for one in language(Random(2), "even", 1, 4, 0.2, 5_000))
    assert len(set(pairwise(words))) == 16


def test_cells_leave_out_languages_with_too_many_contexts() -> None:
    found = cells(ContextLength().recipe("paper"))
    assert len(found) == 3 * 18 * 9 + 9
    assert max(one["vocabulary"] ** one["order"] for one in found) == 4096


@pytest.mark.parametrize(("right", "count"), [(0, 7), (7, 7), (3, 50)])
def test_the_interval_of_a_share_is_that_of_scipy(right: int, count: int) -> None:
    other = binomtest(right, count).proportion_ci(method="exact")
    assert interval(right, count) == pytest.approx((other.low, other.high))


def decisions(**wrong: int) -> dict[str, str]:
    """Answers for 100 texts of each kind and of order 1, of which so many get a wrong length."""
    rows: list[dict[str, Any]] = []
    for kind, order, vocabulary in (("even", 3, 4), ("uneven", 3, 4), ("documents", 3, 4), ("grammar", 2, 20)):
        for size in (500, 5_000):
            for text in range(50):
                row = {"kind_of_text": kind, "order": order, "vocabulary": vocabulary, "noise": 0.0, "size": size}
                rows.append({**row, "text": text, "context": order})
        few = [row for row in rows if row["kind_of_text"] == kind and row["size"] == 500]
        for row in few[: wrong.get(kind, 0)]:
            row["context"] = wrong.get("length", 1)
    single = {"kind_of_text": "even", "order": 1, "vocabulary": 4, "noise": 0.0, "size": 500}
    rows += [{**single, "text": text, "context": 2 + (text < wrong.get("single", 0))} for text in range(100)]
    study = ContextLength()
    table = study.judge(study.recipe(), rows).tables["hypotheses"]
    return dict(zip(study.hypotheses, map(str, table["answer"]), strict=True))


def test_every_outcome() -> None:
    assert decisions() == {
        "right": "yes",
        "short": "undecided",
        "kinds": "yes",
        "grammar": "yes",
        "order 1": "yes",
    }
    bad = decisions(even=20, grammar=25, single=40, uneven=20, documents=20)
    assert bad == {"right": "no", "short": "yes", "kinds": "yes", "grammar": "no", "order 1": "no"}
    assert decisions(even=2, length=6)["short"] == "no"
    assert decisions(uneven=20)["kinds"] == "undecided"
    assert decisions(grammar=6)["grammar"] == "undecided"
