"""Mutations: seeded changes of bytes, of JSON, of arrays and tables, and of the files of a folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Generator = np.random.Generator

HOSTILE = ("\x1b[31mred\x1b[0m", "a\x07b\x9b2J", "\u202eevil", "\x00", "../../secret", "/etc/passwd", "x" * 5000, "")
"""Strings that a terminal, a path or a reader could take badly."""
_NUMBERS = (-1, 0, 1, 2**31, 2**63, 10**30, -(2**70), 1e308, float("nan"), float("inf"), -0.5)
_DEPTH = 5000
ADDED = "something was added"


def mutated_bytes(content: bytes, rng: Generator) -> bytes:
    """The content with one or a few changes."""
    for _ in range(int(rng.choice([1, 1, 1, 2, 8]))):
        content = _BYTES[int(rng.integers(len(_BYTES)))](content, rng)
    return content


def _place(content: bytes, rng: Generator) -> int:
    # Headers and footers decide most; half of the changes are there.
    n, near = len(content), int(rng.integers(4))
    if n == 0 or near > 1:
        return int(rng.integers(n + 1))
    return int(rng.integers(min(64, n) + 1)) if near == 0 else n - int(rng.integers(min(64, n) + 1))


def flipped_bit(content: bytes, rng: Generator) -> bytes:
    """One bit changed."""
    if not content:
        return content
    k, changed = min(_place(content, rng), len(content) - 1), bytearray(content)
    changed[k] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def truncated(content: bytes, rng: Generator) -> bytes:
    """Only a beginning of the content."""
    return content[: _place(content, rng)]


def _removed(content: bytes, rng: Generator) -> bytes:
    k = _place(content, rng)
    return content[:k] + content[k + int(rng.integers(1, 40)) :]


def _inserted(content: bytes, rng: Generator) -> bytes:
    k, what = _place(content, rng), int(rng.integers(4))
    new = rng.bytes(int(rng.integers(1, 40)))
    if what == 1:
        new = HOSTILE[int(rng.integers(len(HOSTILE)))].encode()
    elif what == 2:
        new = bytes(
            rng.choice([b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\0" * 9, b"\xef\xbb\xbf", b"\r\r\n", b"[" * 300])
        )
    return content[:k] + new + content[k:]


def _repeated(content: bytes, rng: Generator) -> bytes:
    k = _place(content, rng)
    return content[:k] + content[k : k + int(rng.integers(1, 200))] * 2 + content[k:]


def _overwritten(content: bytes, rng: Generator) -> bytes:
    k, value = _place(content, rng), int(rng.choice([0, 1, 127, 128, 255]))
    size = int(rng.choice([1, 2, 4, 8]))
    return content[:k] + bytes([value]) * size + content[k + size :]


_BYTES: tuple[Callable[[bytes, Generator], bytes], ...] = (
    flipped_bit,
    flipped_bit,
    truncated,
    _removed,
    _inserted,
    _repeated,
    _overwritten,
)


def mutated_json(content: bytes, rng: Generator) -> bytes:
    """JSON with one value, key or level changed; still JSON, most of the time."""
    value = json.loads(content)
    places = list(_places(value))
    if not places:
        return b"[]"
    holder, key = places[int(rng.integers(len(places)))]
    choice = int(rng.integers(8))
    if choice == 0:
        del holder[key]
    elif choice == 1 and isinstance(holder, dict):
        holder[HOSTILE[int(rng.integers(len(HOSTILE)))]] = holder.pop(key)
    elif choice == 2:
        return _nested(value, holder, key, rng)
    elif choice == 3 and isinstance(holder[key], int | float):
        holder[key] = holder[key] * float(rng.choice([-1, 2, 1e30])) + float(rng.choice([0, 1]))
    else:
        holder[key] = _other_value(rng)
    return json.dumps(value, ensure_ascii=bool(rng.integers(2))).encode("utf-8", "surrogatepass")


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else list(range(len(one))) if isinstance(one, list) else []
        # Long lists count for a few places, so that the rest is reached as well.
        for key in keys[:: max(1, len(keys) // 20)] if isinstance(one, list) else keys:
            found.append((one, key))
            waiting.append(one[key])
    return found


def _nested(value: Any, holder: Any, key: Any, rng: Generator) -> bytes:
    mark = "deep-value"
    holder[key] = mark
    left, right = (("[", "]"), ('{"a":', "}"))[int(rng.integers(2))]
    inside = left * _DEPTH + "1" + right * _DEPTH
    return json.dumps(value).replace(f'"{mark}"', inside).encode()


def _other_value(rng: Generator) -> Any:
    kind = int(rng.integers(4))
    if kind == 0:
        return HOSTILE[int(rng.integers(len(HOSTILE)))]
    if kind == 1:
        return _NUMBERS[int(rng.integers(len(_NUMBERS)))]
    plain: tuple[Any, ...] = (None, True, [], {}, [[]], {"a": 1}, ["x"], [None, 1])
    return plain[int(rng.integers(len(plain)))]


def mutated_arrays(arrays: dict[str, Any], rng: Generator) -> dict[str, Any]:
    """Named arrays with one of them changed: values, order, shape, type; or gone, or renamed."""
    changed = {name: np.array(array) for name, array in arrays.items()}
    names = sorted(changed)
    name = names[int(rng.integers(len(names)))]
    array, choice = changed.pop(name), int(rng.integers(11))
    if choice == 0:
        return changed
    if choice == 1:
        return {**changed, f"{name}x": array}
    changed[name] = _other_array(array, choice, rng)
    return changed


def _other_array(array: Any, choice: int, rng: Generator) -> Any:
    flat = array.reshape(-1).copy()
    k = int(rng.integers(max(flat.size, 1)))
    whole = np.issubdtype(array.dtype, np.integer)
    if choice == 2:
        return flat
    if choice == 3:
        return array[..., :-1].copy() if array.ndim and array.shape[-1] else np.zeros(0, array.dtype)
    if choice == 4:
        return array.astype(np.float32 if not whole else np.float64)
    if choice == 5:
        return np.zeros((0,) * max(array.ndim, 1), array.dtype)
    if choice == 6:
        return rng.permutation(flat).reshape(array.shape)
    if choice == 7:
        return np.concatenate([array, array]) if array.ndim else array
    if flat.size == 0:
        return np.ones(3, array.dtype)
    large = (
        (-1, np.iinfo(array.dtype).max, np.iinfo(array.dtype).min, 10**6) if whole else (np.nan, np.inf, -1e300, -1.0)
    )
    value = large[int(rng.integers(4))]
    flat[k if choice < 10 else slice(None)] = np.asarray(value).astype(array.dtype)
    return flat.reshape(array.shape)


def mutated_table(table: Any, rng: Generator) -> Any:
    """An Arrow table with a column dropped, renamed, emptied, retyped, repeated or shuffled."""
    import pyarrow as pa

    choice = int(rng.integers(7))
    k = int(rng.integers(table.num_columns)) if table.num_columns else 0
    if choice == 0 or table.num_columns == 0:
        return table.select([j for j in range(table.num_columns) if j != k])
    name, column = table.column_names[k], table.column(k)
    if choice == 1:
        names = [HOSTILE[int(rng.integers(3))] if j == k else one for j, one in enumerate(table.column_names)]
        return table.rename_columns(names)
    if choice == 2:
        return table.slice(0, 0)
    if choice == 3:
        return table.set_column(k, name, pa.nulls(table.num_rows, column.type))
    if choice == 4:
        return table.take(rng.permutation(table.num_rows))
    if choice == 5:
        return pa.concat_tables([table, table])
    other = pa.array([HOSTILE[0]] * table.num_rows) if choice == 6 else column
    return table.set_column(k, name, other)


def mutated_folder(folder: Path, rng: Generator) -> str:
    """Change one thing in a saved folder; returns what was done."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path, other = (files[int(rng.integers(len(files)))] for _ in range(2))
    name = path.relative_to(folder).as_posix()
    choice = int(rng.integers(12))
    if choice < 4:
        _changed(path, mutated_bytes, rng)
        return f"bytes of {name}"
    if choice < 7:
        return _structured(path, rng, name)
    if choice == 7 and path != other:
        shared = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(shared)
        return f"{name} and {other.name} swapped"
    if choice == 8:
        path.unlink()
        return f"{name} removed"
    if choice == 9:
        return _replaced(path, rng, name)
    if choice == 10:
        return _planted(folder, rng)
    return _structured(path, rng, name)


