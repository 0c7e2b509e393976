"""Counting is exact for every kind of window, padding, and layout of the input."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counting_oracle import as_pairs, dictionary_count
from tokengeom import CountedPairs, NextTokenStatistics, count
from tokengeom.core.errors import CorpusError, InputError, StatisticsError
from tokengeom.core.progress import SilentProgress
from tokengeom.corpus.documents import AbstractTokenSource, Ids, TokenBatch
from tokengeom.corpus.files import OnBytes, ignore_bytes
from tokengeom.corpus.stories import stories
from tokengeom.corpus.tokenizers import WordTokenizer
from tokengeom.statistics import token_table
from tokengeom.statistics.count import CountSettings, count_lengths, count_pairs
from tokengeom.statistics.engines import open_engine, temporary_folder
from tokengeom.statistics.ordered_pairs import build_statistics
from tokengeom.statistics.reading import tokenize
from tokengeom.statistics.windows import ContextPacking, WindowKind, Windows, count_windows

DOCUMENTS = st.lists(st.lists(st.integers(0, 4), max_size=9), min_size=1, max_size=6)
KINDS = list(itertools.product(["sliding", "prefixes"], [False, True]))


@pytest.mark.parametrize(("kind", "pad"), KINDS)
@settings(max_examples=12, deadline=None)
@given(documents=DOCUMENTS, context=st.integers(1, 4))
def test_duckdb_counts_as_a_dictionary_does(
    documents: list[list[int]], context: int, kind: WindowKind, pad: bool
) -> None:
    expected = dictionary_count(documents, context, kind, pad)
    if not expected:
        with pytest.raises(ValueError, match=r"empty|long enough"):
            count([np.array(d, int) for d in documents], context=context, windows=kind, pad=pad, vocabulary_size=5)
        return
    statistics = count([np.array(d, int) for d in documents], context=context, windows=kind, pad=pad, vocabulary_size=5)
    assert as_pairs(statistics) == expected
    assert statistics.n == sum(expected.values())


@pytest.mark.parametrize(("kind", "pad"), KINDS)
def test_splitting_long_documents_into_rows_changes_no_count(
    kind: WindowKind, pad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_table, "ROW_TOKENS", 7)
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 3, size) for size in (0, 1, 6, 7, 8, 14, 15, 50)]
    statistics = count(documents, context=3, windows=kind, pad=pad, vocabulary_size=3)
    assert as_pairs(statistics) == dictionary_count([d.tolist() for d in documents], 3, kind, pad)


@pytest.mark.parametrize(("kind", "pad"), KINDS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_document_in_pieces_is_one_document(kind: WindowKind, pad: bool, data: st.DataObject) -> None:
    """Batches may split a document anywhere, even before it is as long as a context."""

    document = data.draw(st.lists(st.integers(0, 2), min_size=4, max_size=30))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(document)), max_size=5)))
    bounds = [0, *cuts, len(document)]

    class Pieces(AbstractTokenSource):
        def batches(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[TokenBatch]:
            for number, (a, b) in enumerate(itertools.pairwise(bounds)):
                yield TokenBatch(np.array(document[a:b], np.int32), np.array([b - a]), continues=number > 0)
            yield TokenBatch(np.array([1, 1, 1, 1, 1], np.int32), np.array([5]))

    windows = Windows(3, kind, pad)
    sources: list[AbstractTokenSource] = [Pieces("pieces")]
    with temporary_folder() as work, open_engine(work) as engine:
        read = tokenize(sources, None, 3, windows.context, work, SilentProgress())
        plan = count_windows(read.table(engine), windows, ContextPacking(3, 3))
        engine.write(plan, work / "pairs", "", SilentProgress())
        pairs = CountedPairs((str(work / "pairs"),), windows, 3, np.arange(3))
        statistics = build_statistics(pairs, engine)
    assert read.totals.documents == 2
    assert as_pairs(statistics) == dictionary_count([document, [1] * 5], 3, kind, pad)


def test_kenlms_published_counts() -> None:
    """Trigrams of KenLM's own counting test, summed over its blocks (kpu/kenlm, lm/builder/corpus_count_test.cc)."""
    lines = ["looking on a little more loin", "on a little more loin", "on foo little more loin", "bar", ""]
    tokens = ["</s>", "looking", "on", "a", "little", "more", "loin", "foo", "bar"]
    documents = [[tokens.index(token) for token in [*line.split(), "</s>"]] for line in lines]
    statistics = count(documents, context=2, pad=True, vocabulary_size=len(tokens))
    found = {
        " ".join("<s>" if t < 0 else tokens[t] for t in (*context, token)): number
        for (context, token), number in as_pairs(statistics).items()
    }
    assert found == {
        "<s> <s> looking": 1,
        "<s> looking on": 1,
        "looking on a": 1,
        "on a little": 2,
        "a little more": 2,
        "little more loin": 3,
        "more loin </s>": 3,
        "<s> <s> on": 2,
        "<s> on a": 1,
        "<s> on foo": 1,
        "on foo little": 1,
        "foo little more": 1,
        "<s> <s> bar": 1,
        "<s> bar </s>": 1,
        "<s> <s> </s>": 1,
    }


