"""The documentation is true: its code blocks run and print what it shows, and the names and links in it exist."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from documented import ROOT, WIDTH, DocumentationError, read, run_block, run_page
from documented_names import broken_links, check_names
from documented_pages import EXTENDING, IN_PROCESSES, NOT_RUN, PAGES, PREPARED, SLOW, WITHOUT_BLOCKS, new_members


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", WIDTH)
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("page", [pytest.param(one, marks=[pytest.mark.slow] if one in SLOW else []) for one in PAGES])
def test_the_code_blocks_of_a_page_run_and_print_what_it_shows(page: str, tmp_path: Path) -> None:
    run = run_page(ROOT / page, tmp_path, PREPARED.get(page), in_process=page not in IN_PROCESSES)
    assert run == len(read(ROOT / page))


@pytest.mark.parametrize("page", [*PAGES, *NOT_RUN])
def test_commands_options_functions_and_targets_that_a_page_names_exist(page: str) -> None:
    check_names(ROOT / page)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_relative_links_lead_to_files_and_headings(page: str) -> None:
    assert broken_links(ROOT / page) == []


def test_pages_that_are_slow_or_prepared_exist_and_those_that_are_left_out_have_no_blocks() -> None:
    assert {*SLOW, *PREPARED} <= set(PAGES)
    assert [name for name in WITHOUT_BLOCKS if read(ROOT / "docs" / name)] == []


def page_with(folder: Path, text: str) -> Path:
    """A page of its own."""
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


PAGE = """
```python
word = "sh"
print("first", word)
```

```output
first ...
```

````{note}
```console
$ tokengeom count missing.txt
Error: ...
```
````

<!-- skip: next "needs a GPU" -->
```sh
tokengeom train stats --device cuda
```

Use `tokengeom count --context 2`.
"""


def test_a_page_that_shows_what_is_so_passes(tmp_path: Path) -> None:
    page = page_with(tmp_path, PAGE)
    assert run_page(page, tmp_path) == 4
    check_names(page)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("first ...", "second ...", r"line 8: prints something else:\n(.*\n)*-second \.\.\.\n\+first sh"),
        ("Error: ...", "Counted.", "ended with exit code 2"),
        ("```sh\ntokengeom", "```bash\ntokengeom", "unknown language 'bash'"),
        ("--device cuda", "--devices cuda", "line 20: .* no option --devices"),
        ("--context 2", "--contxt 2", "has no option --contxt"),
    ],
)
def test_a_page_that_shows_something_else_fails(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    assert PAGE.count(right) == 1
    page = page_with(tmp_path, PAGE.replace(right, wrong))

    def check() -> None:
        run_page(page, tmp_path)
        check_names(page)

    with pytest.raises(DocumentationError, match=message):
        check()


CONFORMANCE = {
    "optimizer": (["tests/training/test_optimizers.py"], "lion"),
    "network": (["tests/models/test_networks.py", "tests/training/test_network_engine.py"], "convolution"),
    "rival": (["tests/comparison/test_rivals.py"], "ratios"),
    "study": (["studies/tests/test_base_conformance.py"], "rank-growth"),
    "measured_study": (["studies/tests/test_base_conformance.py"], "learning-rates"),
}
"""Pages that add a member: the tests of its kind, and its name there."""


def test_every_page_that_adds_a_member_is_tested_for_conformance() -> None:
    assert sorted(EXTENDING) == sorted(f"docs/extending/{page}.md" for page in ("index", *CONFORMANCE))


@pytest.mark.slow
@pytest.mark.parametrize("page", CONFORMANCE)
def test_a_member_on_a_page_is_in_the_style_of_the_code_and_passes_the_tests_of_its_kind(
    page: str, tmp_path: Path
) -> None:
    for tests in ("tests", "studies/tests"):
        shutil.copytree(ROOT / tests, tmp_path / tests, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    written = [block for block in read(ROOT / f"docs/extending/{page}.md") if block.file is not None]
    files, name = CONFORMANCE[page]
    for block in written:
        if block.language == "python":
            # The order of imports cannot be judged: ruff looks for the new file in the package.
            for command in (["check", "--ignore", "I001"], ["format", "--check"]):
                style = [sys.executable, "-m", "ruff", *command, "--no-cache", "--stdin-filename", str(block.file), "-"]
                run_quietly(style, cwd=ROOT, input=block.text.lstrip("\n"))
    with chdir(tmp_path), new_members(tmp_path, {}):
        for block in written:
            run_block(block, {})
        printed = run_quietly([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", name])
    assert re.search(r"\d+ passed", printed)


def run_quietly(command: list[str], **options: Any) -> str:
    """What a command prints; it must end without an error."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)
