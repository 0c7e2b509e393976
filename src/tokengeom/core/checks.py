"""Checks of what a user gives: whole numbers, embeddings, and what is read from a saved folder."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.numerics import Float, Matrix, dense

LARGEST_EMBEDDING = 1e100
"""Largest entry of embeddings, and the inverse of the smallest: their squares are finite and not 0."""
MOST_WHOLE = 2**63 - 1
"""Largest whole number that is read."""


def whole_number(name: str, value: object) -> int:
    """A whole number of any library as Python's, which never wraps around."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name} must be a whole number; got {value!r}.") from None


def check_seed(seed: int) -> None:
    """Refuse a seed below 0, which no generator takes."""
    if seed < 0:
        raise InputError(f"The seed must be a whole number of at least 0; got {seed}.")


def check_tolerance(tolerance: float | None) -> None:
    """Refuse a relative gap to reach that is not between 0 and 1; None stands for the default."""
    if tolerance is not None and not 0.0 < tolerance < 1.0:
        raise ProblemError(f"The tolerance is a relative gap between 0 and 1, such as 1e-6; got {tolerance!r}.")


def check_embeddings(given: Matrix, m: int) -> Float:
    """Embeddings as a d x m float64 array, or an error that names the shape, entry or column at fault."""
    try:
        H = dense(given)
    except (TypeError, ValueError) as cause:
        raise ProblemError(
            f"Embeddings must be a d x m array of numbers; got {type(given).__name__}: {cause}"
        ) from cause
    if H.ndim != 2 or H.shape[1] != m or H.shape[0] == 0:
        hint = " They look transposed: pass H.T." if H.ndim == 2 and H.shape[0] == m else ""
        raise ProblemError(
            f"Embeddings must have shape (d, m) with one column per context, here (d, {m}); got shape {H.shape}.{hint}"
        )
    bad = np.argwhere(~np.isfinite(H))
    if bad.size:
        i, j = bad[0]
        raise ProblemError(
            f"Embeddings must be finite; got H[{i}, {j}]={H[i, j]} (context {j}; {len(bad)} such entries in all)."
        )
    sizes = np.abs(H).max(axis=0)
    extreme = np.flatnonzero((sizes > LARGEST_EMBEDDING) | ((sizes < 1 / LARGEST_EMBEDDING) & (sizes > 0)))
    if extreme.size:
        raise ProblemError(
            f"Embeddings must have entries between {1 / LARGEST_EMBEDDING:.0e} and {LARGEST_EMBEDDING:.0e}, so that "
            f"squares can be computed; the largest of column {extreme[0]} is {sizes[extreme[0]]:.3g}. Scale them."
        )
    zero = np.flatnonzero(~H.any(axis=0))
    if zero.size:
        raise ProblemError(
            f"Every context needs a nonzero embedding, because its logits would stay 0 whatever W is; column "
            f"{zero[0]} of H is 0 ({zero.size} such columns in all). Drop the context or give it an embedding."
        )
    return H


def check_duplicates(contexts: ArrayLike, H: Float) -> None:
    """Refuse two columns of H for the same context that differ; ``contexts`` has one row per context."""
    rows = np.asarray(contexts)
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    representative = first[inverse.reshape(-1)]
    clash = np.flatnonzero(np.any(H[:, representative] != H, axis=0))
    if clash.size:
        j, i = int(clash[0]), int(representative[clash[0]])
        distance = float(np.linalg.norm(H[:, j] - H[:, i]))
        raise ProblemError(
            f"A context must have one embedding; contexts {i} and {j} are both {rows[j].tolist()} but their "
            f"embeddings are {distance:.3g} apart. Merge the two contexts, or give them the same column of H."
        )


