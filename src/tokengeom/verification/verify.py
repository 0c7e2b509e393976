"""The verb `verify`: check a saved result of any kind again, without training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokengeom.core.errors import InputError
from tokengeom.results.contract import NearbyResults, saved_folder, under
from tokengeom.results.manifests import MANIFEST, read_seal
from tokengeom.verification.checks import check_folder


@dataclass(frozen=True)
class Verification:
    """What was checked, what failed and what was not checked, each in a sentence; true when nothing failed.

    ``checked``, ``failed``, ``not_checked``
        Sentences: what was checked, those of them that do not hold, and what was not checked, with the reason.
    ``hash``
        The seal of the result's manifest, which stands for every file.
    ``expected``
        Whether the hash was compared with one that was kept elsewhere.
    """

    checked: tuple[str, ...]
    failed: tuple[str, ...]
    not_checked: tuple[str, ...] = ()
    hash: str = ""
    expected: bool = False

    @staticmethod
    def of(checks: Mapping[str, bool | None], seal: str = "", *, expected: bool = False) -> Verification:
        """From sentences and whether each holds; None means not checked."""
        checked = tuple(sentence for sentence, holds in checks.items() if holds is not None)
        # A truth value of NumPy is not the object False.
        failed = tuple(sentence for sentence in checked if not checks[sentence])
        not_checked = tuple(sentence for sentence, holds in checks.items() if holds is None)
        return Verification(checked, failed, not_checked, seal, expected)

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return not self.failed

    def __bool__(self) -> bool:
        return self.ok

    def summary(self) -> str:
        """The outcome in one or two sentences."""
        made, left = len(self.checked), len(self.not_checked)
        counted = (
            f"{made} check{'' if made == 1 else 's'}, {len(self.failed)} failed; "
            f"{left} claim{'' if left == 1 else 's'} not checked."
        )
        if not self.ok:
            return counted
        if self.expected:
            return f"{counted} The result is untouched: its hash is the expected one."
        return (
            f"{counted} The result is consistent. Consistent hashes can be forged: to know that it is the result that "
            "was made, give --expect HASH, the hash that was printed then."
        )


def verify(folder: str | Path, *, expect: str | None = None, beside: Sequence[str | Path] = ()) -> Verification:
    """Check a saved result of any kind, or every result in a folder, without training again.

    Every file is compared with its hash; then what the result claims is computed again, from its own arrays and from
    the saved results in the same folder. A comparison is made again: that takes as long as it took, without the
    predictions that were saved. What cannot be computed again is listed in ``not_checked``.

    Parameters
    ----------
    folder
        A saved result, or a folder that contains several.
    expect
        Hash that was printed when the result was made. Whoever changes a result can also write new hashes into it;
        only a hash that was kept elsewhere shows that.
    beside
        Folders of further saved results to compare with, such as the statistics of a prediction.
    """
    path = saved_folder(folder)
    if not (path / MANIFEST).is_file():
        return _verify_each(Path(folder), expect, beside)
    checks: dict[str, bool | None] = {}
    if expect is not None:
        checks["the result's hash is the expected one"] = read_seal(path) == expect.strip().lower()
    checks |= check_folder(path, NearbyResults(Path(folder), beside))
    return Verification.of(checks, read_seal(path), expected=expect is not None)


def _verify_each(folder: Path, expect: str | None, beside: Sequence[str | Path]) -> Verification:
    """Verify every result in a folder that is not a result itself."""
    inside = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}")) if folder.is_dir() else []
    if not inside:
        if not folder.exists():
            raise InputError(f"{folder} does not exist. Check the path.")
        raise InputError(f"{folder} contains no saved result: neither it nor a folder inside it has a {MANIFEST}.")
    if expect is not None:
        raise InputError(f"A hash belongs to one result; {folder} holds {len(inside)}. Verify one of them.")
    checks: dict[str, bool | None] = {}
    for result in inside:
        checks |= under(result.name, check_folder(result, NearbyResults(result, beside)))
    return Verification.of(checks)
