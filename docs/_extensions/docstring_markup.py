"""Docstrings as pages of the reference.

The docstrings of the package are plain text that is read in a terminal too. Before Sphinx reads one,

* sections such as ``Parameters`` and ``Settings`` become lists in which each name has its type and default, from the
  signature,
* the fields of a class, in a list of ``names`` or after ``where``, become attributes that can be linked to, with types,
* citations such as ``[zhao2024, Thm 2]`` become links to the bibliography.

Signatures are shown without types, which stand in the lists; the constructor of a result is not shown at all, since
functions make results. What every result has is documented once, in `tokengeom.AbstractResult`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.util.inspect import stringify_signature
from sphinx.util.typing import stringify_annotation

from tokengeom.results.contract import AbstractResult

REFERENCE = Path(__file__).parents[1] / "api.md"
CITATION = re.compile(r"(?<!`)\[([a-z]+(?:19|20)\d\d)(?:,\s([^\]\[]+))?\]")
SECTIONS = ("Parameters", "Settings", "Returns", "Raises")
NAMES = re.compile(r"``\w+``(, ``\w+``)*")
SYMBOL = re.compile(r"( *)(\S.*?) {2,}(\S.*)")
TABLE_ROW = re.compile(r"`{1,2}[\w, ]+`{1,2} {2,}\S")
WORD = re.compile(r"[A-Za-z_][\w.]*")
TYPES = {
    "ArrayLike": "array",
    "Bool": "array",
    "Float": "array",
    "Int": "array",
    "Matrix": "array",
    "NDArray": "array",
    "CountedItems": "NextTokenStatistics",
    "HasFactors": "object with W and H",
    "Observed": "object with W and H | tuple",
    "csc_array": "sparse array",
    "sparse.csc_array": "sparse array",
}
"""Types by the words that a reader wants; the text says what arrays contain."""
OF_EVERY_RESULT = {"kind", "title", "format_version", "checks", "check_saved", "require_target", "save", "load"}
"""Members of results that are documented once."""
SAID_ONCE = {"to_dict", "summary"}
"""Members that every result has in its own form, where the sentence of the base class says enough."""
CONSTRUCTED = {"Check", "Factors", "Findings"}
"""Dataclasses outside of `tokengeom.figures.base` that a user may construct."""


@dataclass
class Entry:
    """Names with one text: parameters, fields or symbols."""

    names: list[str]
    text: list[str]


def rewrite(app: Sphinx, what: str, name: str, thing: Any, options: object, lines: list[str]) -> None:
    """Rewrite one docstring, in place."""
    found: list[str] = []
    known: set[str] = set()
    for block in _blocks(lines):
        if isinstance(block, str):
            found.append(block)
        else:
            # A setting that is also a positional parameter is described there.
            entries = [one for one in block[1] if not known.issuperset(one.names)]
            found += _rendered(what, thing, block[0], entries)
            known.update(name for one in entries for name in one.names)
    if what == "class":
        found += _fields_with_help(thing) + _pointer(thing)
    lines[:] = CITATION.sub(_cited, "\n".join(found)).split("\n")


def _cited(citation: re.Match[str]) -> str:
    """A link to the bibliography, with what follows the key, such as the number of a theorem."""
    detail = f"{{{' '.join(citation[2].split())}}}" if citation[2] else ""
    # A list of modules shows first sentences, which would end after "Fig.".
    return f":cite:p:`{citation[1]}{detail.replace('Fig. ', 'Figure ')}`"


def _blocks(lines: Sequence[str]) -> Iterator[str | tuple[str, list[Entry]]]:
    """A docstring as plain lines and lists: (kind of the list, its entries)."""
    place = 0
    while place < len(lines):
        line = lines[place]
        below = lines[place + 1] if place + 1 < len(lines) else ""
        if line in SECTIONS and set(below) == {"-"}:
            entries, place = _named(lines, place + 2, lambda text: bool(text) and not text.startswith(" "))
            yield line, entries
        elif NAMES.fullmatch(line) and below.startswith("    "):
            entries, place = _named(lines, place, lambda text: NAMES.fullmatch(text) is not None)
            yield "names", entries
        elif line == "where" and SYMBOL.fullmatch(below):
            entries, place = _symbols(lines, place + 1)
            yield "where", entries
        elif TABLE_ROW.match(line):
            entries, place = _symbols(lines, place)
            yield "table", entries
        else:
            yield line
            place += 1


def _named(lines: Sequence[str], place: int, is_head: Callable[[str], bool]) -> tuple[list[Entry], int]:
    """Entries whose names are on a line of their own, with the text indented below; and the place after them."""
    entries: list[Entry] = []
    while place < len(lines) and is_head(lines[place]):
        if lines[place] in SECTIONS:
            break
        entries.append(Entry(lines[place].replace("`", "").split(", "), []))
        place += 1
        while place < len(lines) and (not lines[place] or lines[place].startswith("    ")):
            entries[-1].text.append(lines[place].removeprefix("    "))
            place += 1
    return entries, place


def _symbols(lines: Sequence[str], place: int) -> tuple[list[Entry], int]:
    """Entries of a list of symbols, each with its meaning beside it, which may continue below; and the place after."""
    entries: list[Entry] = []
    first = SYMBOL.fullmatch(lines[place])
    assert first is not None
    indent = first[1]
    while place < len(lines) and lines[place].strip() and lines[place].startswith(indent):
        found = SYMBOL.fullmatch(lines[place])
        if found is not None and found[1] == indent:
            entries.append(Entry([found[2]] if "`" in found[2] else found[2].split(", "), [found[3]]))
        else:
            entries[-1].text.append(lines[place].strip())
        place += 1
    return entries, place


def _rendered(what: str, thing: Any, kind: str, entries: list[Entry]) -> list[str]:
    if what == "class" and kind in ("names", "where"):
        return _attributes(thing, entries)
    if kind in ("where", "table"):
        terms = [(", ".join(_marked(name) for name in one.names), one.text) for one in entries]
        return [*(["where", ""] if kind == "where" else []), *_definitions(terms)]
    described = _parameters(what, thing)
    texts = [[_escaped(line) for line in one.text] for one in entries]
    heads = [", ".join(f"**{name}**" for name in one.names) + _described(one.names, described) for one in entries]
    terms = list(zip(heads, texts, strict=True))
    title = "Parameters" if kind == "names" else kind
    return ["", f":{title}:", *(f"    {line}" for line in _definitions(terms)), ""]


def _marked(symbol: str) -> str:
    return symbol if "`" in symbol else f"``{symbol}``"


def _described(names: Sequence[str], described: dict[str, str]) -> str:
    """Type and default behind names; of several names, where these are the same."""
    found = {described.get(name, "") for name in names}
    return f" : {found.pop()}" if len(found) == 1 and "" not in found else ""


def _definitions(terms: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """A definition list."""
    return [line for term, text in terms for line in (term, *(f"    {part}" if part else "" for part in text), "")]


def _attributes(thing: type[Any], entries: Sequence[Entry]) -> list[str]:
    """The fields of a class as attributes; a text that several share stands below the last of them."""
    found: list[str] = [""]
    for entry in entries:
        # A property has its own entry below.
        own = [name for name in entry.names if not isinstance(inspect.getattr_static(thing, name, None), property)]
        for name in own:
            found += [f".. py:attribute:: {name}", *_type_option(thing, name), ""]
        found += [f"   {line}" for line in _sentence(entry.text)] + [""] if own else []
    return found


def _type_option(thing: type[Any], name: str) -> list[str]:
    notes = (vars(base).get("__annotations__", {}) for base in thing.__mro__)
    found = next((one[name] for one in notes if name in one), None)
    return [] if found is None else [f"   :type: {plain_type(found, thing)}"]


def _sentence(text: Sequence[str]) -> list[str]:
    """A text that begins with a capital and ends with a full stop; a symbol at its beginning is left alone."""
    lines = "\n".join(text).rstrip().split("\n")
    if re.match(r"[a-z]{2,}[ ,.;:]", lines[0] + " "):
        lines[0] = lines[0][0].upper() + lines[0][1:]
    return [*lines[:-1], lines[-1] if lines[-1].endswith((".", "::")) or not lines[-1] else f"{lines[-1]}."]


def _fields_with_help(thing: type[Any]) -> list[str]:
    """The fields of a dataclass of settings, whose documentation is in their metadata."""
    if not dataclasses.is_dataclass(thing):
        return []
    fields = [one for one in dataclasses.fields(thing) if one.metadata.get("help")]
    terms = []
    for one in fields:
        terms.append((f"**{one.name}** : {_typed(one.type, one.default, thing)}", [_escaped(one.metadata["help"])]))
    return ["", ":Settings:", *(f"    {line}" for line in _definitions(terms)), ""] if terms else []


def _escaped(line: str) -> str:
    """A line of plain text in which nothing is a substitution."""
    return re.sub(r"\|(\w+)\|", r"\\|\1\\|", line)


def _pointer(thing: type[Any]) -> list[str]:
    """Where to read about the members that every result has."""
    if not issubclass(thing, AbstractResult) or thing is AbstractResult:
        return []
    base = "tokengeom.AbstractResult"
    members = ", ".join(f":py:meth:`~{base}.{one}`" for one in ("save", "load", *sorted(SAID_ONCE)))
    return ["", f"Like every result, it has {members} and the other members of :py:class:`~{base}`.", ""]


def _parameters(what: str, thing: Any) -> dict[str, str]:
    """Type and default of each parameter of a function, a method or a constructor."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return {}
    return {one.name: _typed(one.annotation, one.default, thing) for one in signature.parameters.values()}