class Entries:
    """Entries of a saved object by name; one that is not what it must be is refused, with the name of the folder.

    ``folder``
        Where the object was read from.
    ``place``
        What the object is, where it is a part of another one, such as "rows 3".
    """

    def __init__(self, content: object, folder: Path, place: str = "") -> None:
        self.folder, self.place = folder, place
        if not isinstance(content, dict):
            raise self.damaged(f"{place or 'its content'} must be an object with names; got {_shown(content)}")
        self._content = content

    def damaged(self, what: str) -> InputError:
        """The error that names the folder and what is wrong in it."""
        return InputError(f"{self.folder} is damaged: {what}. Make the result again.")

    def _refused(self, name: str, must: str) -> InputError:
        return self.damaged(f"{self._named(name)} must be {must}; got {_shown(self._content[name])}")

    def _named(self, name: str) -> str:
        return f"{self.place}, {name}" if self.place else name

    @property
    def names(self) -> list[str]:
        """Names of the entries."""
        return list(self._content)

    def only(self, *names: str) -> None:
        """Refuse entries with other names."""
        for name in self._content:
            if name not in names:
                raise self.damaged(f"{self._named(_shown(name))} is not an entry of it")

    def value(self, name: str) -> Any:
        """An entry of any type, which must be there."""
        if name not in self._content:
            raise self.damaged(f"{self._named(name)} is missing")
        return self._content[name]

    def has(self, name: str) -> bool:
        """Whether there is an entry that is not null."""
        return self.value(name) is not None

    def text(self, name: str, among: Collection[str] = ()) -> str:
        """A text, or one of some texts."""
        found = self.value(name)
        if not isinstance(found, str) or (among and found not in among):
            raise self._refused(name, f"one of {', '.join(among)}" if among else "a text")
        return found

    def digest(self, name: str) -> str:
        """A SHA-256, as 64 hexadecimal digits."""
        if re.fullmatch("[0-9a-f]{64}", self.text(name)) is None:
            raise self._refused(name, "a hash of 64 hexadecimal digits")
        return self.text(name)

    def flag(self, name: str) -> bool:
        """True or false."""
        found = self.value(name)
        if not isinstance(found, bool):
            raise self._refused(name, "true or false")
        return found

    def whole(self, name: str, least: int = 0, most: int = 2**63 - 1) -> int:
        """A whole number of 64 bits that is at least ``least`` and at most ``most``."""
        found = self.value(name)
        if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
            raise self._refused(name, f"a whole number >= {least}{f' and <= {most}' if most < 2**63 - 1 else ''}")
        return found

    def wholes(self, name: str, least: int = 0, most: int = 2**63 - 1) -> list[int]:
        """A list of whole numbers, each at least ``least`` and at most ``most``."""
        if not all(type(one) is int and least <= one <= most for one in self.sequence(name)):
            raise self._refused(name, f"a list of whole numbers in {least}..{most}")
        return self.sequence(name)

    def within(self, name: str, low: float, high: float = math.inf) -> float:
        """A finite number that is at least ``low`` and at most ``high``."""
        if not low <= self.number(name) <= high:
            raise self._refused(name, f"a number in {low:g}..{high:g}" if high < math.inf else f"a number >= {low:g}")
        return self.number(name)

    def number(self, name: str, *, finite: bool = True) -> float:
        """A number; with ``finite=False`` it may be infinite or NaN."""
        found = self.value(name)
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        if not is_number or (isinstance(found, int) and abs(found) > MOST_WHOLE):
            raise self._refused(name, "a number")
        if finite and not math.isfinite(found):
            raise self._refused(name, "a finite number")
        return float(found)

    def number_or_nan(self, name: str) -> float:
        """A finite number; NaN for null."""
        return self.number(name) if self.has(name) else math.nan

    def sequence(self, name: str) -> list[Any]:
        """A list."""
        found = self.value(name)
        if not isinstance(found, list):
            raise self._refused(name, "a list")
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        if not all(isinstance(one, str) for one in self.sequence(name)):
            raise self._refused(name, "a list of texts")
        return tuple(self.sequence(name))

    def inside(self, name: str) -> Entries:
        """An object inside this one."""
        return Entries(self.value(name), self.folder, self._named(name))

    def several(self, name: str) -> list[Entries]:
        """A list of objects."""
        return [Entries(one, self.folder, f"{self._named(name)} {k}") for k, one in enumerate(self.sequence(name))]

    def plain(self, name: str) -> dict[str, Any]:
        """An object as it is."""
        return dict(self.inside(name)._content)

    def file_name(self, name: str) -> str:
        """The name of a file or folder beside or inside the folder, without a path."""
        if not is_plain_name(self.text(name)):
            raise self._refused(name, "a plain name, without a path")
        return self.text(name)


def is_plain_name(name: str) -> bool:
    """Whether a text is the name of a file or folder, without a path."""
    return name not in ("", ".", "..") and not set(name) & {"/", "\\", "\0"}


def _shown(value: object) -> str:
    """A value as part of a sentence; control characters are escaped, and long ones cut."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
