"""Reading and running the code blocks of a Markdown page, by conventions that every page of the documentation keeps.

* All blocks of a page share one empty folder; its ``python`` blocks share one namespace.
* ``sh`` holds commands; ``console`` holds commands after ``$ `` and the output of each; an ``output`` block directly
  after a ``python`` or ``sh`` block is what that block prints. A line ``...``, or ``...`` in a line, matches anything.
* A ``{code-block}`` whose ``:caption:`` is a file name is written to that file instead of being run.
* ``% not run: REASON`` (or ``<!-- not run: REASON -->``) directly above a block: it is checked, but not run.
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RUN = ("python", "sh", "console")
SHOWN = ("", "text", "output", "toml", "json", "bibtex")
NOT_STARTED = ("pip", "make", "git", "pre-commit", "torchrun", "cd", "source", "uv", "apt-get", "pytest")
"""Programs that install something, start other jobs or change the environment."""
WIDTH = "100"
"""Columns of the terminal in which commands run."""

AfterBlock = Callable[["Block", str], None]
Prepare = Callable[[Path, dict[str, Any]], AbstractContextManager[AfterBlock]]

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`]*)$")
_DIRECTIVE = re.compile(r"^\{(?P<name>[a-z:-]+)\}[ \t]*(?P<argument>.*)$")
_NOT_RUN = re.compile(r"^\s*(?:%|<!--)\s*not run\s*:?\s*(?P<reason>.*?)\s*(?:-->)?\s*$")
_FILE_NAME = re.compile(r"[\w./-]+\.[a-z]+")
_INLINE = re.compile(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


class DocumentationError(AssertionError):
    """A page shows what is not so."""


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    ``line`` is that of its opening fence, from 1; ``not_run`` the reason for which it is not run, None where it is run;
    ``file`` the file that it is written to; ``prints`` what it is expected to print, from the block directly after it.
    """

    page: str
    line: int
    language: str
    text: str
    not_run: str | None = None
    file: str | None = None
    prints: str | None = None

    def fail(self, message: str) -> DocumentationError:
        """An error that names the block."""
        return DocumentationError(f"{self.page}, line {self.line}: {message}")


def read(page: Path) -> list[Block]:
    """The code blocks of a page, in order."""
    name = page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name
    lines = page.read_text(encoding="utf-8").splitlines()
    return _joined(lines, list(_blocks(name, lines, 1)))


def _blocks(page: str, lines: list[str], first: int) -> Iterator[Block]:
    start = 0
    while start < len(lines):
        opened = _FENCE.match(lines[start])
        if not opened:
            start += 1
            continue
        closing = re.compile(rf"^[ \t]*{opened['fence'][0]}{{{len(opened['fence'])},}}[ \t]*$")
        end = next((k for k in range(start + 1, len(lines)) if closing.match(lines[k])), None)
        if end is None:
            raise DocumentationError(f"{page}, line {first + start}: a fence without an end")
        inside = [line.removeprefix(opened["indent"]) for line in lines[start + 1 : end]]
        directive = _DIRECTIVE.match(opened["info"].strip())
        if directive and directive["name"] not in ("code-block", "code", "sourcecode"):
            yield from _blocks(page, inside, first + start + 1)
        else:
            language = directive["argument"] if directive else opened["info"]
            options = _options(inside) if directive else {}
            caption = options.get("caption", "")
            marked = _NOT_RUN.match(lines[start - 1]) if start else None
            yield Block(
                page,
                first + start,
                language.strip(),
                "\n".join(inside) + "\n",
                not_run=marked["reason"] if marked else None,
                file=caption if _FILE_NAME.fullmatch(caption) else None,
            )
        start = end + 1


def _options(inside: list[str]) -> dict[str, str]:
    """Options at the beginning of a directive's content, which are taken away from it but keep their lines."""
    found = {}
    for k, line in enumerate(inside):
        option = re.match(r"^:([a-z-]+):[ \t]*(.*)$", line)
        if not option:
            break
        found[option[1]] = option[2].strip("` ")
        inside[k] = ""
    return found


def _joined(lines: list[str], found: list[Block]) -> list[Block]:
    """Blocks of output joined to the blocks that print it."""
    joined: list[Block] = []
    for block in found:
        if block.language != "output":
            joined.append(block)
            continue
        before = joined[-1] if joined else None
        end = before.line + before.text.count("\n") + 1 if before else 0
        if (
            before is None
            or before.language not in ("python", "sh")
            or any(map(str.strip, lines[end : block.line - 1]))
        ):
            raise block.fail("an output block must stand directly after the python or sh block that prints it")
        joined[-1] = replace(before, prints=block.text)
    return joined


def check_block(block: Block) -> None:
    """Refuse a block in an unknown language, without a reason for not being run, or that cannot be parsed."""
    if block.language not in (*RUN, *SHOWN):
        raise block.fail(f"unknown language {block.language!r}; use one of {', '.join((*RUN, *filter(None, SHOWN)))}")
    if block.not_run == "":
        raise block.fail("say why it is not run: `% not run: REASON`")
    if block.language == "toml":
        tomllib.loads(block.text)
    if block.language == "json" and "..." not in block.text:
        json.loads(block.text)


def inline_code(page: Path) -> list[str]:
    """The code in the sentences of a page, each on one line."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for block in _blocks(page.name, lines, 1):
        last = block.line + block.text.count("\n") + 1
        lines[block.line - 1 : last] = [""] * (last - block.line + 1)
    return [" ".join(found[2].split()) for found in _INLINE.finditer("\n".join(lines))]


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


def run_block(block: Block, names: dict[str, Any], *, in_process: bool = True) -> str:
    """Run one block in the current folder and compare what it prints; returns what it printed."""
    if block.file is not None:
        path = Path(block.file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text.lstrip("\n"), encoding="utf-8")
        return ""
    if block.not_run is not None or block.language not in RUN:
        return ""
    if block.language == "python":
        printed = _run_python(block, names)
    else:
        printed = (_run_sh if block.language == "sh" else _run_console)(block, in_process)
    if block.prints is not None:
        require_output(block, block.prints, printed)
    return printed


def _run_python(block: Block, names: dict[str, Any]) -> str:
    # Empty lines before the code: a traceback names the line of the page.
    code = compile("\n" * block.line + block.text, str(ROOT / block.page), "exec")
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
    found = read(page)
    for block in found:
        check_block(block)
    with chdir(folder), prepare(folder, names) if prepare else nullcontext(lambda block, printed: None) as after:
        for block in found:
            after(block, run_block(block, names, in_process=in_process))
    return len(found)
