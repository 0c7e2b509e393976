"""The contract that every result keeps: save, load, describe itself, and check itself again.

A result is a frozen dataclass that derives from `AbstractResult`. It says what its files are (``_write``), how it is
read back (``_read``), what it holds as plain data (``to_dict``), as a data frame (``to_frame``), in sentences
(``summary``) and as a short table (``_facts``); saving, loading, ``repr`` and the table in a notebook are written
here, once.

`KINDS` names every kind of result. `load` and `verify` read a folder's manifest and take the class from there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from safetensors import SafetensorError

from tokengeom.errors import InputError, TokengeomError, missing_extra
from tokengeom.folders import (
    MANIFEST,
    atomic_folder,
    changed_files,
    check_target,
    read_kind,
    read_manifest,
    write_manifest,
)

if TYPE_CHECKING:
    from pandas import DataFrame

T = TypeVar("T")

KINDS = {
    "tokengeom-statistics": "tokengeom.statistics.next_token.NextTokenStatistics",
    "tokengeom-pairs": "tokengeom.statistics.pairs.CountedPairs",
    "tokengeom-features": "tokengeom.theory.features.FeaturePrediction",
    "tokengeom-at-loss": "tokengeom.theory.at_loss.LossPrediction",
    "tokengeom-linear": "tokengeom.theory.linear.LinearPrediction",
    "tokengeom-proxy": "tokengeom.theory.proxy.ProxyPrediction",
    "tokengeom-run": "tokengeom.training.run.Run",
    "tokengeom-model": "tokengeom.page.read_model.ReadModel",
    "tokengeom-comparison": "tokengeom.geometry.comparison.Comparison",
    "tokengeom-checkpoints": "tokengeom.geometry.checkpoints.CheckpointCurve",
    "tokengeom-rivals": "tokengeom.geometry.rival_table.Rivals",
    "tokengeom-choice": "tokengeom.page.choice.Choice",
    "tokengeom-findings": "tokengeom.studies.base.Findings",
    "tokengeom-report": "tokengeom.page.report.Report",
}
"""Kind of a saved folder -> the class that reads it. Classes are imported when they are needed."""

EXPORTED = "tokengeom-export"
"""Kind of a folder of exported embeddings, which are files for other programs: its hashes are checked, nothing else."""
SAME = 1e-9
"""Relative difference within which two machines agree on the factorisation of one matrix."""


class AbstractResult(ABC):
    """What a verb returns.

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

    def checks(self) -> Mapping[str, bool]:
        """What can be recomputed from the result alone: sentence -> whether it holds. `verify` asks for it."""
        return {}

    def save(self, folder: str | Path) -> Path:
        """Write the result to a folder, which appears complete or not at all; returns the folder.

        An older result of the same kind under that name is replaced. Anything else under it is refused.
        """
        target = Path(folder)
        with atomic_folder(target, self.kind) as work:
            write_manifest(work, self.kind, self.format_version, self._write(work))
        return target

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a saved result of this kind, after comparing every file with its hash."""
        return read_saved(folder, cls.kind, cls.format_version, cls._read)

    @classmethod
    def verify(cls, folder: str | Path) -> Verification:
        """Check a saved result of this kind: files against their hashes, then everything that `checks` recomputes."""
        path = saved_folder(folder)
        unchanged = {"every file is the one that was written": not changed_files(path)}
        if not all(unchanged.values()):
            return Verification.of(unchanged)
        return Verification.of({**unchanged, **cls.load(path).checks()})

    @classmethod
    def require_target(cls, folder: str | Path) -> None:
        """Refuse a folder that `save` would refuse, before the work instead of after it."""
        check_target(Path(folder), cls.kind)

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in list(self._facts())[:5])
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str:
        return html_table(self.title, self._facts(), self.summary().splitlines())


def load(folder: str | Path) -> AbstractResult:
    """Read any saved result: statistics, counted pairs, predictions, runs, comparisons, rivals, findings, reports.

    Its class is the one that made it, so that ``tg.load("run")`` is a `Run`.
    """
    path = saved_folder(folder)
    return result_class(read_kind(path)).load(path)


def saved_folder(folder: str | Path) -> Path:
    """The folder that holds the result: the given one, or the newest snapshot ``step-*`` of a run inside it."""
    if not isinstance(folder, str | Path):
        raise InputError(f"The path of a saved folder is needed; got {type(folder).__name__}. Save the result first.")
    path = Path(folder)
    if (path / MANIFEST).is_file():
        return path
    return max(path.glob(f"step-*/{MANIFEST}"), default=path / MANIFEST).parent


def read_saved(folder: str | Path, kind: str, newest: int, read: Callable[[Path, dict[str, Any]], T]) -> T:
    """What ``read(folder, manifest)`` makes of a saved folder, after every file was compared with its hash.

    ``newest`` is the newest version of the format that can be read.
    """
    path = saved_folder(folder)
    manifest = read_manifest(path, kind, newest)
    require_unchanged(path)
    try:
        return read(path, manifest)
    except TokengeomError:
        raise
    # Parts of a manifest that was edited together with its hashes, or written by other software.
    except (OSError, KeyError, TypeError, ValueError, IndexError, AttributeError, SafetensorError) as error:
        raise InputError(f"{path} is damaged: {error!r}. Make the result again.") from error


def result_class(kind: str) -> type[AbstractResult]:
    """The class of a kind of saved folder."""
    if kind not in KINDS:
        raise InputError(
            f"There is no kind of result called '{kind}'; tokengeom knows {', '.join(sorted(KINDS))}. Likely it was "
            "saved by a newer version or by other software."
        )
    module, _, name = KINDS[kind].rpartition(".")
    found: type[AbstractResult] = getattr(import_module(module), name)
    return found


def require_unchanged(folder: Path) -> None:
    """Refuse a folder whose files are not the ones that were saved, before any of them is interpreted."""
    changed = changed_files(folder)
    if changed:
        raise InputError(
            f"{folder} is damaged: {changed[0]} is missing, was changed or was added after it was saved"
            f"{f' ({len(changed)} such files)' if len(changed) > 1 else ''}. Restore it, or make the result again."
        )


@dataclass(frozen=True)
class Verification:
    """What was checked and what failed, each in a sentence; true when nothing failed."""

    checked: tuple[str, ...]
    failed: tuple[str, ...]

    @staticmethod
    def of(checks: Mapping[str, bool]) -> Verification:
        """From sentences and whether each holds."""
        return Verification(tuple(checks), tuple(sentence for sentence, holds in checks.items() if not holds))

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return not self.failed

    def __bool__(self) -> bool:
        return self.ok

    def under(self, name: str) -> dict[str, bool]:
        """The same checks with the name of what they are about before each sentence."""
        return {f"{name}: {sentence}": sentence not in self.failed for sentence in self.checked}


def verify(folder: str | Path) -> Verification:
    """Check a saved result of any kind, or every result in a folder, without solving or training again.

    Every file is compared with its hash; then what the result proves is computed again from its arrays.
    """
    path = saved_folder(folder)
    if (path / MANIFEST).is_file():
        if read_kind(path) == EXPORTED:
            return Verification.of({"every file is the one that was written": not changed_files(path)})
        return result_class(read_kind(path)).verify(path)
    inside = sorted(found.parent for found in path.glob(f"*/{MANIFEST}")) if path.is_dir() else []
    if not inside:
        if not path.exists():
            raise InputError(f"{folder} does not exist. Check the path.")
        raise InputError(f"{folder} contains no saved result: neither it nor a folder inside it has a {MANIFEST}.")
    checks: dict[str, bool] = {}
    for one in inside:
        checks |= verify(one).under(one.name)
    return Verification.of(checks)


def data_frame(content: Any, **settings: Any) -> DataFrame:
    """A pandas data frame; where pandas is not installed, an error that names the extra."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        missing_extra("pandas", "pandas", "A data frame (to_dict needs nothing)")
    return pd.DataFrame(content, **settings)