def test_nltks_published_example() -> None:
    """The two sentences of nltk.lm's documentation, with nltk's own counter as the oracle."""
    from nltk.lm.counter import NgramCounter  # type: ignore[import-untyped]
    from nltk.util import ngrams  # type: ignore[import-untyped]

    text = [["a", "b", "c"], ["a", "c", "d", "c", "e", "f"]]
    tokens = sorted({token for sentence in text for token in sentence})
    counter = NgramCounter([list(ngrams(sentence, 2)) for sentence in text])
    statistics = count([[tokens.index(t) for t in s] for s in text], context=1, vocabulary_size=len(tokens))
    found = as_pairs(statistics)
    for context, token in itertools.product(range(len(tokens)), repeat=2):
        assert found.get(((context,), token), 0) == counter[(tokens[context],)][tokens[token]]
    assert found[((0,), 1)] == found[((0,), 2)] == 1
    assert found[((2,), 3)] == 1


def test_repeating_the_corpus_doubles_counts_and_nothing_else() -> None:
    texts = list(islice(stories(1), 200))
    once, twice = count(texts), count(texts + texts)
    assert (2 * once.counts != twice.counts).nnz == 0
    assert (once.S != twice.S).nnz == 0
    np.testing.assert_allclose(once.P.data, twice.P.data, rtol=1e-15)
    np.testing.assert_allclose(once.pi, twice.pi, rtol=1e-15)
    assert twice.entropy == pytest.approx(once.entropy, rel=1e-13)


def test_the_order_of_documents_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    documents = [rng.integers(0, 6, 20) for _ in range(50)]
    shuffled = list(documents)
    random.Random(0).shuffle(shuffled)
    assert count(documents, vocabulary_size=6).equals(count(shuffled, vocabulary_size=6))


def test_relabelling_tokens_relabels_the_statistics() -> None:
    rng = np.random.default_rng(4)
    documents = [rng.integers(0, 5, 30) for _ in range(20)]
    permutation = rng.permutation(5)
    before = as_pairs(count(documents, context=2, vocabulary_size=5))
    after = as_pairs(count([permutation[d] for d in documents], context=2, vocabulary_size=5))
    assert after == {(tuple(int(permutation[t]) for t in c), int(permutation[z])): n for (c, z), n in before.items()}


def test_shards_merged_in_any_order_and_grouping_equal_the_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    documents = [rng.integers(0, 5, 25) for _ in range(40)]
    whole = count(documents, context=2, vocabulary_size=5)
    shards = []
    for number in range(3):
        folder = tmp_path / f"shard-{number}"
        count(documents[number::3], context=2, vocabulary_size=5, pairs=folder)
        shards.append(folder)
    for order in itertools.permutations(shards):
        merged = count(list(order))
        assert merged.equals(whole)
        assert merged.corpus["documents"] == 40
    a, b, c = (CountedPairs.load(folder) for folder in shards)
    with open_engine(tmp_path) as engine:
        left = a.merge(b, engine=engine, folder=tmp_path / "ab").merge(c, engine=engine, folder=tmp_path / "abc")
        right = a.merge(b.merge(c, engine=engine, folder=tmp_path / "bc"), engine=engine, folder=tmp_path / "a-bc")
        assert build_statistics(left, engine).equals(build_statistics(right, engine))


def test_pairs_that_were_counted_differently_are_not_merged(tmp_path: Path) -> None:
    count([[0, 1, 0]], context=1, vocabulary_size=2, pairs=tmp_path / "a")
    count([[0, 1, 0]], context=2, vocabulary_size=2, pairs=tmp_path / "b")
    with pytest.raises(StatisticsError, match="windows differs"):
        count([tmp_path / "a", tmp_path / "b"])


def test_large_vocabularies_need_several_keys_and_lose_nothing() -> None:
    """Ids near a million and contexts of 7: keys are one to one however many there are."""
    rng = np.random.default_rng(6)
    V, context = 1_000_000, 7
    ids = rng.integers(V - 50, V, 12)
    documents = [rng.choice(ids, 60).tolist() for _ in range(5)]
    assert len(ContextPacking(V, context).columns) == 3
    statistics = count(documents, context=context, vocabulary_size=V)
    assert as_pairs(statistics) == dictionary_count(documents, context, "sliding", False)


def test_contexts_come_in_the_order_of_their_ids() -> None:
    rng = np.random.default_rng(7)
    statistics = count([rng.integers(0, 4, 200)], context=3, windows="prefixes", vocabulary_size=4)
    assert statistics.contexts is not None
    rows = [tuple(row) for row in statistics.contexts.tolist()]
    assert rows == sorted(rows)


def test_ids_beyond_the_vocabulary_are_named() -> None:
    with pytest.raises(
        StatisticsError, match=r"below the vocabulary size 3; .* has 7, and the first id that is too large is token 2"
    ):
        count([[0, 1, 7]], context=1, vocabulary_size=3)


