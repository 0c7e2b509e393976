"""The context length that a report chooses, on random languages whose order is known.

A language of order L has V tokens, and the next token depends on the last L. With noise, a token is any of the V with
this probability. Kinds of languages:

``even``       Two tokens may follow each context, equally often; one document.
``uneven``     Two to four tokens with shares in proportion to 1, 1/2, 1/3, 1/4, drawn in proportion to 1/rank, so that
               some tokens and contexts are far more frequent than others; one document.
``documents``  As ``even``, in documents of 50 tokens.
``grammar``    Order 2 and 20 tokens; each context has one of 17 supports of two to six tokens; one document.

The right length is the order. A report takes at least two tokens, so that order 1 has a table of its own, with 2 as the
right length. Orders and vocabularies with more than 4,096 contexts are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any, ClassVar

import numpy as np
from scipy.special import betaincinv

from tokengeom import ReadingSettings
from tokengeom.extending import (
    AbstractProgress,
    Curve,
    Figure,
    LinePanel,
    ReportSettings,
    SilentProgress,
    choose,
    find_text,
)
from tokengeom_studies.base import Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.measured import (
    AbstractMeasuredStudy,
    Answer,
    Decision,
    Hypothesis,
    Interval,
    Row,
    Rows,
    chosen,
    decided,
    decided_together,
)

SHORTEST, MOST_CONTEXTS = 2, 4096
DOCUMENT, SUPPORTS, GRAMMAR = 50, 17, (2, 20)
"""Tokens of a document, supports of the grammar, its order and vocabulary."""
RIGHT, RIGHT_GRAMMAR, FEW_WINDOWS, LESS = 0.95, 0.9, 10, 0.05
CELL = ("kind_of_text", "order", "vocabulary", "noise", "size")
_SHARE = "Yes if the 95% interval of the share of right answers (Clopper and Pearson) lies above {}, no if below."


class ContextLength(AbstractMeasuredStudy):
    """Random languages of orders 1 to 5, with the context length that a report of each would have."""

    question = "How often does a report choose contexts as long as the text's next token depends on?"
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "right": Hypothesis(f"The order is found in {RIGHT:.0%} of the texts of orders 2 to 5.", _SHARE.format(RIGHT)),
        "short": Hypothesis(
            "A wrong length is too short, and the text has too few windows per context to know better.",
            f"Yes if every wrong length of orders 2 to 5 is below the order, in a text with fewer than {FEW_WINDOWS} "
            "tokens per context of the language; no if one is not; undecided if none is wrong.",
        ),
        "kinds": Hypothesis(
            "Uneven shares and short documents cost few right answers.",
            f"For each kind against even languages: the 95% interval (Student) of the mean difference over the cells "
            f"of orders 2 to 5 lies above -{LESS} (yes) or below (no); no if one kind says no, yes if both say yes.",
        ),
        "grammar": Hypothesis("The grammar gets contexts of two tokens.", _SHARE.format(RIGHT_GRAMMAR)),
        "order 1": Hypothesis("Languages of order 1 get contexts of two tokens, the shortest.", _SHARE.format(RIGHT)),
    }
    small: ClassVar[Recipe] = {
        **{"seed": 0, "texts": [0], "orders": [1, 2], "vocabularies": [4], "noise": [0.0], "sizes": [2_000, 4_000]},
        "kinds": ["even", "uneven", "documents", "grammar"],
    }
    paper: ClassVar[Recipe] = {
        **{"seed": 30, "texts": [0, 1, 2], "orders": [1, 2, 3, 4, 5], "vocabularies": [3, 4, 8, 20, 60]},
        **{"noise": [0.0, 0.05, 0.2], "sizes": [5_000, 20_000, 80_000]},
        "kinds": ["even", "uneven", "documents", "grammar"],
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """One row per text; all cells have a text before one has the next."""
        work = list(product(recipe["texts"], cells(recipe)))
        with progress.stage("Choosing lengths", float(len(work))) as stage:
            for number, cell in work:
                if rows.in_time and not rows.has(text=number, **cell):
                    documents = list(language(Random(f"{recipe['seed']} {number} {cell}"), **cell))
                    text = find_text(documents, ReadingSettings())
                    found = choose(text, ReportSettings(), SilentProgress()).settings
                    rows.add(kind="choice", text=number, **cell, context=found["context"])
                stage.advance(1.0)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Shares of right answers, and the texts with a wrong one."""
        single, longer = chosen(rows, order=1), [row for row in rows if row["order"] > 1]
        wrong = [row for row in longer if not is_right(row)]
        expected = [row["context"] < row["order"] and windows_per_context(row) < FEW_WINDOWS for row in wrong]
        answers = {
            "right": _by_share(longer, RIGHT),
            "short": Answer(
                ("yes" if all(expected) else "no") if wrong else "undecided",
                f"{len(wrong)} wrong, {sum(expected)} of them too short with few windows per context",
            ),
            "kinds": _kinds(longer),
            "grammar": _by_share(chosen(rows, kind_of_text="grammar"), RIGHT_GRAMMAR),
            "order 1": _by_share(single, RIGHT),
        }
        tables = {"hypotheses": self.answers(answers), "rates": rates(longer), "order 1": rates(single)}
        if wrong:
            tables["wrong"] = wrong_lengths(longer)
        counts = [len(chosen(rows, **dict(cell))) for cell in dict.fromkeys(map(_cell, rows))]
        checks = [Check("fewest texts in a cell", float(min(counts)), low=1.0)]
        sentence = f"The order is found in {share(longer)} of the texts of orders 2 to 5."
        return self.findings(recipe, sentence, checks, [_figure(longer)], tables)