def _typed(annotation: Any, default: Any, thing: Any) -> str:
    parts = [] if annotation is inspect.Parameter.empty else [_linked(plain_type(annotation, thing))]
    has_default = default is not inspect.Parameter.empty and default is not dataclasses.MISSING
    return ", ".join([*parts, *([f"default {_shown(default)}"] if has_default else [])])


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def plain_type(annotation: Any, thing: Any) -> str:
    """A type as a reader wants it: names of arrays are short, and names of choices are the choices."""
    text = annotation if isinstance(annotation, str) else stringify_annotation(annotation, "smart", short_literals=True)
    module = sys.modules.get(getattr(thing, "__module__", ""))
    text = re.sub(r"ClassVar\[(.*)\]", r"\1", text)
    text = re.sub(r"NDArray\[[^\]]*\]", "NDArray", text)
    text = re.sub(r"Literal\[([^\]]*)\]", lambda found: found[1].replace(", ", " | ").replace("'", '"'), text)
    return WORD.sub(lambda word: TYPES.get(word[0]) or _choices(word[0], module) or word[0].rpartition(".")[2], text)


def _choices(name: str, module: object) -> str:
    """The choices behind the name of a Literal, in the module itself or in another one of the package."""
    if not name[0].isupper():
        return ""
    own = getattr(module, name, None)
    found = own if get_origin(own) is Literal else _literals(len(sys.modules)).get(name)
    return " | ".join(_shown(choice) for choice in get_args(found))


