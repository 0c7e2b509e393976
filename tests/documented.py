"""Running the code blocks of a Markdown page, which Sybil finds, by conventions that every page keeps.

* All blocks of a page share one empty folder; its ``python`` blocks share one namespace.
* ``sh`` holds commands; ``console`` holds commands after ``$ `` and the output of each; an ``output`` block is what the
  block before it prints. A line ``...``, or ``...`` in a line, matches anything.
* A ``{code-block}`` whose ``:caption:`` is a file name is written to that file instead of being run.
* ``<!-- skip: next "REASON" -->`` above a block: its names are checked, but it is not run.
* ``tokengeom`` runs in this process (on some pages in one of its own), other programs in a shell; those in
  `NOT_STARTED` are checked, but not run.
"""

from __future__ import annotations

import difflib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, chdir, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sybil import Document, Region
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, FencedCodeBlockLexer
from sybil.parsers.myst.lexers import DirectiveLexer

ROOT = Path(__file__).parents[1]
RUN = ("python", "sh", "console")
SHOWN = ("text", "output", "toml", "json", "bibtex")
NOT_STARTED = ("pip", "make", "git", "pre-commit", "torchrun", "cd", "source", "uv", "apt-get", "pytest")
"""Programs that install something, start other jobs or change the environment."""
WIDTH = "100"
"""Columns of the terminal in which commands run."""

AfterBlock = Callable[["Block", str], None]
Prepare = Callable[[Path, dict[str, Any]], AbstractContextManager[AfterBlock]]

_FILE_NAME = re.compile(r"[\w./-]+\.[a-z]+")
_INLINE = re.compile(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


class DocumentationError(AssertionError):
    """A page shows what is not so."""


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    ``line`` is that of its first line of code, from 1; ``skipped`` says whether it is only checked, and ``file`` is the
    file that it is written to, None where it is run.
    """

    page: str
    line: int
    language: str
    text: str
    skipped: bool = False
    file: str | None = None

    def fail(self, message: str) -> DocumentationError:
        """An error that names the block."""
        return DocumentationError(f"{self.page}, line {self.line}: {message}")


def read(page: Path) -> list[Block]:
    """The code blocks of a page, in order."""
    return [region.parsed for _, region in sorted(_document(page).regions, key=lambda placed: placed[0])]


def _document(page: Path) -> Document:
    return Document.parse(str(page), _code_blocks)


def _code_blocks(document: Document) -> Iterator[Region]:
    """Sybil's parser of a page: every code block, fenced or in a directive."""
    skips = [region.end for region in DirectiveInHTMLCommentLexer("skip")(document)]
    fenced = FencedCodeBlockLexer(r"[\w-]*", mapping={"language": "arguments", "source": "source"})
    for region in (*fenced(document), *DirectiveLexer("code-block|code")(document)):
        language, source = region.lexemes["arguments"], region.lexemes["source"]
        caption = region.lexemes.get("options", {}).get("caption", "").strip("` ")
        line = document.text.count("\n", 0, region.end) - source.count("\n") + 1
        skipped = any(not document.text[end : region.start].strip("-> \n") for end in skips if end < region.start)
        file = caption if _FILE_NAME.fullmatch(caption) else None
        region.parsed = Block(Path(document.path).name, line, language, str(source), skipped, file)
        yield region


def check_block(block: Block) -> None:
    """Refuse a block in an unknown language, or one that cannot be parsed."""
    if block.language not in (*RUN, *SHOWN, ""):
        raise block.fail(f"unknown language {block.language!r}; use one of {', '.join((*RUN, *SHOWN))}")
    if block.language == "toml":
        tomllib.loads(block.text)
    if block.language == "json" and "..." not in block.text:
        json.loads(block.text)


def inline_code(page: Path) -> list[str]:
    """The code in the sentences of a page, each on one line."""
    document = _document(page)
    text = document.text
    for _, region in document.regions:
        text = text[: region.start] + re.sub(r"[^\n]", " ", text[region.start : region.end]) + text[region.end :]
    return [" ".join(quoted[2].split()) for quoted in _INLINE.finditer(text)]


def commands(text: str) -> list[str]:
    """The commands of a shell block: comments and empty lines left out, continued lines joined."""
    found = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if _words(line):
            found.append(line.strip())
    return found


def shown(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that the page shows for it."""
    found: list[tuple[str, str]] = []
    continued = False
    for line in block.text.splitlines():
        if continued:
            found[-1] = (found[-1][0].removesuffix("\\") + line.strip().removeprefix("> "), "")
        elif line.startswith("$ "):
            found.append((line.removeprefix("$ "), ""))
        elif not found:
            raise block.fail("a console block begins with `$ ` and a command")
        else:
            found[-1] = (found[-1][0], found[-1][1] + line + "\n")
        continued = not found[-1][1] and line.endswith("\\")
    return found


def _words(command: str) -> list[str]:
    """The words of a command; operators of the shell are words of their own."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def arguments_of_tokengeom(command: str) -> list[str] | None:
    """The arguments of a tokengeom command, None where it is another command."""
    words = _words(command)
    for start in (["tokengeom"], ["python", "-m", "tokengeom"], ["python3", "-m", "tokengeom"]):
        if words[: len(start)] == start and not any(re.fullmatch(r"[();<>|&]+", word) for word in words):
            return words[len(start) :]
    return None


@dataclass(frozen=True)
class Done:
    """What a command left: exit code, standard output, and everything that a terminal would show."""

    code: int
    out: str
    all: str


class _Copied(io.StringIO):
    """A stream whose text goes to another stream too."""

    def __init__(self, other: io.StringIO) -> None:
        super().__init__()
        self.other = other

    def write(self, text: str) -> int:
        self.other.write(text)
        return super().write(text)


def run_command(command: str, last: int = 0, *, in_process: bool = True) -> Done:
    """Run one command in the current folder; ``last`` is the exit code of the one before."""
    if command == "echo $?":
        return Done(0, f"{last}\n", f"{last}\n")
    arguments = arguments_of_tokengeom(command)
    if arguments is None or not in_process:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", command],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": path, "COLUMNS": WIDTH},
        )
        return Done(done.returncode, done.stdout, done.stdout)
    from tokengeom.cli import app

    both = io.StringIO()
    with redirect_stdout(_Copied(both)) as out, redirect_stderr(_Copied(both)):
        code = app.run_command(arguments)
    return Done(code, out.getvalue(), both.getvalue())


