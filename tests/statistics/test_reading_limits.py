"""Reading within a memory limit: what must be held whole and does not fit is refused, and says which limit was met."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

from tokengeom import count
from tokengeom.core.errors import CorpusError, ResourceError, StatisticsError
from tokengeom.core.progress import SilentProgress
from tokengeom.corpus.locate import ReadingSettings, open_corpus
from tokengeom.corpus.tokenizers import make_tokenizer
from tokengeom.statistics.reading import token_batches

MB = 1 << 20


def tokens_of(path: Path, tokenizer: str = "word", memory: int = 2 * 10**9) -> int:
    """Number of tokens in a file, read and not counted."""
    sources = open_corpus(path, ReadingSettings())
    for source in sources:
        source.memory = memory
    return sum(batch.tokens.size for _, batch in token_batches(sources, make_tokenizer(tokenizer), SilentProgress()))


def whole_documents() -> tokenizers.Tokenizer:
    """A tokenizer that cannot encode the parts of a document separately."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    made.normalizer = tokenizers.normalizers.Prepend("_")
    return made


def test_a_run_without_a_place_to_split_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"abcabd" * 350_000)
    message = r"a\.txt has 1,562,500 bytes in a row that a word tokenizer cannot split .* limit of 50 MB .* --memory"
    with pytest.raises(ResourceError, match=message):
        count(path, context=1, memory="50MB")
    assert tokens_of(path) == 1
    with pytest.raises(ResourceError, match="that a huggingface tokenizer cannot split"):
        count(path, context=1, tokenizer=whole_documents(), memory="100MB")


@pytest.mark.parametrize(("tokenizer", "text"), [("character", b"abcabd"), ("byte", b"abcabd")])
def test_text_without_white_space_takes_bounded_memory(tmp_path: Path, tokenizer: str, text: bytes) -> None:
    path, peaks = tmp_path / "a.txt", []
    for megabytes in (6, 24):
        path.write_bytes(text * (megabytes * MB // 6))
        tracemalloc.start()
        assert tokens_of(path, tokenizer) == megabytes * MB // 6 * 6
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 4 * MB, "18 more megabytes of text must not add four of memory"


def test_a_long_json_line_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "ab cd, " * 300_000}) + "\n")
    assert tokens_of(path) == 900_000
    with pytest.raises(ResourceError, match=r"a\.jsonl: line 1 must be held in memory whole .* the limit is 5 MB"):
        tokens_of(path, memory=5 * 10**6)
    # Lists take many times the memory of their text.
    path.write_text('{"text": "a b c"}\n{"text": "a b c", "more": [' + "[]," * 700_000 + "1]}")
    with pytest.raises(ResourceError, match=r"line 2 of 2,100,\d{3} characters must .* needs 141 MB; .* 100 MB"):
        tokens_of(path, memory=10**8)


def test_a_vocabulary_must_fit_in_memory(tmp_path: Path) -> None:
    words = np.random.default_rng(0).integers(0, 10**9, 120_000)
    (tmp_path / "a.txt").write_text("\n\n".join(map(str, words)))
    with pytest.raises(ResourceError, match=r"The vocabulary must fit in memory: .* a part of .*a\.txt, .* bpe:4096"):
        count(tmp_path / "a.txt", context=1, memory="10MB")


def test_ids_that_need_too_large_a_vocabulary_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    np.array([0, 1, 20_000_000], "uint32").tofile(path)
    with pytest.raises(StatisticsError, match=r"at most 13,888,888 tokens .* 2,000 MB; the ids in .*a\.bin need 20,00"):
        count(path, context=1, dtype="uint32")


@pytest.mark.parametrize(
    ("before", "options"),
    [(0, {"use_dictionary": False}), (50, {}), (50, {"use_dictionary": False, "compression": "none"})],
)
def test_a_large_row_of_parquet_is_refused(tmp_path: Path, before: int, options: dict[str, object]) -> None:
    """Its size is known from the row group, from the strings that rows share, or once it is read."""
    path, small = tmp_path / "a.parquet", ["a b c"] * before
    pq.write_table(pa.table({"text": [*small, "ab " * (MB // 3), *small]}), path, **options)
    with pytest.raises(ResourceError, match=r"a\.parquet: a row of column 'text' must .* the limit is 3 MB"):
        tokens_of(path, memory=3 * 10**6)
    assert tokens_of(path) == MB // 3 + 6 * before


def test_a_string_that_all_rows_share_does_not_multiply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a few kilobytes could otherwise fill any memory."""
    path, sizes = tmp_path / "a.parquet", list[int]()
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 64, pa.int32()), pa.array(["ab " * (2 * MB // 3)]))
    pq.write_table(pa.table({"text": column}), path, store_schema=False)

    def one_word(array: pa.Array) -> list[str]:
        sizes.append(array.nbytes)
        return ["a"]

    monkeypatch.setattr("tokengeom.corpus.token_files.strings_of", one_word)
    assert tokens_of(path) == len(sizes)
    assert max(sizes) < 17 * MB


def test_white_space_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokengeom.corpus.documents._LONGEST_WHITE_SPACE", 3 * MB)
    path = tmp_path / "a.txt"
    for content, tokens in ((b" " * 5 * MB + b"a b c", 3), (b"a b" + b"\n" * 5 * MB + b"c d e", 5)):
        path.write_bytes(content)
        assert tokens_of(path) == tokens
    path.write_bytes(b"a b" + b" " * 5 * MB + b"c d")
    with pytest.raises(CorpusError, match=r"more than 3,145,728 characters of white space in a row inside a document"):
        tokens_of(path)