@cache
def _literals(loaded: int) -> dict[str, Any]:
    """Names of choices in all modules of the package that are loaded; of two with one name the first by its module."""
    ours = sorted((key, one) for key, one in sys.modules.items() if key.startswith("tokengeom."))
    return {
        name: value for _, one in reversed(ours) for name, value in vars(one).items() if get_origin(value) is Literal
    }


def _linked(text: str) -> str:
    """A type with links to the classes of the reference."""
    return WORD.sub(lambda word: f":py:class:`{word[0]}`" if word[0] in documented_classes() else word[0], text)


@cache
def documented() -> list[str]:
    """Names that the reference lists, each of which has a page."""
    return re.findall(r"^   ~?(tokengeom\.\S+)$", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)


@cache
def documented_classes() -> dict[str, str]:
    """Classes of the reference by their last name."""
    return {one.rpartition(".")[2]: one for one in documented() if one.rpartition(".")[2][0].isupper()}


def find_class(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.TextElement
) -> nodes.Element | None:
    """Link a class that is named without its module, or by the module that defines it, to its page."""
    name, _, member = node["reftarget"].removeprefix("tokengeom.").partition(".")
    place = documented_classes().get(name) or documented_classes().get(node["reftarget"].rpartition(".")[2])
    if node.get("refdomain") != "py" or place is None:
        return None
    target = f"{place}.{member}" if name in documented_classes() and member else place
    domain = env.domains.python_domain
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, shown)