def test_numbers_of_other_libraries_are_numbers() -> None:
    documents = [np.arange(9) % 3]
    plain = count(documents, context=2, vocabulary_size=3)
    whole: Any = {"context": np.int64(2), "vocabulary_size": np.int64(3)}
    assert count(documents, **whole).equals(plain)
    with pytest.raises(InputError, match=r"context must be a whole number; got 2\.5"):
        count(documents, context=2.5)  # type: ignore[arg-type]


def test_ids_that_no_tokenizer_has_are_refused() -> None:
    with pytest.raises(StatisticsError, match="ids in <1 documents> need 2,000,000,001"):
        count([[0, 1, 2_000_000_000]], context=1)


@pytest.mark.parametrize("context", [0, -1, 65])
def test_a_context_has_between_1_and_64_tokens(context: int) -> None:
    with pytest.raises(StatisticsError, match="between 1 and 64"):
        count([[0, 1]], context=context)


def test_no_temporary_files_are_left(tmp_path: Path) -> None:
    count([[0, 1, 0, 1]], context=1, temp=tmp_path)
    with pytest.raises(StatisticsError):
        count([[0, 9]], context=1, vocabulary_size=3, temp=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_settings_of_count_are_in_its_signature_and_an_unknown_one_is_refused() -> None:
    import inspect

    parameters = inspect.signature(count).parameters
    assert {"context", "separator", "top_contexts", "engine"} <= set(parameters)
    assert parameters["context"].default == CountSettings().context == 4
    with pytest.raises(InputError, match=r"count has no setting 'contexts'. Did you mean 'context'"):
        count([[0, 1]], contexts=1)  # type: ignore[call-arg]


def test_cuts_by_name_are_those_of_limited(built_in: NextTokenStatistics) -> None:
    cuts: dict[str, object] = {"top_contexts": 50, "vocabulary": 30, "rest": "merge", "min_count": 5}
    at_once, afterwards = count(None, **cuts), built_in.limited(**cuts)  # type: ignore[arg-type]
    assert at_once.equals(afterwards)
    assert [effect.cut for effect in at_once.effects] == [effect.cut for effect in afterwards.effects]


class CountingTokenizer(WordTokenizer):
    """A word tokenizer that counts how many texts it encodes."""

    encoded = 0

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        type(self).encoded += len(texts)
        return super().encode(texts)


@pytest.mark.parametrize("settings", [{}, {"pad": True}, {"windows": "prefixes"}, {"top_contexts": 7, "vocabulary": 9}])
def test_several_lengths_are_counted_from_one_reading(settings: dict[str, object]) -> None:
    texts = [*islice(stories(3), 20), "a short one", "two words"]
    CountingTokenizer.encoded = 0
    found = count_lengths(texts, [4, 1, 2, 1], tokenizer=CountingTokenizer(), **settings)  # type: ignore[arg-type]
    assert CountingTokenizer.encoded == len(texts)
    assert list(found) == [1, 2, 4]
    for length, statistics in found.items():
        alone = count(texts, context=length, **settings)  # type: ignore[arg-type]
        assert statistics.equals(alone)
        assert (statistics.corpus, statistics.windows) == (alone.corpus, alone.windows)


def test_several_lengths_are_counted_across_rows_of_a_long_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_table, "ROW_TOKENS", 7)
    documents = [np.random.default_rng(0).integers(0, 3, size) for size in (50, 3, 8)]
    for length, statistics in count_lengths(documents, [1, 3, 5], vocabulary_size=3).items():
        assert as_pairs(statistics) == dictionary_count([d.tolist() for d in documents], length, "sliding", False)


def test_a_length_that_no_document_has_is_left_out_unless_it_is_the_only_one(tmp_path: Path) -> None:
    assert list(count_lengths([[0, 1, 0, 1]], [1, 3, 4, 5], temp=tmp_path)) == [1, 3]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CorpusError, match="No document is long enough: 1 document with 4 tokens in all, and a window"):
        count_lengths([[0, 1, 0, 1]], [4, 5])
    with pytest.raises(InputError, match="at least one context length"):
        count_lengths([[0, 1]], [])
    with pytest.raises(InputError, match="no setting 'context'"):
        count_lengths([[0, 1]], [1], context=2)
    count_pairs([[0, 1, 0]], tmp_path / "p", context=1)
    with pytest.raises(InputError, match="one context length"):
        count_lengths(tmp_path / "p", [1])


def test_parquet_shards_of_ids_are_counted_at_several_lengths(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    documents = [[0, 1, 2, 1, 0, 0, 2], [1, 2], [2, 2, 1]]
    pq.write_table(pa.table({"ids": documents}), tmp_path / "a.parquet")
    found = count_lengths(tmp_path, [1, 2, 4], column="ids")
    for length, statistics in found.items():
        assert as_pairs(statistics) == dictionary_count(documents, length, "sliding", False)
    assert [found[length].corpus["short_documents"] for length in (1, 2, 4)] == [0, 1, 2]
