"""docs/theory.md: every statement says what kind it is, and its source, proof, tests and links exist.

Also: docs/how_numbers_are_measured.md states the constants of the code.
"""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import pytest

from tokengeom.comparison import (
    agreement,
    comparison,
    explained,
    logit_numbers,
    similarity_numbers,
    verdict,
)
from tokengeom.comparison.explanations import ufm
from tokengeom.comparison.inputs import CompareSettings
from tokengeom.comparison.similarity_numbers import SMALLEST_STRATUM
from tokengeom.comparison.target import FEWEST_GROUPS
from tokengeom.core import numerics
from tokengeom.problems.base import LARGEST_GAP
from tokengeom_studies.base import study_names

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE = DOCS / "theory.md"
KINDS = ("theorem", "checked", "conjecture")
SECTIONS = (
    "1.",
    "2.",
    "2.1",
    "2.2",
    "3.",
    "3.1",
    "3.2",
    "3.3",
    "3.4",
    "4.",
    "5.",
    "6.",
    "6.1",
    "6.2",
    "6.3",
    "7.",
    "7.1",
)
"""Numbers of sections that docstrings name."""
OTHER_ADMONITIONS = ("attention", "caution", "danger", "error", "hint", "important", "note", "tip", "warning")

TEST_NAME = re.compile(r"`((?:studies/)?tests/[\w/]+\.py)(?:::(\w+))?`")
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
CITATION = re.compile(r"\{cite:[pt]\}`([\w,]+)`")


@dataclass(frozen=True)
class Statement:
    """An admonition: its title, its class, and everything in it."""

    title: str
    kind: str
    body: str


def statements(page: str) -> list[Statement]:
    """The admonitions of a page, whatever they are called."""
    names = "|".join(["admonition", *OTHER_ADMONITIONS])
    found = []
    for one in re.finditer(rf"^(:{{3,}}|`{{3,}})\{{({names})\}} *([^\n]*)\n(.*?)^\1$", page, re.MULTILINE | re.DOTALL):
        kind = re.match(r":class: (.+)\n", one[4])
        found.append(Statement(one[3], kind[1] if kind and one[2] == "admonition" else one[2], one[4]))
    return found


