"""What pages of the guide begin with was printed: they quote outputs that are kept, since tests cannot run them.

The texts and the checkpoint are no part of the repository; ``docs/guide/outputs/make.py`` runs the commands.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from documented import ROOT, Block, DocumentationError, read, require_output, shown
from test_site import load

make = load(ROOT / "docs" / "guide" / "outputs" / "make.py")
CONSOLE = [page for page in make.PAGES if make.opening(page)[0] == "console"]
COLUMNS = {
    "loss gap": "loss_gap",
    "contexts, at the loss": "context_agreement",
    "contexts, in the limit": "limit_context_agreement",
    "tokens, at the loss": "token_agreement",
    "tokens, in the limit": "limit_token_agreement",
    "efficiency": "efficiency",
}


def printed(page: str) -> str:
    """The kept output of the block that a page begins with."""
    return Path(make.HERE, f"{page}.txt").read_text(encoding="utf-8")


def by_command(text: str) -> list[tuple[str, str]]:
    """The commands of a kept output, each with what it printed."""
    parts = re.split(r"(?m)^\$ (.*)\n", text)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def block(page: str) -> Block:
    """The block that a page begins with, as the tests of the documentation read it."""
    (found,) = [one for one in read(make.HERE.parent / f"{page}.md") if one.text == make.opening(page)[1]]
    assert found.skipped
    return found


def require_quoted(one: Block, kept: str) -> None:
    """Refuse a block whose commands or outputs are not the kept ones."""
    on_page, outputs = shown(one), by_command(kept)
    assert [command for command, _ in on_page] == [command for command, _ in outputs]
    for (_, wanted), (_, got) in zip(on_page, outputs, strict=True):
        if wanted.strip():
            require_output(one, wanted, got)


@pytest.mark.parametrize("page", CONSOLE)
def test_a_page_begins_with_commands_and_outputs_that_are_kept(page: str) -> None:
    require_quoted(block(page), printed(page))


def test_another_number_or_command_on_a_page_is_noticed() -> None:
    kept = printed("what_will_a_text_do")
    with pytest.raises(DocumentationError):
        require_quoted(block("what_will_a_text_do"), kept.replace("0.652", "0.653"))
    with pytest.raises(AssertionError):
        require_quoted(block("what_will_a_text_do"), kept.replace("said -k 3", "says -k 3"))


def test_the_table_of_a_training_has_the_numbers_that_its_code_printed() -> None:
    page = (make.HERE.parent / "watch_a_training.md").read_text(encoding="utf-8")
    table = page.split(make.opening("watch_a_training")[1], 1)[1].split("\n\n", 2)[1].splitlines()
    names, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in (table[0], *table[2:]))
    lines = [line.split(" ", 1) for line in printed("watch_a_training").splitlines()]
    assert [row[0].replace(",", "") for row in rows] == [step for step, _ in lines]
    for row, (_, numbers) in zip(rows, lines, strict=True):
        known = ast.literal_eval(numbers)
        assert row[1:] == [f"{known[COLUMNS[name]]:.2f}" for name in names[1:]]


def test_the_readme_has_the_numbers_of_the_checkpoint() -> None:
    contexts, tokens = re.findall(
        r"explains (\d+%) of the geometry of contexts.*?, and (\d+%) of the geometry of tokens",
        printed("does_my_model_obey"),
    )[0]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"the answer is {contexts} of its contexts, {tokens} of its tokens, and yes." in readme
    assert "Another explanation, PMI, fits the model better" in printed("does_my_model_obey")
