"""Counted pairs are saved without being gathered, load and merge, and are refused when they are damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from command_line import assert_one_paragraph, say
from forging import forge
from tokengeom import count, load, verify
from tokengeom.core.errors import InputError, ResourceError, StatisticsError
from tokengeom.statistics.count import count_pairs
from tokengeom.statistics.cuts import CommonestTokens, MinimumCount
from tokengeom.statistics.engines import open_engine
from tokengeom.statistics.ordered_pairs import build_statistics
from tokengeom.statistics.pairs import CountedPairs

TEXT = ["a b a b c a b d a c", "b a c a"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs") / "kept"
    count_pairs(TEXT, folder, context=2)
    return folder


def damaged(kept: Path, tmp_path: Path, **changes: Any) -> Path:
    """A copy of saved pairs, with other entries in the manifest and new hashes."""
    shutil.copytree(kept, tmp_path / "p")

    def change(manifest: dict[str, Any]) -> None:
        manifest |= changes
        for name in [name for name, value in changes.items() if value == "gone"]:
            del manifest[name]

    return forge(tmp_path / "p", change)


def test_totals_are_those_of_the_statistics(tmp_path: Path) -> None:
    pairs = count_pairs(TEXT, tmp_path / "p", context=2)
    statistics = count(TEXT, context=2)
    totals = pairs.totals
    assert (totals.n, totals.m, totals.V) == (statistics.n, statistics.m, statistics.V)
    assert totals.entropy == pytest.approx(statistics.entropy)
    assert pairs.corpus == statistics.corpus
    assert count(tmp_path / "p").equals(statistics)


def test_saved_pairs_are_loaded_with_their_totals(kept: Path) -> None:
    pairs = load(kept)
    assert isinstance(pairs, CountedPairs)
    assert pairs.totals == pairs.known_totals
    statistics = count(TEXT, context=2)
    assert pairs.to_dict()["windows"] == statistics.n
    assert repr(pairs).startswith(f"CountedPairs(windows={statistics.n}, contexts={statistics.m}")
    assert f"{statistics.n} windows, {statistics.m} distinct contexts" in pairs.summary()
    assert "vocabulary" in pairs._repr_html_()
    assert verify(kept).ok


def test_pairs_saved_elsewhere_are_whole(kept: Path, tmp_path: Path) -> None:
    other = count_pairs(TEXT, tmp_path / "other", context=2, threads=1)
    shutil.copytree(kept, tmp_path / "first")
    CountedPairs.load(tmp_path / "first").save(tmp_path / "copy")
    shutil.rmtree(tmp_path / "first")
    assert count(tmp_path / "copy").equals(count(TEXT, context=2))
    assert count([tmp_path / "copy", tmp_path / "other"]).n == 2 * other.totals.n


def test_pairs_of_several_folders_are_saved_into_one(kept: Path, tmp_path: Path) -> None:
    pairs = CountedPairs.load(kept)
    both = CountedPairs((*pairs.paths, *pairs.paths), pairs.windows, pairs.vocabulary, pairs.rows, pairs.tokenizer)
    both.save(tmp_path / "both")
    assert CountedPairs.load(tmp_path / "both").totals.n == 2 * pairs.totals.n
    assert verify(tmp_path / "both").ok


def test_what_is_known_of_the_corpus_is_merged(tmp_path: Path) -> None:
    ids = [*range(30), 499] * 12
    np.array(ids, "uint16").tofile(tmp_path / "a.bin")
    (tmp_path / "b.bin").write_bytes((tmp_path / "a.bin").read_bytes())
    for name in "ab":
        count_pairs(tmp_path / f"{name}.bin", tmp_path / name, context=1, vocabulary_size=500)
    merged = count([tmp_path / "a", tmp_path / "b"]).corpus
    assert merged["sources"] == [str(tmp_path / "a.bin"), str(tmp_path / "b.bin")]
    assert (merged["tokens"], merged["documents"], merged["likely_separators"]) == (2 * len(ids), 2, [499])


def test_cut_pairs_are_saved_with_their_cuts_and_not_merged(kept: Path, tmp_path: Path) -> None:
    with open_engine(tmp_path) as engine:
        cut = CountedPairs.load(kept).cut([MinimumCount(2), CommonestTokens(2, "merge")], engine, tmp_path)
        cut.save(tmp_path / "cut")
        again = CountedPairs.load(tmp_path / "cut")
        assert (again.totals, again.effects) == (cut.totals, cut.effects)
        assert build_statistics(again, engine).equals(build_statistics(cut, engine))
        with pytest.raises(StatisticsError, match="merge them first, then cut"):
            again.merge(CountedPairs.load(kept), engine=engine, folder=tmp_path / "merged")
    assert count(tmp_path / "cut").equals(count(TEXT, context=2).cut(MinimumCount(2), CommonestTokens(2, "merge")))
    assert verify(tmp_path / "cut").ok


def rewritten(kept: Path, tmp_path: Path, change: Callable[[pa.Table], pa.Table]) -> Path:
    """A copy of saved pairs with another shard and new hashes."""
    folder = damaged(kept, tmp_path)
    (shard,) = (folder / "pairs").glob("*.parquet")
    pq.write_table(change(pq.read_table(shard)), shard)
    return forge(folder)


def with_column(name: str, change: Callable[[NDArray[Any]], object]) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        place, old = table.column_names.index(name), table[name]
        return table.set_column(place, name, pa.array(change(old.to_numpy().copy()), old.type))

    return changed


FORGED_SHARDS = {
    "a count of 0": with_column("count", lambda a: np.where(np.arange(a.size) == 1, 0, a)),
    "negative counts": with_column("count", lambda a: -a),
    "tokens out of range": with_column("next", lambda a: a + 100),
    "tokens below 0": with_column("next", lambda a: a - 1),
    "contexts out of range": with_column("context_0", lambda a: a + 2**40),
    "contexts below 0": with_column("context_0", lambda a: a - 2**40),
    "pairs out of order": lambda table: table.take(list(range(table.num_rows))[::-1]),
    "pairs that repeat": lambda table: pa.concat_tables([table, table]),
    "no pairs": lambda table: table.slice(0, 0),
}


@pytest.mark.parametrize("change", FORGED_SHARDS.values(), ids=list(FORGED_SHARDS))
def test_shards_that_no_text_gives_are_refused_when_they_are_used_and_named_when_verified(
    kept: Path, tmp_path: Path, change: Callable[[pa.Table], pa.Table]
) -> None:
    folder = rewritten(kept, tmp_path, change)
    assert verify(folder).failed
    with pytest.raises(InputError, match=r"cannot be those of a text|is damaged"):
        count(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.drop_columns(["count"]),
        lambda table: table.rename_columns(["context_1", "next", "count"]),
        lambda table: table.cast(pa.schema([("context_0", pa.int64()), ("next", pa.int64()), ("count", pa.int64())])),
        lambda table: table.cast(pa.schema([("context_0", pa.string()), ("next", pa.int32()), ("count", pa.int64())])),
    ],
)
def test_shards_with_other_columns_are_refused(
    kept: Path, tmp_path: Path, change: Callable[[pa.Table], pa.Table]
) -> None:
    with pytest.raises(InputError, match=r"is damaged: .* must have one column"):
        CountedPairs.load(rewritten(kept, tmp_path, change))


def test_a_changed_shard_is_refused(kept: Path, tmp_path: Path) -> None:
    folder = damaged(kept, tmp_path)
    shard = next((folder / "pairs").glob("*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    with pytest.raises(InputError, match=r"is damaged: pairs/.*\.parquet"):
        count(folder)


def test_another_tokenizer_under_its_name_is_refused(kept: Path, tmp_path: Path) -> None:
    folder = damaged(kept, tmp_path)
    file = folder / "tokenizer.json"
    file.write_text(file.read_text().replace('"d"', '"z"'))
    forge(folder)
    with pytest.raises(InputError, match="not the tokenizer that the manifest names"):
        CountedPairs.load(folder)


def test_more_pairs_than_memory_holds_are_refused_with_both_sizes(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokengeom.core.resources.free_memory", lambda *_: 100)
    with (
        open_engine(tmp_path) as engine,
        pytest.raises(ResourceError, match=r"distinct pairs must fit in memory: .* GiB are needed and .* GiB are free"),
    ):
        build_statistics(CountedPairs.load(kept), engine)


def test_pairs_that_are_only_kept_are_not_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("gathered")

    monkeypatch.setattr("tokengeom.statistics.count.build_statistics", refuse)
    (tmp_path / "a.txt").write_text(TEXT[0])
    done = say(capsys, "count", tmp_path / "a.txt", "--context", 1, "--pairs", tmp_path / "p", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["windows"] == 9
    assert "to merge them" in say(capsys, "count", tmp_path / "a.txt", "-c", 1, "--pairs", tmp_path / "p").out
    asked = say(capsys, "count", tmp_path / "a.txt", "--pairs", tmp_path / "p", "--out", tmp_path / "s")
    assert "gathered" in asked.err, "statistics are gathered"


@pytest.mark.parametrize(
    "changes",
    [
        {"vocabulary_size": "gone"},
        {"vocabulary_size": "many"},
        {"vocabulary_size": 0},
        {"vocabulary_size": True},
        {"window": "gone"},
        {"window": {"length": 2}},
        {"window": {"context": 0}},
        {"window": [1]},
        {"rows": "gone"},
        {"rows": [0.5]},
        {"rows": []},
        {"rows": [1, 0]},
        {"rows": [0, 1000]},
        {"ordered": 1},
        {"entropy_nats": float("nan")},
        {"windows": "gone"},
        {"windows": "many"},
        {"cuts": [1]},
        {"corpus": "gone"},
        {"corpus": [1]},
        {"tokenizer": "gone"},
    ],
)
def test_a_damaged_manifest_is_refused(
    changes: dict[str, Any], kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(kept, tmp_path, **changes)
    with pytest.raises(InputError, match="is damaged"):
        CountedPairs.load(folder)
    assert_one_paragraph(say(capsys, "count", folder))


def test_missing_shards_and_a_torn_manifest_are_refused(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(kept, tmp_path)
    shutil.move(folder / "pairs", tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"is damaged: pairs/"):
        CountedPairs.load(folder)
    empty = damaged(kept, tmp_path / "empty")
    shutil.rmtree(empty / "pairs")
    forge(empty)
    with pytest.raises(InputError, match="no shards in pairs/"):
        CountedPairs.load(empty)
    shutil.move(tmp_path / "elsewhere", folder / "pairs")
    (folder / "manifest.json").write_text("{")
    done = say(capsys, "count", folder)
    assert_one_paragraph(done)
    assert "manifest.json cannot be read" in done.err
