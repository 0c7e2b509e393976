"""The contract that every result keeps: save, load, describe itself.

A result is a frozen dataclass that derives from `AbstractResult`. It says what its files are (``_write``), how it is
read back (``_read``), what it holds as plain data (``to_dict``), as a data frame (``to_frame``), in sentences
(``summary``) and as a short table (``_facts``); saving, loading, ``repr`` and the table in a notebook are written
here, once.

`tokengeom.results.registry` names every kind of result.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from weakref import WeakKeyDictionary

from tokengeom.core.errors import InputError, TokengeomError, missing_extra
from tokengeom.core.settings import takes
from tokengeom.results.convert import damaged, read_json_as, to_plain, write_json
from tokengeom.results.folders import atomic_folder, check_target, sweep
from tokengeom.results.manifests import MANIFEST, SEAL, changed_files, read_json, read_manifest, write_manifest

if TYPE_CHECKING:
    from pandas import DataFrame

T = TypeVar("T")
R = TypeVar("R", bound="AbstractResult")

SNAPSHOTS = "step-" + 12 * "[0-9]"
"""Names of the snapshots inside the folder of a run, as a pattern."""
SAME = 1e-9
"""Relative difference within which two machines agree on the factorisation of one matrix."""


class NearbyResults:
    """Saved results that lie in the same folder as a result, or were named: what its checks compare it with.

    A folder of results, such as ``stats``, ``prediction`` and ``run`` side by side, is searched by what manifests say;
    a result is loaded, with its hashes compared, when a check asks for it. A damaged one counts as not there.
    """

    def __init__(self, folder: Path | None = None, named: Sequence[str | Path] = ()) -> None:
        inside = [] if folder is None else sorted(folder.absolute().parent.glob("*/"))
        self._places = [*map(Path, named), *(path for path in inside if not path.name.startswith("."))]
        self._loaded: dict[Path, AbstractResult] = {}

    @cached_property
    def _manifests(self) -> list[tuple[Path, dict[str, Any]]]:
        manifests = []
        for place in self._places:
            with suppress(InputError, OSError):
                path = saved_folder(place)
                manifests.append((path, read_json(path / MANIFEST)))
        return manifests

    def find(self, kind: type[R], **entries: str | None) -> R | None:
        """The result of this kind whose manifest has these entries, such as ``seal``; None where there is none."""
        for path, manifest in self._manifests:
            wanted = {"format": kind.kind, **entries}
            if all(value is not None and manifest.get(name) == value for name, value in wanted.items()):
                with suppress(TokengeomError):
                    result = self._loaded.get(path) or self._loaded.setdefault(path, kind.load(path))
                    assert isinstance(result, kind), "its manifest says so"
                    return result
        return None


ALONE = NearbyResults()
"""Nothing beside a result: its checks are those of the result alone."""


class AbstractResult(ABC):
    """What `count`, `predict`, `train` and the other verbs return: it can be saved, loaded, checked and displayed.

    ``kind``, ``format_version``
        Name and version of the saved folder's format, as its manifest states them.
    ``title``
        Name of the result above its table in a notebook.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    format_version: ClassVar[int] = 1

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The result without its arrays, as plain data: numbers, strings, lists and dictionaries."""

    @abstractmethod
    def to_frame(self) -> DataFrame:
        """The result's main table as a pandas data frame, with the names of tokens and contexts where it has them."""

    @abstractmethod
    def summary(self) -> str:
        """The result in plain sentences, one per line."""

    @abstractmethod
    def _facts(self) -> Sequence[tuple[str, str]]:
        """Name and value of what a reader wants to see first; the first few are the ``repr``."""

    @abstractmethod
    def _write(self, folder: Path) -> dict[str, Any]:
        """Write every file but the manifest into an empty folder, and return what the manifest adds to its hashes."""

    @classmethod
    @abstractmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        """Read what `_write` wrote; `load` has compared every file with its hash."""

    @takes()
    def save(self, folder: str | Path) -> Path:
        """Write the result to a folder, which appears complete or not at all; returns the folder.

        An older result of the same kind under that name is replaced. Anything else under it is refused.
        """
        target = Path(folder)
        with atomic_folder(target, self.kind) as work:
            seal = write_manifest(work, self.kind, self.format_version, self._write(work))
        _SEALS[self] = seal
        return target

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a saved result of this kind, after comparing every file with its hash."""
        return read_saved(folder, cls.kind, cls.format_version, cls._read)

    @classmethod
    def require_target(cls, folder: str | Path) -> None:
        """Refuse a folder that `save` would refuse, before the work instead of after it."""
        check_target(Path(folder), cls.kind)

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in list(self._facts())[:5])
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str:
        return html_table(self.title, self._facts(), self.summary().splitlines())


class AbstractJsonResult(AbstractResult):
    """A result that is one JSON file, of which the manifest repeats some entries.

    ``file``, ``repeated``  Name of the file, and the entries.
    """

    file: ClassVar[str]
    repeated: ClassVar[tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        """Everything that is saved, as valid JSON: NaN is null."""
        return dict(to_plain(self))

    def _repeated(self) -> dict[str, Any]:
        return {name: to_plain(getattr(self, name)) for name in self.repeated}

    def _write(self, folder: Path) -> dict[str, Any]:
        write_json(folder / self.file, self)
        return self._repeated()

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        result = read_json_as(cls, folder / cls.file)
        for name, value in result._repeated().items():
            if name not in manifest or value != manifest[name]:
                raise damaged(folder, f"{name} is not the same in {cls.file} and in the manifest")
        return result


def saved_folder(folder: str | Path) -> Path:
    """The folder that holds the result: the given one, or the newest snapshot of a run inside it."""
    if not isinstance(folder, str | Path):
        raise InputError(f"The path of a saved folder is needed; got {type(folder).__name__}. Save the result first.")
    path = Path(folder)
    if (path / MANIFEST).is_file():
        return path
    if not path.exists() and path.parent.is_dir():
        # A kill between two renames can have left the result under another name.
        sweep(path.parent)
    snapshots = [one for one in path.glob(SNAPSHOTS) if one.is_dir()]
    # One that may not be entered counts: reading it then says so.
    return max((one for one in snapshots if not os.access(one, os.X_OK) or (one / MANIFEST).exists()), default=path)


def read_saved(folder: str | Path, kind: str, newest: int, read: Callable[[Path, dict[str, Any]], T]) -> T:
    """What ``read(folder, manifest)`` makes of a saved folder, after every file was compared with its hash.

    ``newest`` is the newest version of the format that can be read.
    """
    path = saved_folder(folder)
    manifest = read_manifest(path, kind, newest)
    require_unchanged(path)
    try:
        result = read(path, manifest)
    except (InputError, ImportError):
        raise
    # Files and manifests that were edited together with their hashes, or written by other software, fail in the
    # library that reads them, each in its own way.
    except Exception as error:
        raise InputError(f"{path} is damaged: {_first_line(error)}. Make the result again.") from error
    if isinstance(result, AbstractResult):
        _SEALS[result] = str(manifest[SEAL])
    return result


def _first_line(error: Exception) -> str:
    """Type and message of an error, as part of a sentence."""
    text = str(error).strip().splitlines()[:1]
    return f"{type(error).__name__}: {text[0].rstrip('.')}" if text else type(error).__name__


def require_unchanged(folder: Path) -> None:
    """Refuse a folder whose files are not the ones that were saved, before any of them is interpreted."""
    changed = changed_files(folder)
    if changed:
        raise InputError(
            f"{folder} is damaged: {changed[0]} is missing, was changed or was added after it was saved"
            f"{f' ({len(changed)} such files)' if len(changed) > 1 else ''}. Restore it, or make the result again."
        )


def saved_hash(result: object) -> str | None:
    """Hash of a result that was saved or loaded: the seal of its manifest. None for one that was only computed."""
    return _SEALS.get(result)


def carry_hash(result: T, saved: AbstractResult) -> T:
    """The first result with the hash of a saved one, of which it is a part, or to which it adds names alone."""
    if (seal := saved_hash(saved)) is not None:
        _SEALS[result] = seal
    return result


_SEALS: WeakKeyDictionary[object, str] = WeakKeyDictionary()


def data_frame(content: Any, **settings: Any) -> DataFrame:
    """A pandas data frame; where pandas is not installed, an error that names the extra."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        missing_extra("pandas", "pandas", "A data frame (to_dict needs nothing)")
    return pd.DataFrame(content, **settings)


_TABLE = "border-collapse:collapse;color:inherit;background:transparent;margin:0.3em 0"
_CELL = "text-align:left;padding:0.1em 1em 0.1em 0;vertical-align:top;background:transparent;color:inherit"


def html_table(
    title: str, rows: Iterable[Sequence[object]], sentences: Iterable[str] = (), columns: Sequence[str] = ()
) -> str:
    """A table for a notebook: a title, rows with their names first, and sentences below; every text is escaped.

    ``columns``  Names of the columns, where rows have more than a name and a value.
    """
    head = f"<thead><tr>{''.join(_cell('th', name) for name in columns)}</tr></thead>" if columns else ""
    body = "".join(
        f"<tr>{_cell('th', name)}{''.join(_cell('td', text) for text in cells)}</tr>" for name, *cells in rows
    )
    below = "".join(f'<p style="margin:0.2em 0">{escape(sentence)}</p>' for sentence in sentences)
    table = f'<table style="{_TABLE}">{head}<tbody>{body}</tbody></table>'
    return f'<div style="color:inherit"><strong>{escape(title)}</strong>{table}{below}</div>'


def _cell(tag: str, content: object) -> str:
    return f'<{tag} style="{_CELL}">{escape(str(content))}</{tag}>'
