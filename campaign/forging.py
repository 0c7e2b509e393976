"""How a forger works: numbers, arrays and sentences are changed in a saved folder, then every hash is made anew.

In a report the page is rendered again from the forged results, so that only the claims themselves can be wrong.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from campaign.forks import Fork, Place
from campaign.material import Material
from campaign.saved import MANIFEST, rehash
from campaign.tries import DECLARED, NOTICED, Try, excerpt

Edit = Callable[[Path], object]
REFUSED = "refused"


@dataclass(frozen=True)
class Forgery:
    """One forged claim.

    where
        name       what is forged
        result     name of the saved result that is forged and verified
        edit       called with the folder
        covered    part of the sentence in `not_checked` that covers it; None where `verify` must find it
        beside     names of genuine results in the same folder
        stage      stage of a report that is forged; empty for the result itself
    """

    name: str
    result: str
    edit: Edit
    covered: str | None = None
    beside: tuple[str, ...] = ()
    stage: str = ""


# Edits


def number(value: Any) -> Any:
    """Another value that a reader would believe: a little larger; a sentence that says the opposite."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        # More than the difference that verify allows where it has to solve again.
        return value * 1.05 + 0.01
    if isinstance(value, str):
        return f"{value} This was confirmed."
    if isinstance(value, list):
        return [*(number(one) for one in value[:1]), *value[1:]] if value else ["Nothing is missing."]
    if isinstance(value, dict):
        return {key: number(one) if k == 0 else one for k, (key, one) in enumerate(value.items())}
    return 0.5


def in_json(file: str, *keys: str | int, change: Callable[[Any], Any] = number) -> Edit:
    """An edit of one value of a JSON file; a value of the same name in the manifest gets the same."""

    def edit(folder: Path) -> None:
        content = json.loads((folder / file).read_bytes())
        holder = content
        for key in keys[:-1]:
            holder = holder[key]
        holder[keys[-1]] = change(holder[keys[-1]])
        (folder / file).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        manifest = json.loads((folder / MANIFEST).read_bytes())
        if file != MANIFEST and len(keys) == 1 and keys[0] in manifest:
            in_json(MANIFEST, *keys, change=lambda _: holder[keys[-1]])(folder)

    return edit


