"""No operation on statistics is quadratic in the vocabulary: work at V = 150,000 is about ten times that at 15,000."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import numpy as np
import pytest
import tokenizers

from tokengeom import NextTokenStatistics, count
from tokengeom.corpus.huggingface_tokenizer import HuggingFaceTokenizer

SMALL, LARGE = 15_000, 150_000


class CountedCalls:
    """A tokenizer of the library that counts how often each of its methods is called."""

    calls: ClassVar[Counter[str]] = Counter()

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._wrapped = tokenizer

    def __getattr__(self, name: str) -> Any:
        type(self).calls[name] += 1
        return getattr(self._wrapped, name)


@pytest.fixture
def library_calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    made = HuggingFaceTokenizer.__init__

    def counted(self: HuggingFaceTokenizer, tokenizer: Any, *name: str) -> None:
        made(self, CountedCalls(tokenizer), *name)  # type: ignore[arg-type]

    monkeypatch.setattr(HuggingFaceTokenizer, "__init__", counted)
    CountedCalls.calls = Counter()
    return CountedCalls.calls


def saved_tokenizer(folder: Path, V: int) -> Path:
    words = tokenizers.models.WordLevel({f"w{i}": i for i in range(V)}, unk_token="w0")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    path = folder / f"{V}.json"
    tokenizer.save(str(path))
    return path


@contextmanager
def counted_python_calls() -> Iterator[list[int]]:
    total = [0]

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            total[0] += 1

    sys.setprofile(profile)
    try:
        yield total
    finally:
        sys.setprofile(None)


def use_everything(tokenizer: Path, V: int, folder: Path) -> NextTokenStatistics:
    """Count, cut by an engine and in memory, name tokens, summarise, save, load."""
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, V, 50)) for _ in range(40)]
    statistics = count(texts, tokenizer=tokenizer, context=1)
    assert statistics.V == V
    assert statistics.vocabulary[-1] == f"w{V - 1}"
    cut = count(texts, tokenizer=tokenizer, context=1, top_contexts=900, vocabulary=V // 100, rest="merge")
    limited = statistics.limited(top_contexts=900, vocabulary=V // 100, rest="merge")
    assert cut.equals(limited)
    for one in (statistics, limited):
        assert one.summary()
        assert repr(one)
        assert one.to_dict()["distinct_supports"] == one.groups.count
        assert one.context_text(0)
        assert one.next_tokens(0)
        one.save(folder / f"{one.V}")
        assert NextTokenStatistics.load(folder / f"{one.V}").hash == one.hash
    return statistics


def test_work_grows_no_faster_than_the_vocabulary(tmp_path: Path, library_calls: Counter[str]) -> None:
    python_calls, per_tokenizer = {}, {}
    use_everything(saved_tokenizer(tmp_path, 1000), 1000, tmp_path)  # Imports on first use do not count.
    for V in (SMALL, LARGE):
        path = saved_tokenizer(tmp_path, V)
        library_calls.clear()
        with counted_python_calls() as total:
            use_everything(path, V, tmp_path)
        python_calls[V], per_tokenizer[V] = total[0], dict(library_calls)
    assert python_calls[LARGE] < 12 * python_calls[SMALL]
    small, large = per_tokenizer[SMALL], per_tokenizer[LARGE]
    each = {"decode", "id_to_token"}
    assert {name: large[name] for name in large if name not in each} == {
        name: small[name] for name in small if name not in each
    }, "what handles the whole vocabulary is called equally often, whatever its size"
    assert all(large[name] <= 4 * LARGE for name in each)
