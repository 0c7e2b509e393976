"""Inputs that could lose data, be counted wrongly, or end in a traceback."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from safetensors.numpy import load_file, save_file
from scipy import sparse

from counting_oracle import as_pairs, dictionary_count
from tokengeom import NextTokenStatistics, count
from tokengeom.core.errors import TokengeomError
from tokengeom.corpus import documents as plain_text
from tokengeom.corpus.tokenizers import WordTokenizer


def test_a_folder_with_the_manifest_of_another_program_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "my web app"}')
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(TokengeomError, match=r"such as thesis\.tex"):
        NextTokenStatistics.from_counts([[1]]).save(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_notes_beside_a_result_and_results_of_another_kind_are_not_replaced(tmp_path: Path) -> None:
    statistics = NextTokenStatistics.from_counts([[1]])
    statistics.save(tmp_path / "s")
    (tmp_path / "s/notes.md").write_text("mine")
    with pytest.raises(TokengeomError, match=r"such as notes\.md"):
        statistics.save(tmp_path / "s")
    count([[0, 1]], context=1, pairs=tmp_path / "p")
    with pytest.raises(TokengeomError, match="was not changed"):
        statistics.save(tmp_path / "p")


def test_merged_pairs_can_be_kept(tmp_path: Path) -> None:
    for name in "ab":
        count([[0, 1, 0]], context=1, vocabulary_size=2, pairs=tmp_path / name)
    merged = count([tmp_path / "a", tmp_path / "b"], pairs=tmp_path / "merged")
    assert count(tmp_path / "merged").equals(merged)
    assert merged.n == 4


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; ends when tests run as a user")
def test_an_unreadable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three")
    (tmp_path / "locked").mkdir(mode=0)
    with pytest.raises(TokengeomError, match="locked"):
        count(tmp_path, context=1)


def test_hidden_files_and_saved_results_are_not_part_of_a_corpus(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/noise.txt").write_text("x " * 100)
    (tmp_path / "a.txt").write_text("one two three")
    assert count(tmp_path, context=1).n == 2
    NextTokenStatistics.from_counts([[1]]).save(tmp_path / "s")
    with pytest.raises(TokengeomError, match="saved result"):
        count(tmp_path / "s", context=1)


def test_compressed_token_files_are_unpacked(tmp_path: Path) -> None:
    ids = np.arange(1000, dtype="uint16") % 7
    (tmp_path / "a.bin.gz").write_bytes(gzip.compress(ids.tobytes()))
    assert as_pairs(count(tmp_path / "a.bin.gz", context=1)) == dictionary_count([ids.tolist()], 1, "sliding", False)


def test_ids_of_four_bytes_that_are_read_as_two_are_refused(tmp_path: Path) -> None:
    (np.arange(1000, dtype="uint32") % 50 + 1).tofile(tmp_path / "a.bin")
    with pytest.raises(TokengeomError, match="Pass --dtype uint32"):
        count(tmp_path / "a.bin", context=1)
    assert count(tmp_path / "a.bin", context=1, dtype="uint32").n == 999


@pytest.mark.parametrize("name", ["d[1]", "d?", "d*"])
def test_special_characters_of_a_path_are_taken_literally(tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({"text": [[0, 1, 2]]}), tmp_path / f"{name}.parquet")
    pq.write_table(pa.table({"text": [[3, 3, 3, 3, 3]]}), tmp_path / "d1.parquet")
    assert count([Path(tmp_path / f"{name}.parquet")], context=1).n == 2
    (tmp_path / name).mkdir()
    assert count([[0, 1, 2]], context=1, temp=tmp_path / name).n == 2


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "uint32", "int64", "uint64"])
def test_parquet_ids_of_every_integer_type(tmp_path: Path, kind: str) -> None:
    column = pa.array([[0, 1, 2, 1]], pa.list_(getattr(pa, kind)()))
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    assert as_pairs(count(tmp_path / "a.parquet", context=1)) == dictionary_count([[0, 1, 2, 1]], 1, "sliding", False)


def test_narrow_counts_do_not_wrap_around() -> None:
    ones = sparse.coo_array((np.ones(300, np.uint8), (np.zeros(300, int), np.zeros(300, int))), shape=(1, 1))
    assert NextTokenStatistics.from_counts(ones).n == 300


def test_documents_stay_whole_for_a_tokenizer_that_depends_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A normalizer that prepends a sign would prepend it to every part."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"_": 0, "a": 1, "b": 2, "?": 3}, unk_token="?"))
    made.normalizer = tokenizers.normalizers.Prepend("_ ")
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.txt").write_text("a b " * 500)
    monkeypatch.setattr(plain_text, "PIECE_CHARACTERS", 100)
    monkeypatch.setattr("tokengeom.corpus.files._CHUNK_BYTES", 150)
    statistics = count(tmp_path / "a.txt", context=1, tokenizer=tmp_path / "tokenizer.json")
    assert as_pairs(statistics) == dictionary_count([[0, *[1, 2] * 500]], 1, "sliding", False)


def test_ids_of_a_saved_tokenizer_may_have_gaps(tmp_path: Path) -> None:
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 60}, unk_token="a"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.save(str(tmp_path / "tokenizer.json"))
    assert count(["a b a b"], context=1, tokenizer=tmp_path / "tokenizer.json").V == 61


def test_a_share_is_not_rounded_against_the_user() -> None:
    cut = NextTokenStatistics.from_counts([[55], [45]]).limited(support="top-p:0.55")
    assert cut.support_sizes.tolist() == [1]


@pytest.mark.parametrize(("field", "value"), [("errors", "ignore"), ("format", "csv")])
def test_unknown_reading_settings_are_refused(field: str, value: str) -> None:
    settings: dict[str, Any] = {field: value}
    with pytest.raises(TokengeomError, match=f"setting {field} must be one of"):
        count(["a b"], context=1, **settings)


def test_what_is_not_a_corpus_is_refused() -> None:
    pandas = pytest.importorskip("pandas", reason="needs the extra 'pandas'")
    for corpus in (42, {"text": ["a b"]}, pandas.DataFrame({"text": ["a b"]}), "", [""]):
        with pytest.raises(TokengeomError):
            count(corpus, context=1)  # type: ignore[arg-type]
    assert count(pandas.Series(["a b", "b a"]), context=1).n == 2


@pytest.mark.parametrize("tokenizer", ["word", "whitespace", "character", "byte"])
def test_half_a_character_is_refused_with_its_position(tokenizer: str) -> None:
    with pytest.raises(TokengeomError, match=r"U\+D800, at position 2"):
        count(["a \ud800 b"], context=1, tokenizer=tokenizer)


def test_a_vocabulary_larger_than_the_tokenizers() -> None:
    statistics = count(["a b c"], context=1, vocabulary_size=100)
    assert (statistics.V, statistics.vocabulary[2], statistics.vocabulary[99]) == (100, "c", "token 99")


def test_deeply_nested_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(TokengeomError, match="line 1"):
        count(tmp_path / "a.jsonl", context=1)


def test_damaged_statistics_are_refused_when_they_are_loaded(tmp_path: Path) -> None:
    statistics = count([[0, 1, 0, 2]], context=1)
    for name in ("window", "cuts", "tokenizer", "corpus"):
        statistics.save(tmp_path / name)
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        del manifest[name]
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(TokengeomError, match="damaged"):
            NextTokenStatistics.load(tmp_path / name)
    statistics.save(tmp_path / "s")
    arrays = load_file(tmp_path / "s/arrays.safetensors")
    save_file({**arrays, "indices": arrays["indices"] + 100}, tmp_path / "s/arrays.safetensors")
    with pytest.raises(TokengeomError, match="damaged"):
        NextTokenStatistics.load(tmp_path / "s")


def test_derived_arrays_are_frozen_too() -> None:
    statistics = NextTokenStatistics.from_counts([[1, 2], [3, 0]])
    for array in (statistics.P.data, statistics.pi, statistics.context_counts, statistics.S.data):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize("word", ["नमस्ते", "cafe\u0301", "مَرْحَبًا", "สวัสดี"])
def test_marks_belong_to_their_words(word: str) -> None:
    tokenizer = WordTokenizer()
    assert tokenizer.encode([f"{word}, {word}"])[0].tolist() == [0, 1, 0]