def leaves(value: Any, keys: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The place of every value in plain data; of a list, that of its first and last entry."""
    if isinstance(value, dict) and value:
        for name, one in value.items():
            yield from leaves(one, (*keys, name))
    elif isinstance(value, list) and value and isinstance(value[0], dict | list):
        for k in sorted({0, len(value) - 1}):
            yield from leaves(value[k], (*keys, k))
    else:
        yield keys


def in_arrays(file: str, name: str, change: Callable[[Any], Any]) -> Edit:
    """An edit of one array of a safetensors file."""

    def edit(folder: Path) -> None:
        from safetensors.numpy import load_file, save_file

        arrays = load_file(folder / file)
        arrays[name] = np.ascontiguousarray(change(arrays[name].copy()))
        save_file(arrays, folder / file)

    return edit


def in_table(file: str, column: str, change: Callable[[Any], Any]) -> Edit:
    """An edit of one column of a Parquet file."""

    def edit(folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pq.read_table(folder / file)
        k = table.column_names.index(column)
        values = change(table.column(k).to_pylist())
        pq.write_table(table.set_column(k, column, pa.array(values, table.schema.field(k).type)), folder / file)

    return edit


def several(*edits: Edit) -> Edit:
    """One edit after the other."""

    def edit(folder: Path) -> None:
        for one in edits:
            one(folder)

    return edit


def with_statistics_hash(edit: Edit) -> Edit:
    """An edit of statistics after which their own hash is made anew, also where other stages of a report name it."""

    def edited(folder: Path) -> None:
        edit(folder)
        manifest = json.loads((folder / MANIFEST).read_bytes())
        old, new = manifest["hash"], _statistics_hash(folder, manifest)
        others = folder.parent.rglob("*.json") if (folder.parent / MANIFEST).is_file() else folder.glob(MANIFEST)
        for path in others:
            path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")

    return edited


def _statistics_hash(folder: Path, manifest: dict[str, Any]) -> str:
    """The hash of the forged statistics, which refuse to be read with the old one; the old one where they cannot be."""
    from tokengeom.core.errors import TokengeomError
    from tokengeom.statistics.next_token import NextTokenStatistics

    computed = [str(manifest["hash"])]
    known: Any = NextTokenStatistics.__dict__["hash"]
    compute = getattr(known, "func", None) or known.fget

    def recorded(self: object) -> str:
        computed.append(compute(self))
        return computed[-1]

    holder: Any = NextTokenStatistics
    holder.hash = property(recorded)
    with suppress(TokengeomError):
        NextTokenStatistics._read(folder, manifest)
    holder.hash = known
    return computed[-1]


def scaled(array: Any) -> Any:
    """The first row larger by a thousandth part."""
    array[:1] *= 1.001
    return array


def swapped(array: Any) -> Any:
    """The first two rows exchanged."""
    array[:2] = array[1::-1].copy() if len(array) == 2 else array[[1, 0]]
    return array


def first(values: list[Any]) -> list[Any]:
    """A table's column with its first value changed."""
    return [number(values[0]), *values[1:]]


def middle(values: list[Any]) -> list[Any]:
    """A table's column with the value in the middle changed."""
    k = len(values) // 2
    return [*values[:k], number(values[k]), *values[k + 1 :]]


def last(values: list[Any]) -> list[Any]:
    """A table's column with its last value changed."""
    return [*values[:-1], number(values[-1])]


# Judging


def forge(folder: Path, forgery: Forgery) -> None:
    """Make the edit, every hash anew, and the page of a report again."""
    forgery.edit(folder / forgery.stage if forgery.stage else folder)
    rehash(folder)
    if (folder / MANIFEST).is_file() and "stages" in json.loads((folder / MANIFEST).read_bytes()):
        _render_again(folder)
        rehash(folder)


def _render_again(folder: Path) -> None:
    """The page of the forged results; where they cannot be read, the old page stays."""
    from tokengeom.core.errors import TokengeomError
    from tokengeom.page.render import render
    from tokengeom.page.report import Report

    try:
        found = Report.load(folder)
        found.page.write_bytes(render(found.contents).encode("utf-8", "backslashreplace"))
    except TokengeomError:
        return


def verified(folder: Path, genuine: str | None) -> dict[str, Any]:
    """What `verify` says of a folder; a refusal to read it counts as failed."""
    import tokengeom as tg
    from tokengeom.core.errors import TokengeomError

    try:
        found = tg.verify(folder, expect=genuine)
    except TokengeomError as error:
        return {"failed": [f"{REFUSED}: {error}"], "not_checked": []}
    return {"failed": list(found.failed), "not_checked": list(found.not_checked)}


def forge_once(forgery: Forgery, genuine: str, material: Material, folder: Path) -> str | None:
    """Forge a copy and verify it; returns what is wrong with the verification."""
    place = Place.inside(folder)
    for name in (forgery.result, *forgery.beside):
        material.put(name, place.work / name)
    if (page := material.path(forgery.result.replace("-results", ".html"))).is_file():
        material.put(page.name, place.work / page.name)

    def action() -> int:
        forge(Path(forgery.result), forgery)
        sys.stdout.write(json.dumps(verified(Path(forgery.result), genuine)))
        return 0

    ended = Fork().run(action, place)
    if ended.code:
        return f"exit code {ended.code}: {excerpt(ended.err)}"
    return judged_forgery(forgery, json.loads(ended.out))


def judged_forgery(forgery: Forgery, found: dict[str, Any]) -> str | None:
    """`NOTICED` or `DECLARED`; else what is wrong: neither, or not found by the hash of the genuine result."""
    by_hash = [one for one in found["failed"] if "is the expected one" in one or one.startswith(REFUSED)]
    if not by_hash:
        return "not found with the hash of the genuine result"
    if len(found["failed"]) > len(by_hash) or found["failed"][0].startswith(REFUSED):
        return NOTICED
    if forgery.covered is None:
        return f"not found, and nothing in not_checked is about it: {found['not_checked']}"
    if not any(forgery.covered in one for one in found["not_checked"]):
        return f"not found, and not_checked does not say {forgery.covered!r}: {found['not_checked']}"
    return DECLARED


def genuine_once(result: str, beside: tuple[str, ...], material: Material, folder: Path) -> str | None:
    """The genuine result must pass, with its own hash too."""
    place = Place.inside(folder)
    for name in (result, *beside):
        material.put(name, place.work / name)
    if (page := material.path(result.replace("-results", ".html"))).is_file():
        material.put(page.name, place.work / page.name)
    seal = seal_of(material.path(result))

    def action() -> int:
        sys.stdout.write(json.dumps(verified(Path(result), seal)))
        return 0

    ended = Fork().run(action, place)
    failed = json.loads(ended.out)["failed"] if ended.code == 0 else [ended.err]
    return f"the genuine result fails: {failed}" if failed else None


def seal_of(folder: Path) -> str:
    """The hash of a saved result; of a run, that of its newest snapshot."""
    path = folder if (folder / MANIFEST).is_file() else max(folder.glob(f"step-*/{MANIFEST}")).parent
    return str(json.loads((path / MANIFEST).read_bytes())["seal"])


def as_tries(forgeries: Sequence[Forgery], material: Material) -> list[Try]:
    """The forgeries, and the genuine results that they were made from."""
    genuine = sorted({(one.result, one.beside) for one in forgeries})
    found = [
        Try(f"forgeries/genuine/{result} beside {len(beside)}", partial(genuine_once, result, beside, material))
        for result, beside in genuine
    ]
    for one in forgeries:
        seal = seal_of(material.path(one.result))
        found.append(Try(f"forgeries/{one.result}/{one.name}", partial(forge_once, one, seal, material)))
    return found