def close(a: float, b: float) -> bool:
    """Whether two numbers agree as far as two machines do; equal infinities agree."""
    return a == b or abs(a - b) <= SAME * max(abs(a), abs(b), 1.0)


_TABLE = "border-collapse:collapse;color:inherit;background:transparent;margin:0.3em 0"
_CELL = "text-align:left;padding:0.1em 1em 0.1em 0;vertical-align:top;background:transparent;color:inherit"


def html_table(
    title: str, rows: Iterable[Sequence[object]], sentences: Iterable[str] = (), columns: Sequence[str] = ()
) -> str:
    """A table for a notebook: a title, rows with their names first, and sentences below; every text is escaped.

    ``columns``
        Names of the columns, where rows have more than a name and a value.
    """
    head = f"<thead><tr>{''.join(_cell('th', name) for name in columns)}</tr></thead>" if columns else ""
    body = "".join(f"<tr>{_cell('th', name)}{''.join(_cell('td', one) for one in cells)}</tr>" for name, *cells in rows)
    below = "".join(f'<p style="margin:0.2em 0">{escape(sentence)}</p>' for sentence in sentences)
    table = f'<table style="{_TABLE}">{head}<tbody>{body}</tbody></table>'
    return f'<div style="color:inherit"><strong>{escape(title)}</strong>{table}{below}</div>'


def _cell(tag: str, content: object) -> str:
    return f'<{tag} style="{_CELL}">{escape(str(content))}</{tag}>'