def _changed(path: Path, change: Callable[[bytes, Generator], bytes], rng: Generator) -> None:
    before = path.read_bytes()
    after = change(before, rng)
    # A change that changes nothing would be found to be harmless, rightly.
    path.write_bytes(after if after != before else flipped_bit(before, rng) if before else b"x")


def _structured(path: Path, rng: Generator, name: str) -> str:
    """A change in the terms of the file's format."""
    if path.suffix == ".json":
        _changed(path, mutated_json, rng)
    elif path.suffix == ".safetensors":
        from safetensors.numpy import load_file, save_file

        save_file(mutated_arrays(load_file(path), rng), path)
    elif path.suffix == ".parquet":
        import pyarrow.parquet as pq

        pq.write_table(mutated_table(pq.read_table(path), rng), path)
    else:
        _changed(path, mutated_bytes, rng)
    return f"content of {name}"


def _replaced(path: Path, rng: Generator, name: str) -> str:
    """Something that is not a plain file under a file's name."""
    kept = path.with_name(f".{path.name}-elsewhere")
    choice = int(rng.integers(4))
    path.rename(kept)
    if choice == 0:
        path.symlink_to(kept.name)
        return f"{name} is a link"
    kept.unlink()
    if choice == 1:
        os.mkfifo(path)
        return f"{name} is a named pipe"
    if choice == 2:
        path.mkdir()
        return f"{name} is a folder"
    path.symlink_to("/dev/zero")
    return f"{name} is a link to a device"


def _planted(folder: Path, rng: Generator) -> str:
    choice = int(rng.integers(4))
    if choice == 0:
        (folder / "notes.txt").write_text("mine")
    elif choice == 1:
        (folder / "empty").mkdir()
    elif choice == 2:
        (folder / "link").symlink_to("/etc/passwd")
    else:
        shutil.copytree(folder, folder.with_name("copy"))
        folder.with_name("copy").rename(folder / "inside")
    return ADDED
