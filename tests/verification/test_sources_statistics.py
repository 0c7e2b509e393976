"""`verify` computes again what the manifests of statistics and of counted pairs state, and notices what is forged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forging import Entry, forge, forge_array, forge_entry
from tokengeom import count, load, verify
from tokengeom.core.errors import InputError
from tokengeom.statistics.count import count_pairs
from tokengeom.statistics.cuts import Effect, Totals
from tokengeom.statistics.next_token import OTHER
from tokengeom.statistics.shared import shared_statistics
from tokengeom.statistics.windows import WindowKind
from tokengeom.verification.sources import lead_to, names_fit
from tokengeom.verification.verify import check_result

AGAIN = "computed again, it has the same"
FORGED = {
    "windows": ("windows", lambda x: x + 1, f"{AGAIN} windows"),
    "vocabulary": ("vocabulary", lambda x: 4, f"{AGAIN} vocabulary"),
    "contexts": ("contexts", lambda x: "many", f"{AGAIN} contexts"),
    "coverage": ("coverage", lambda x: 0.5, f"{AGAIN} coverage"),
    "left out": ("left_out", lambda x: 0.5, f"{AGAIN} left_out"),
    "entropy": ("entropy_nats", lambda x: 0.1, f"{AGAIN} entropy_nats"),
    "no entropy": ("entropy_nats", lambda x: None, f"{AGAIN} entropy_nats"),
    "one-hot": ("one_hot_share", lambda x: 0.5, f"{AGAIN} one_hot_share"),
    "supports": ("distinct_supports", lambda x: 1, f"{AGAIN} distinct_supports"),
    "completeness": (
        ("completeness", "new_pairs_in_twice_the_text"),
        lambda x: x + 1,
        f"{AGAIN} completeness",
    ),
    "seen once": (
        ("completeness", "pairs_seen_once"),
        lambda x: x + 1,
        f"{AGAIN} completeness",
    ),
    "cuts": ("cuts", lambda x: [cut_to(7)], "the cuts lead to these sizes"),
    "padding": (("window", "pad"), lambda _: True, "documents begin with start markers"),
    "hash": ("hash", lambda x: "0" * 64, "the result can be read"),
}


def cut_to(n: int) -> dict[str, Any]:
    sizes = {"n": 9, "m": 3, "V": 3, "entropy": 1.0}
    return {"cut": "some", "before": sizes, "after": sizes | {"n": n}}


@pytest.mark.parametrize(("entry", "change", "fails"), FORGED.values(), ids=list(FORGED))
def test_verify_recomputes_what_the_manifest_claims(
    tmp_path: Path, entry: Entry | str, change: Callable[[Any], Any], fails: str
) -> None:
    count([[0, 1, 0, 2, 0, 1]], context=1, vocabulary_size=3).save(tmp_path / "s")
    found = verify(tmp_path / "s")
    assert (found.ok, len(found.checked), len(found.not_checked)) == (True, 16, 2)
    failed = verify(forge_entry(tmp_path / "s", entry, change)).failed
    assert failed[0].startswith(fails)
    assert len(failed) == (2 if entry == "cuts" else 1), "the coverage follows from the cuts"


def test_verify_notices_swapped_tokens_and_contexts_and_another_tokenizer(tmp_path: Path) -> None:
    statistics = count(["a b a c a b"], context=1)
    for name in ("vocabulary", "contexts"):
        statistics.save(tmp_path / name)
    pq.write_table(pa.table({"text": ["b", "a", "c"]}), tmp_path / "vocabulary/vocabulary.parquet")
    forge(tmp_path / "vocabulary")
    forge_array(tmp_path / "contexts", "arrays.safetensors", "contexts", lambda a: a[::-1])
    for name in ("vocabulary", "contexts"):
        with pytest.raises(InputError, match="do not have the hash that the manifest states"):
            load(tmp_path / name)
    statistics.save(tmp_path / "tokenizer")
    file = tmp_path / "tokenizer/tokenizer.json"
    file.write_text(file.read_text().replace('"b"', '"z"'))
    assert f"{AGAIN} tokenizer" in verify(forge(tmp_path / "tokenizer")).failed


def test_swapped_tokens_and_contexts_are_noticed_with_a_new_hash_of_the_content_too(tmp_path: Path) -> None:
    """A forger who computes every hash again is still caught by the order of ids and the names of the tokenizer."""
    statistics = count(["a b a c a b"], context=1)
    assert statistics.contexts is not None
    replace(statistics, vocabulary=("b", "a", "c")).save(tmp_path / "vocabulary")
    assert verify(tmp_path / "vocabulary").failed == ("tokens have the names of their ids, in order",)
    replace(statistics, contexts=np.ascontiguousarray(statistics.contexts[::-1])).save(tmp_path / "contexts")
    assert verify(tmp_path / "contexts").failed == ("contexts are in the order of their ids",)


def test_what_two_texts_share_may_be_in_any_order(tmp_path: Path) -> None:
    made = shared_statistics(count(["a b a c a b"], context=1), count(["c a b c b a c"], context=1))
    for name, one in zip("12", made, strict=True):
        found = verify(one.save(tmp_path / name))
        assert found.ok, found.failed


@pytest.mark.parametrize("windows", ["sliding", "prefixes"])
@pytest.mark.parametrize("cuts", [{}, {"vocabulary": 3, "rest": "merge"}, {"top_contexts": 3, "support": "count:2"}])
def test_honest_statistics_pass_every_check(tmp_path: Path, windows: WindowKind, cuts: dict[str, Any]) -> None:
    found = verify(count(["a b a c a b d a"] * 2, context=2, windows=windows, pad=True, **cuts).save(tmp_path / "s"))
    assert found.ok, found.failed


def test_claims_are_those_of_the_statistics_themselves() -> None:
    known = count(["the cat sat on the mat .", "the dog sat"], context=2)
    claimed = {name: value for name, value in known.to_dict().items() if name != "warnings"}
    assert False not in check_result(replace(known, claimed=claimed)).values()
    wrong = replace(known, claimed={**claimed, "entropy_nats": claimed["entropy_nats"] + 0.01})
    failed = [sentence for sentence, holds in check_result(wrong).items() if holds is False]
    assert failed == [f"{AGAIN} entropy_nats"]


def test_a_cut_that_leads_elsewhere_is_noticed(tmp_path: Path) -> None:
    folder = count(["a b a c a d a b c d a b"], context=1, vocabulary=2).save(tmp_path / "s")
    assert verify(folder).ok
    forge_entry(folder, ("cuts", 0, "after", "n"), lambda n: n + 1)
    assert verify(folder).failed == ("the cuts lead to these sizes",)


def test_cuts_lead_from_one_to_the_next() -> None:
    sizes = [Totals(n, 3, 3, entropy) for n, entropy in ((9, 1.0), (7, 0.9), (5, 0.8))]
    effects = [Effect("first", sizes[0], sizes[1]), Effect("second", sizes[1], sizes[2])]
    assert lead_to([], sizes[0])
    assert lead_to(effects, sizes[2])
    assert lead_to(effects, replace(sizes[2], entropy=0.8 + 1e-12))
    assert not lead_to(effects, sizes[1])
    assert not lead_to(effects[::-1], sizes[1])
    assert not lead_to(effects, replace(sizes[2], entropy=0.8001))


def test_names_are_those_of_the_tokenizer_in_order() -> None:
    statistics = count(["a b c a"], context=1)
    for names, fit in (
        (["a", "b", "c"], True),
        (["a", "c"], True),
        (["a", "c", OTHER], True),
        (["b", "a"], False),
        ([OTHER, "a"], False),
        (["a", "x"], False),
    ):
        assert names_fit(names, statistics.tokenizer, 3) is fit
    assert names_fit(["token 0", "token 2"], None, 3)
    assert not names_fit(["token 0", "token 3"], None, 3)
    assert names_fit(["c", "token 3"], statistics.tokenizer, 4)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs") / "kept"
    count_pairs(["a b a b c a b d a c", "b a c a"], folder, context=2)
    return folder


def changed(kept: Path, tmp_path: Path, **changes: Any) -> Path:
    """A copy of saved pairs, with other entries in the manifest and new hashes."""
    shutil.copytree(kept, tmp_path / "p")
    return forge(tmp_path / "p", lambda manifest: manifest.update(changes))


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"windows": 3}, "the sizes are the ones claimed"),
        ({"contexts": 3}, "the sizes are the ones claimed"),
        ({"vocabulary": 3}, "the sizes are the ones claimed"),
        ({"entropy_nats": 0.3}, "the entropy floor is the one claimed"),
    ],
)
def test_verify_adds_up_the_pairs_again(kept: Path, tmp_path: Path, changes: dict[str, Any], failed: str) -> None:
    assert failed in verify(changed(kept, tmp_path, **changes)).failed


def test_cuts_that_lead_elsewhere_are_named(kept: Path, tmp_path: Path) -> None:
    sizes = {"n": 9, "m": 3, "V": 3, "entropy": 1.0}
    cuts = [{"cut": "some", "before": sizes, "after": sizes}]
    assert verify(changed(kept, tmp_path, cuts=cuts)).failed == ("the cuts lead to these sizes",)


def test_missing_numbers_are_named(kept: Path, tmp_path: Path) -> None:
    folder = changed(kept, tmp_path)
    (shard,) = (folder / "pairs").glob("*.parquet")
    table = pq.read_table(shard)
    counts = pa.array([None, *table["count"].to_pylist()[1:]], pa.int64())
    pq.write_table(table.set_column(table.column_names.index("count"), "count", counts), shard)
    assert verify(forge(folder)).failed == ("every pair has ids in range and a count of at least 1",)