def has_proof(body: str) -> bool:
    """Whether a theorem cites a source, has a proof, or names a module whose docstring has one."""
    if CITATION.search(body) or re.search(r"\{dropdown\} Proof.*\n(?:.*\n){1,}?.*\S", body):
        return True
    named = re.findall(r"\{py:mod\}`([\w.]+)`", body)
    return "proof" in body and any(importlib.import_module(name).__doc__ for name in named)


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """Anchors of the headings of a page, as MyST and GitHub make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


def bibliography() -> list[str]:
    return re.findall(r"^@\w+\{(\w+),", (DOCS / "references.bib").read_text(encoding="utf-8"), re.MULTILINE)


def problems(page: str) -> list[str]:
    """What is wrong with a theory page; nothing if all is well."""
    found = []
    for one in statements(page):
        if one.kind not in KINDS:
            found.append(f"'{one.title}' is of the kind '{one.kind}', not one of {KINDS}")
        elif not one.title.lower().startswith(f"{one.kind}: "):
            found.append(f"the title '{one.title}' does not say that it is of the kind '{one.kind}'")
        if one.kind == "theorem" and not has_proof(one.body):
            found.append(f"'{one.title}' has neither a citation nor a proof")
        if one.kind in ("checked", "conjecture") and not (TEST_NAME.search(one.body) or "](results/" in one.body):
            found.append(f"'{one.title}' names neither a test nor a results page")
    for file, name in TEST_NAME.findall(page):
        path = ROOT / file
        if not path.is_file() or (name and name not in functions_of(path)):
            found.append(f"{file}::{name} does not exist")
    for target in LINK.findall(page):
        file, _, anchor = target.partition("#")
        path = DOCS / file if file else PAGE
        if not path.is_file() or (anchor and anchor not in anchors_of(path)):
            found.append(f"the link {target} has no target")
    cited = {key for keys in CITATION.findall(page) for key in keys.split(",")}
    found += [f"{key} is not in the bibliography" for key in sorted(cited - set(bibliography()))]
    named = set(re.findall(r"stud(?:y|ies)\s+`([a-z0-9-]+)`", page))
    found += [f"the study {name} does not exist" for name in sorted(named - set(study_names()))]
    numbers = re.findall(r"^#{2,3} (\d\.\d?)", page, re.MULTILINE)
    return found + [f"section {number} is missing" for number in SECTIONS if number not in numbers]


def test_every_statement_is_marked_and_everything_it_names_exists() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert problems(page) == []
    kinds = [one.kind for one in statements(page)]
    assert min(kinds.count(kind) for kind in KINDS) >= 8
    assert len(kinds) == page.count("{admonition}")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (":class: theorem", ":class: tip", "of the kind 'tip'"),
        (":class: checked", ":class: theorem", "does not say that it is"),
        (":::::{admonition} Theorem", ":::::{note}\n:::::\n:::::{admonition} Theorem", "of the kind 'note'"),
        ("{dropdown} Proof", "{dropdown} Remark", "has neither a citation nor a proof"),
        ("Inequalities and proof:", "See also", "'Theorem: what all solutions have in common' has neither"),
        (
            "test_cvxpy_finds_the_same_margin",
            "test_nothing",
            "test_margin.py::test_nothing does not exist",
        ),
        ("tests/solvers/test_margin.py", "tests/solvers/test_margins.py", "tests/solvers/test_margins.py"),
        ("results/efficiency.md", "results/efficient.md", "the link results/efficient.md has no target"),
        ("](#62-the-plane)", "](#62-the-plain)", "the link #62-the-plain has no target"),
        ("{cite:p}`ji2019`", "{cite:p}`ji2018`", "ji2018 is not in the bibliography"),
        ("`linear-violations`", "`linear-errors`", "the study linear-errors does not exist"),
        ("### 2.2 ", "### ", "section 2.2 is missing"),
    ],
)
def test_a_page_with_an_error_is_noticed(old: str, new: str, says: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert old in page
    assert any(says in problem for problem in problems(page.replace(old, new)))


def test_a_checked_statement_without_a_test_is_noticed() -> None:
    page = ":::{admonition} Checked: nothing\n:class: checked\n\nIt is so.\n:::\n"
    assert "'Checked: nothing' names neither a test nor a results page" in problems(page)


def test_no_reference_is_listed_twice() -> None:
    keys = bibliography()
    assert len(keys) > 20
    assert sorted(keys) == sorted(set(keys))


def permutations() -> int:
    (found,) = (one.default for one in fields(CompareSettings) if one.name == "permutations")
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize(
    "phrase",
    [
        f"Of more than {similarity_numbers.MOST_ITEMS:,} contexts or tokens, {similarity_numbers.MOST_ITEMS:,} are",
        f"More than {numerics.MOST_BLOCKS} units are put into {numerics.MOST_BLOCKS} blocks",
        f"from {numerics.BLOCK_PAIRS} random pairs of blocks",
        f"Fewer than {numerics.FEWEST_UNITS} units have no interval",
        f"over {permutations()} random permutations",
        f"the 95th percentile over {agreement.GAUSSIAN_DRAWS} draws of embeddings",
        f"A lead is *clear* if its interval lies above {explained.RESOLUTION:g}",
        f"where the two differ by {verdict.WEIGHTINGS_DIFFER:g} or more, a sentence says so",
        f"with fewer than {2 * FEWEST_GROUPS} supports it is the nuclear norm",
        f"follow about as many contexts, at least {SMALLEST_STRATUM} of them",
        f"They are trained {ufm.SEEDS} times",
        f"the {comparison.UNEXPLAINED} contexts and tokens whose cosines",
        f"each with its {comparison.NEIGHBOURS} nearest neighbours",
        f"*agree* if at least {verdict.AGREES:.0%} is explained",
        f"agree *in part* if at least {verdict.IN_PART:.0%} is",
        f"if trainings agree less than {agreement.LEAST_REPRODUCIBLE:g} or",
        f"below {verdict.SURELY:.0%} for a share of {verdict.AGREES:.0%} or more",
        f"from below {verdict.IN_PART / 2:.0%} to above {verdict.AGREES:.0%})",
        f"fewer than {FEWEST_GROUPS} support groups or tokens. With one training",
        f"the lower bound is at least {verdict.IN_PART:.0%} or the upper bound below {verdict.AGREES:.0%}",
        f"in one of them by at least {verdict.CLEARLY_AHEAD:g}",
        f"those inside it by more than {explained.WORTH_WIDENING:g}",
        f"with fewer than {explained.FOLDS * explained.FEWEST_IN_FOLD} support groups or tokens, on all",
        f"singular values above {logit_numbers.SMALLEST_SINGULAR:g} of the largest",
        f"unless the gap of its norm is at most {LARGEST_GAP:.1%}",
    ],
)
def test_the_constants_of_the_code_are_those_of_the_page(phrase: str) -> None:
    page = " ".join((DOCS / "how_numbers_are_measured.md").read_text(encoding="utf-8").split())
    assert phrase in page


def test_numbers_in_words_are_those_of_the_page() -> None:
    page = " ".join((DOCS / "how_numbers_are_measured.md").read_text(encoding="utf-8").split())
    assert verdict.COLLAPSED == 0.5
    assert "collapse to half of the floor of that number or less" in page
    assert explained.FOLDS == 3
    assert "split at random into three folds" in page
    assert numerics.FEWEST_UNITS == 5
    assert "From five trainings on, trainings are left out in turn as well" in page