def show_signature(
    app: Sphinx, what: str, name: str, thing: Any, options: object, arguments: str | None, returned: str | None
) -> tuple[str, str | None] | None:
    """The signature without types, except for what is returned; none for a class that users do not construct."""
    if what == "class" and _is_made_by_functions(thing):
        return "", None
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return None
    settings = _settings_of(thing)
    own = [
        one
        for one in signature.parameters.values()
        if one.name not in ("self", "cls") and not (one.name in settings and one.kind is one.KEYWORD_ONLY)
    ]
    if settings:
        own.append(inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD))
    note = signature.return_annotation
    returns = None if what == "class" or note in (inspect.Signature.empty, "None", None) else plain_type(note, thing)
    if returns == "Self":
        returns = name.split(".")[-2]
    bare = [one.replace(annotation=one.empty, default=_named_default(one.default)) for one in own]
    return stringify_signature(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)), returns


def _named_default(default: Any) -> Any:
    """A default as a signature shows it: an object without a readable form is left out."""
    return ... if repr(default).startswith("<") and default is not inspect.Parameter.empty else default


def _settings_of(thing: Any) -> set[str]:
    """Parameters that are listed as settings, with their defaults: a signature need not repeat them."""
    lines = inspect.cleandoc(getattr(thing, "__doc__", None) or "").split("\n")
    lists = (block for block in _blocks(lines) if not isinstance(block, str))
    return {name for kind, entries in lists if kind == "Settings" for entry in entries for name in entry.names}


def _is_made_by_functions(thing: type[Any]) -> bool:
    """Whether users get a class without constructing it: a result, or a dataclass that is not made of settings."""
    if thing.__name__ in CONSTRUCTED or thing.__module__ == "tokengeom.figures.base":
        return False
    if issubclass(thing, AbstractResult):
        return True
    return dataclasses.is_dataclass(thing) and not any(one.metadata.get("help") for one in dataclasses.fields(thing))


def skip_member(app: Sphinx, what: str, name: str, member: object, skip: bool, options: object) -> bool | None:
    """Leave out what every result has: it is documented once."""
    place = getattr(member, "__qualname__", "")
    function = getattr(member, "__func__", member)
    owner = getattr(sys.modules.get(getattr(function, "__module__", "")), place.partition(".")[0], None)
    is_result = isinstance(owner, type) and issubclass(owner, AbstractResult) and owner is not AbstractResult
    if name in OF_EVERY_RESULT | SAID_ONCE and (is_result or not callable(function)):
        return True
    return None


def remove_old_pages(app: Sphinx) -> None:
    """Remove pages of names that the reference no longer lists."""
    for page in (Path(app.srcdir) / "generated").glob("*.rst"):
        if page.stem not in documented():
            page.unlink()


def use_short_types(app: Sphinx, config: Config) -> None:
    """Show short names of arrays for properties too."""
    config.autodoc_type_aliases = {name: "array" for name, short in TYPES.items() if short.endswith("array")}


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to every docstring, before other extensions read it."""
    app.connect("config-inited", use_short_types)
    app.connect("builder-inited", remove_old_pages, priority=100)
    app.connect("autodoc-process-docstring", rewrite, priority=400)
    app.connect("autodoc-process-signature", show_signature)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("missing-reference", find_class)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