def cells(recipe: Recipe) -> list[dict[str, Any]]:
    """The languages and sizes of a recipe; the grammar has one order and one vocabulary."""
    languages = [
        (kind, order, vocabulary)
        for kind, order, vocabulary in product(recipe["kinds"], recipe["orders"], recipe["vocabularies"])
        if vocabulary**order <= MOST_CONTEXTS and kind != "grammar"
    ]
    languages += [("grammar", *GRAMMAR)] if "grammar" in recipe["kinds"] else []
    sizes = product(languages, recipe["noise"], recipe["sizes"])
    return [dict(zip(CELL, (*language, *rest), strict=True)) for language, *rest in sizes]


def language(random: Random, kind_of_text: str, order: int, vocabulary: int, noise: float, size: int) -> Iterator[str]:
    """The documents of a random language; the first tokens of each are any."""
    rule: dict[tuple[int, ...], tuple[list[int], list[float]]] = {}
    supports = [random.sample(range(vocabulary), random.randint(2, min(6, vocabulary))) for _ in range(SUPPORTS)]
    length = DOCUMENT if kind_of_text == "documents" else size
    for _ in range(size // length):
        tokens = [random.randrange(vocabulary) for _ in range(order)]
        while len(tokens) < length:
            last = tuple(tokens[-order:])
            if last not in rule:
                rule[last] = _followers(random, kind_of_text, vocabulary, supports)
            noisy = random.random() < noise
            tokens.append(random.randrange(vocabulary) if noisy else random.choices(*rule[last])[0])
        yield " ".join(f"w{token}" for token in tokens)


def _followers(
    random: Random, kind: str, vocabulary: int, supports: Sequence[list[int]]
) -> tuple[list[int], list[float]]:
    """The tokens that may follow a context, and their shares up to a factor."""
    if kind == "grammar":
        support = random.choice(supports)
        return support, [1.0] * len(support)
    if kind != "uneven":
        return random.sample(range(vocabulary), 2), [1.0, 1.0]
    falling = [1.0 / rank for rank in range(1, vocabulary + 1)]
    drawn: dict[int, None] = {}
    number = random.randint(2, min(4, vocabulary))
    while len(drawn) < number:
        drawn[random.choices(range(vocabulary), falling)[0]] = None
    return list(drawn), falling[:number]


def is_right(row: Row) -> bool:
    """Whether the order was found; for order 1, the shortest length that a report takes."""
    return bool(row["context"] == max(row["order"], SHORTEST))


def windows_per_context(row: Row) -> float:
    """Tokens of the text per context that the language has."""
    return float(row["size"] / row["vocabulary"] ** row["order"])


def interval(right: int, count: int) -> tuple[float, float]:
    """The 95% interval of Clopper and Pearson of a share."""
    low = float(betaincinv(right, count - right + 1, 0.025)) if right else 0.0
    return low, float(betaincinv(right + 1, count - right, 0.975)) if right < count else 1.0


def share(rows: Sequence[Row]) -> str:
    """How many answers are right, with the interval of their share."""
    right = sum(map(is_right, rows))
    low, high = interval(right, len(rows))
    return f"{right} of {len(rows)} [{low:.3f}, {high:.3f}]"


def _by_share(rows: Sequence[Row], least: float) -> Answer:
    if not rows:
        return Answer("undecided", "not measured")
    low, high = interval(sum(map(is_right, rows)), len(rows))
    decision: Decision = "yes" if low > least else "no" if high < least else "undecided"
    return Answer(decision, share(rows))


def _kinds(rows: Sequence[Row]) -> Answer:
    """Both other kinds against even languages, cell by cell."""
    known = {cell: float(np.mean([is_right(row) for row in chosen(rows, **dict(cell))])) for cell in map(_cell, rows)}
    differences = {
        kind: Interval.of(
            right - known[("kind_of_text", "even"), *cell[1:]] for cell, right in known.items() if cell[0][1] == kind
        )
        for kind in ("uneven", "documents")
    }
    because = ", ".join(f"{kind}: {difference}" for kind, difference in differences.items())
    return Answer(decided_together(decided(one, -LESS) for one in differences.values()), because)


def _cell(row: Row) -> tuple[tuple[str, Any], ...]:
    return tuple((name, row[name]) for name in CELL)


def rates(rows: Sequence[Row]) -> Table:
    """Right answers by kind, order and noise, one column per size, over all vocabularies."""
    keys = dict.fromkeys((row["kind_of_text"], row["order"], row["noise"]) for row in rows)
    table = []
    for kind, order, noise in keys:
        own = {size: chosen(rows, kind_of_text=kind, order=order, noise=noise, size=size) for size in _sizes(rows)}
        known = {f"{size:,} tokens": share(found) for size, found in own.items()}
        table.append({"kind": kind, "order": order, "noise": noise, **known})
    return table_of(table)


def wrong_lengths(rows: Sequence[Row]) -> Table:
    """The cells with wrong answers, with the lengths chosen instead."""
    cells_with = dict.fromkeys(_cell(row) for row in rows if not is_right(row))
    table = []
    for cell in cells_with:
        lengths = ", ".join(str(row["context"]) for row in chosen(rows, **dict(cell)))
        often = windows_per_context(dict(cell))
        table.append({"kind": cell[0][1], **dict(cell[1:]), "tokens per context": often, "lengths chosen": lengths})
    return table_of(table)


def _sizes(rows: Iterable[Row]) -> list[int]:
    return sorted({row["size"] for row in rows})


def _figure(rows: Sequence[Row]) -> Figure:
    curves = []
    for noise in dict.fromkeys(row["noise"] for row in rows):
        answers = [[is_right(row) for row in chosen(rows, noise=noise, size=size)] for size in _sizes(rows)]
        low, high = np.array([interval(sum(known), len(known)) for known in answers]).T
        mean = np.array([np.mean(known) for known in answers])
        curves.append(Curve(f"noise {noise:g}", np.array(_sizes(rows), float), mean, low, high))
    panel = LinePanel("Orders 2 to 5", "tokens of the text", "share of right answers", curves, x_scale="log")
    caption = "Share of texts whose order is found, with 95% intervals."
    return Figure("rates", "The context length that a report chooses", caption, [panel])
