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

from documented import ROOT, WIDTH, DocumentationError, inline_code, read, run_block, run_page
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


RIGHT = """
```python
word = "sh"
print("first", word)
```

```output
first ...
```

- In a list:

  ```python
  assert word == "sh"
  ```

````{note}
```console
$ tokengeom --version
tokengeom ...
$ tokengeom count missing.txt
Error: ...
$ tokengeom count missing.txt
...
$ echo $?
2
```
````

```{code-block} toml
:caption: settings.toml

[count]
context = 2
```

```sh
printf 'a b a b a b a b' > text.txt   # a file
tokengeom count text.txt --settings settings.toml \\
    --tokenizer whitespace --out stats --quiet
```

```python
import tokengeom as tg

assert tg.load("stats").contexts.shape[1] == 2
```

% not run: needs a GPU
```sh
tokengeom train stats --device cuda
```
"""


def test_a_page_runs_in_one_folder_and_one_namespace(tmp_path: Path) -> None:
    page = page_with(tmp_path, RIGHT)
    run_page(page, tmp_path)
    check_names(page)
    assert [block.not_run for block in read(page)][-1] == "needs a GPU"


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("first ...", "second ...", r"line 2: prints something else:\n(.*\n)*-second \.\.\.\n\+first sh"),
        ("tokengeom ...", "tokengeom 99", r"-tokengeom 99\n\+tokengeom 0"),
        ("Error: ...", "Counted.", "ended with exit code 2"),
        ("\n2\n", "\n1\n", "prints something else"),
        ("--out stats", "--outt stats", "ended with exit code 2"),
        ("% not run: needs a GPU", "% not run:", "say why it is not run"),
        ("```sh\nprintf", "```bash\nprintf", "unknown language 'bash'"),
        ("```output", "A sentence.\n\n```output", "must stand directly after"),
    ],
)
def test_a_page_that_shows_something_else_fails(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    assert RIGHT.count(right) == 1
    with pytest.raises(DocumentationError, match=message):
        run_page(page_with(tmp_path, RIGHT.replace(right, wrong)), tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("% not run: slow\n```sh\ntokengeom train stats --devices cuda\n```", "line 2: .* no option --devices"),
        ("% not run: slow\n```sh\ntorchrun -m tokengeom trian stats\n```", "`tokengeom trian` is not a command"),
        ("% not run: slow\n```python\ntg.count('x', contexts=2)\n```", "tg.count has no setting 'contexts'"),
        ("Use `tokengeom count --contxt 2`.", "has no option --contxt"),
        ("Use `--contxt`.", "no command has this option"),
        ("Use `tg.forecast(stats)`.", "tg.forecast does not exist"),
        ("Use `make everything`.", "no target everything"),
        ("Use `pip install '.[gpu]'`.", "no extra 'gpu'"),
    ],
)
def test_a_name_that_does_not_exist_is_found(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DocumentationError, match=message):
        check_names(page_with(tmp_path, text))


def test_an_error_in_python_names_the_line_of_the_page(tmp_path: Path) -> None:
    page = page_with(tmp_path, "A page.\n\n```python\nx = 1\nraise KeyError(x)\n```\n")
    with pytest.raises(KeyError) as raised:
        run_page(page, tmp_path)
    assert raised.traceback[-1].lineno + 1 == 5


def test_links_to_missing_files_and_headings_are_found(tmp_path: Path) -> None:
    page = page_with(tmp_path, "# One heading\n[a](page.md#one-heading) [b](#two) [c](none.md) ![d](https://x.y)\n")
    assert broken_links(page) == ["#two", "none.md"]


def test_code_in_sentences_is_found_beside_blocks(tmp_path: Path) -> None:
    page = page_with(tmp_path, "`a b`, ``c``\n\n```python\n`d`\n```\n\nand `e\nf`.\n")
    assert inline_code(page) == ["a b", "c", "e f"]


CONFORMANCE = {
    "optimizer": (["training/test_optimizers.py"], "lion"),
    "network": (["models/test_networks.py", "training/test_network_engine.py"], "convolution"),
    "rival": (["comparison/test_rivals.py"], "ratios"),
    "study": (["studies/test_base_conformance.py"], "rank-growth"),
    "measured_study": (["studies/test_base_conformance.py"], "learning-rates"),
}
"""Pages that add a member: the tests of its kind, and its name there."""


def test_every_page_that_adds_a_member_is_tested_for_conformance() -> None:
    assert sorted(EXTENDING) == sorted(f"docs/extending/{page}.md" for page in ("index", *CONFORMANCE))


@pytest.mark.slow
@pytest.mark.parametrize("page", CONFORMANCE)
def test_a_member_on_a_page_is_in_the_style_of_the_code_and_passes_the_tests_of_its_kind(
    page: str, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
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
        tests = [f"tests/{file}" for file in files]
        printed = run_quietly([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, "-k", name])
    assert re.search(r"\d+ passed", printed)


def run_quietly(command: list[str], **options: Any) -> str:
    """What a command prints; it must end without an error."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)