def require_output(block: Block, expected: str, *printed: str) -> None:
    """Refuse output of which no form matches what the page shows; the error shows the difference to the first."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else ".*".join(map(re.escape, line.rstrip().split("..."))) + r"[ \t]*\n"
        for line in expected.strip("\n").splitlines()
    )
    if not any(re.fullmatch(pattern, one.strip("\n") + "\n" if one.strip() else "") for one in printed):
        wanted, got = (text.strip("\n").splitlines() for text in (expected, printed[0]))
        difference = "\n".join(difflib.unified_diff(wanted, got, "page", "printed", lineterm=""))
        raise block.fail(f"prints something else:\n{difference}")


def run_block(block: Block, names: dict[str, Any], printed: str = "", *, in_process: bool = True) -> str:
    """Run one block in the current folder and return what it printed; ``printed`` is what the block before did."""
    if block.file is not None:
        path = Path(block.file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text.lstrip("\n"), encoding="utf-8")
        return ""
    if block.language == "output":
        require_output(block, block.text, printed)
    if block.skipped or block.language not in RUN:
        return ""
    if block.language == "python":
        return _run_python(block, names)
    return (_run_sh if block.language == "sh" else _run_console)(block, in_process)


def _run_python(block: Block, names: dict[str, Any]) -> str:
    # Empty lines before the code: a traceback names the line of the page.
    code = compile("\n" * (block.line - 1) + block.text, str(ROOT / block.page), "exec")
    with redirect_stdout(io.StringIO()) as out:
        exec(code, names)
    return out.getvalue()


def _run_sh(block: Block, in_process: bool) -> str:
    printed = ""
    for command in commands(block.text):
        if _words(command)[0] not in NOT_STARTED:
            done = run_command(command, in_process=in_process)
            if done.code != 0:
                raise block.fail(f"`{command}` ended with exit code {done.code}:\n{done.all}")
            printed += done.all
    return printed


def _run_console(block: Block, in_process: bool) -> str:
    printed, code = "", 0
    pairs = shown(block)
    for place, (command, output) in enumerate(pairs):
        if _words(command)[0] in NOT_STARTED:
            continue
        done = run_command(command, code, in_process=in_process)
        code = done.code
        code_is_shown = place + 1 < len(pairs) and pairs[place + 1][0] == "echo $?"
        if code != (2 if output.startswith("Error: ") else 0) and not code_is_shown:
            raise block.fail(f"`{command}` ended with exit code {code}:\n{done.all}")
        require_output(block, output, done.all, done.out)
        printed += done.all
    return printed


def run_page(page: Path, folder: Path, prepare: Prepare | None = None, *, in_process: bool = True) -> int:
    """Run all blocks of a page in a folder, and return their number; the first that does not do what it says raises.

    ``prepare`` makes files and names that the page does not make itself; the function that it yields is called after
    each block with what the block printed. ``in_process`` runs ``tokengeom`` in this process.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    blocks, printed = read(page), ""
    for block in blocks:
        check_block(block)
    with chdir(folder), prepare(folder, names) if prepare else nullcontext(lambda block, printed: None) as after:
        for block in blocks:
            printed = run_block(block, names, printed, in_process=in_process)
            after(block, printed)
    return len(blocks)
