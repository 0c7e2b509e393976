"""Checks of names that a page uses without running them: commands, options, functions, make targets, extras, links."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import typer

import tokengeom
from documented import ROOT, DocumentationError, _words, commands, inline_code, read, shown
from tokengeom.cli import app as cli

ROOT_OPTIONS = {"--help", "--install-completion", "--show-completion"}
OF_OTHERS = {"--nproc-per-node", "--host", "--port"}
"""Options of torchrun and of Spark that pages name."""
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@cache
def options() -> dict[str, set[str]]:
    """The options of every command, and of the program itself under the name ''."""
    cli.add_commands()
    root: Any = typer.main.get_command(cli.app)
    found = {name: _options(command) | {"--help"} for name, command in root.commands.items()}
    return {**found, "": _options(root) | ROOT_OPTIONS}


def _options(command: Any) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts) if name.startswith("-")}


def check_tokengeom(words: list[str]) -> None:
    """Refuse a command or an option that tokengeom does not have; words in capitals stand for any value."""
    own = next((word for word in words if not word.startswith("-")), "")
    if own.isupper():
        return
    if own not in options():
        raise DocumentationError(
            f"`tokengeom {own}` is not a command; the commands are: {', '.join(filter(None, options()))}"
        )
    for word in words:
        name = word.split("=")[0].rstrip(",")
        if re.fullmatch(r"--?[a-z][a-z-]*", name) and name not in options()[own] | options()[""]:
            raise DocumentationError(f"`tokengeom {own}` has no option {name}")


def check_shell(command: str) -> None:
    """Refuse names of tokengeom, make or pip in a shell command that do not exist."""
    words = _words(command)
    if "tokengeom" in words and (words[0] == "tokengeom" or words[words.index("tokengeom") - 1] == "-m"):
        rest = words[words.index("tokengeom") + 1 :]
        ends = [k for k, word in enumerate(rest) if re.fullmatch(r"[();<>|&]+", word)]
        check_tokengeom(rest[: ends[0]] if ends else rest)
    if words[0] == "make":
        for word in words[1:]:
            if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-") and word not in make_targets():
                raise DocumentationError(f"the Makefile has no target {word}")
    if words[:2] == ["pip", "install"]:
        for named in re.findall(r"(?:\.|tokengeom)\[([a-z,]+)\]", command):
            for extra in set(named.split(",")) - extras():
                raise DocumentationError(f"tokengeom has no extra '{extra}'; there are: {', '.join(sorted(extras()))}")


def check_python(source: str) -> None:
    """Refuse a name ``tg.x`` that tokengeom does not have, or a keyword that ``tg.x`` does not take."""
    for node in ast.walk(ast.parse(source)):
        named = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if re.fullmatch(r"tg\.\w+", named) and not hasattr(tokengeom, named.removeprefix("tg.")):
            raise DocumentationError(f"{named} does not exist")
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("tg."):
            _check_keywords(node)


def _check_keywords(call: ast.Call) -> None:
    called: Any = tokengeom
    for name in ast.unparse(call.func).split(".")[1:]:
        called = getattr(called, name, None)
    if called is None:
        return
    parameters = inspect.signature(called).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg not in parameters:
            raise DocumentationError(f"{ast.unparse(call.func)} has no setting '{keyword.arg}'")


def check_names(page: Path) -> None:
    """Check every name in the blocks of a page that are not run, in all its commands, and in its sentences."""
    for block in read(page):
        try:
            if block.language == "python" and block.skipped:
                check_python(block.text)
            listed = commands(block.text) if block.language == "sh" else []
            for command in [one for one, _ in shown(block)] if block.language == "console" else listed:
                check_shell(command)
        except (DocumentationError, SyntaxError) as error:
            raise block.fail(str(error)) from error
    for code in inline_code(page):
        try:
            _check_inline(code)
        except DocumentationError as error:
            raise DocumentationError(f"{page.name}: `{code}`: {error}") from error


def _check_inline(code: str) -> None:
    if re.match(r"(tokengeom|make|pip install|torchrun) ", code):
        check_shell(code.replace("...", ""))
    elif re.match(r"--[a-z]", code):
        name = re.split(r"[ =]", code)[0]
        if name not in OF_OTHERS.union(*options().values()):
            raise DocumentationError("no command has this option")
    elif code.startswith("tg."):
        try:
            check_python(code)
        except SyntaxError:
            # Part of an expression, such as a call whose arguments are left out.
            check_python(code.split("(")[0])


@cache
def make_targets() -> set[str]:
    """The targets of the Makefile."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@cache
def extras() -> set[str]:
    """The optional groups of dependencies."""
    return set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])


def broken_links(page: Path) -> list[str]:
    """Relative links of a page whose file or heading does not exist."""
    found = []
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            found.append(target)
    return found


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ +(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
