"""The paper: front matter, citations and figures exist, its page can be made, and its numbers are those of the rows.

``make docs`` builds it as a page of the site (`docs/_extensions/paper_page.py`).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pybtex.database import parse_file
from sphinx.errors import ExtensionError

from pictures import SAME_PICTURE, changed_share
from test_site import load

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "paper" / "paper.md"
paper_page = load(ROOT / "docs" / "_extensions" / "paper_page.py")
SECTIONS = (
    "Summary",
    "Statement of need",
    "State of the field",
    "Software design",
    "Research impact statement",
    "Acknowledgements",
    "References",
)
"""The sections that the journal asks for, in its order, but for a statement that authors add when they submit."""
FIELDS = ("title", "tags", "authors", "affiliations", "date", "bibliography")


def problems(text: str) -> list[str]:
    """What is wrong with a paper; nothing if all is well."""
    front, body = text.split("---\n", 2)[1:]
    found = [f"no {name}" for name in FIELDS if not re.search(rf"^{name}:", front, re.MULTILINE)]
    known = set(re.findall(r"^@\w+\{(\w+),", PAPER.with_name("paper.bib").read_text(encoding="utf-8"), re.MULTILINE))
    cited = set(re.findall(r"@(\w+)", body))
    found += [f"{key} is cited, and not in paper.bib" for key in sorted(cited - known)]
    found += [f"{key} is in paper.bib, and not cited" for key in sorted(known - cited)]
    sections = re.findall(r"^# (.+)$", body, re.MULTILINE)
    if tuple(sections) != SECTIONS:
        found.append(f"its sections are {sections}")
    listed = parse_file(PAPER.with_suffix(".bib")).entries
    found += [
        f"{key} has neither a DOI nor an address" for key, one in listed.items() if not {"doi", "url"} & {*one.fields}
    ]
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", body)
    return found + [f"{one} does not exist" for one in pictures if not (PAPER.parent / one).is_file()]


def test_front_matter_citations_and_figures_of_the_paper_exist() -> None:
    assert problems(PAPER.read_text(encoding="utf-8")) == []


def test_an_error_in_the_paper_is_noticed() -> None:
    text = PAPER.read_text(encoding="utf-8")
    for old, new in (
        ("\ndate:", "\nday:"),
        ("@bird2009", "@bird2008"),
        ("explained_share.png", "share.png"),
        ("# Software design", "# Design"),
    ):
        assert old in text
        assert problems(text.replace(old, new)) != []


def test_the_paper_becomes_a_page_and_a_citation_without_a_reference_is_refused() -> None:
    text, references = PAPER.read_text(encoding="utf-8"), dict(parse_file(PAPER.with_suffix(".bib")).entries)
    page = paper_page.as_page(text, references)
    assert page.startswith("# tokengeom: ")
    assert "(Thrampoulidis, 2024)" in page
    assert "@" not in page
    assert page.count("\n- ") >= len(references)
    with pytest.raises(ExtensionError, match="bird2008"):
        paper_page.as_page(text.replace("@bird2009", "@bird2008"), references)


def test_the_figure_of_the_paper_is_that_of_the_tables(tmp_path: Path) -> None:
    load(PAPER.with_name("figure.py")).draw(tmp_path / "figure.png")
    assert changed_share(PAPER.with_name("explained_share.png"), tmp_path / "figure.png") <= SAME_PICTURE


EVIDENCE = (ROOT / "docs" / "results" / "explained_share.md").read_text(encoding="utf-8")


def shares(explanation: str) -> list[str]:
    """The explained share of each kind of item: squares of the corrected agreements that the page of results has."""
    overview = EVIDENCE.split("<!-- table overview -->", 1)[1].split("<!-- end -->", 1)[0]
    (row,) = re.findall(rf"^\| {re.escape(explanation)} \|(.*)\|$", overview, re.MULTILINE)
    return [f"{100 * float(one) ** 2:.0f}%" for one in row.split("|") if one.strip() != "-"]


def test_the_main_result_of_paper_and_readme_is_that_of_the_rows() -> None:
    tied, best = shares("simulated, positions+pairs+self"), shares("another kind of network")
    paper = PAPER.read_text(encoding="utf-8").split("# Research impact statement", 1)[1].split("\n# ", 1)[0]
    readme = (ROOT / "README.md").read_text(encoding="utf-8").split("**Main result.**", 1)[1].split("\n\n", 1)[0]
    assert re.findall(r"\d+%", paper) == [*tied, *shares("gamma_2 at the loss"), *best]
    texts = [of_text("simulated, positions+pairs+self", one) for one in ("code_256", "tinystories_1000x4000")]
    assert re.findall(r"\d+%", readme) == [tied[0], *texts, shares("gamma_2 at the loss")[0], best[0]]


def test_the_readme_says_what_goes_against_its_main_result() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    ahead = re.findall(r"^\| simulated, positions\+pairs\+self \| (\d+ of \d+) \|$", EVIDENCE, re.MULTILINE)
    assert f"ahead of every explanation without such sharing in {ahead[0]} cases" in readme
    rows = re.findall(r"^\| \w+ \| several \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|", EVIDENCE, re.MULTILINE)
    assert len(rows) == 4
    assert sum(float(smoothed) > float(tied) for tied, smoothed in rows) == 2
    assert "Kneser-Ney, a smoothing of n-grams, explains more on two texts" in readme


def of_text(explanation: str, text: str) -> str:
    """The explained share of contexts with several next tokens on one text: the square of the mean over loss gaps."""
    table = EVIDENCE.split("<!-- table explanations -->", 1)[1].split("<!-- end -->", 1)[0]
    found = re.findall(rf"^\| {text} \| [\d.]+ \| {re.escape(explanation)} \| ([\d.]+) \|", table, re.MULTILINE)
    return f"{100 * (sum(map(float, found)) / len(found)) ** 2:.0f}%"


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_numbers_of_the_picture_are_those_that_were_written_with_it(page: str) -> None:
    caption = " ".join((ROOT / page).read_text(encoding="utf-8").split("novel.png)", 1)[1].split("\n\n", 2)[1].split())
    written = (ROOT / "docs" / "pictures" / "novel.txt").read_text(encoding="utf-8")
    share, contexts, tokens = re.findall(r"\(([\d.]+%) of the text's\), contexts=(\d+), vocabulary=(\d+)", written)[0]
    trainings = {5: "five"}[written.count("Run(model=transformer")]
    explained, numbers = re.findall(
        r"and (\d+%) \[.*?geometry of tokens (\(agreement .*? attainable [\d.]+\))", written
    )[0]
    common = f"explains {explained} of what the {trainings} trainings have in common {numbers}"
    assert f"all {tokens} tokens that were kept the prediction {common}" in caption
    assert f"The {contexts} contexts of two words cover {share} of the text" in caption


def test_the_paper_counts_the_hypotheses_as_they_were_decided() -> None:
    table = EVIDENCE.split("<!-- table hypotheses -->", 1)[1].split("<!-- end -->", 1)[0]
    answers = [row.split("|")[-3].strip() for row in table.strip().splitlines()[2:]]
    words = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 10: "ten"}
    text = " ".join(PAPER.read_text(encoding="utf-8").split())
    yes, no, undecided = (words[answers.count(one)] for one in ("yes", "no", "undecided"))
    assert f"Of {words[len(answers)]} hypotheses" in text
    verb = "was" if no == "one" else "were"
    assert f"{yes} were confirmed and {no} {verb} refuted; {undecided} were not decided" in text
