"""Comparisons of two texts on disk: read back whole, verified from the statistics beside them, forgeries found."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forging import forge_json
from html_reader import read
from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.compare_texts import compare_texts
from tokengeom.comparison.text_comparison import WHAT_IS_BEYOND_CHANCE, TextComparison
from tokengeom.core.errors import InputError
from tokengeom.results.convert import to_plain
from tokengeom.results.registry import load
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.verification.verify import AS_RECORDED, verify

EVIL = '<script>alert("x")</script>'
V, m = 12, 14
GOLDEN = Path(__file__).parents[1] / "golden" / "saved"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two texts with names that are written to do harm, and their comparison."""
    rng = np.random.default_rng(0)
    place = tmp_path_factory.mktemp("texts")
    counts = rng.integers(2, 30, size=(V, m)) * (rng.random((V, m)) < 0.4)
    counts[np.arange(m) % V, np.arange(m)] = 12
    tokens, contexts = [f"{EVIL}{z}" for z in range(V)], [f"<b>{j}, &amp; x" for j in range(m)]
    both = []
    for name, table in (("one", counts), ("two", np.roll(counts, (1, 1), axis=(0, 1)))):
        both.append(NextTokenStatistics.from_counts(table, contexts, tokens))
        both[-1].save(place / name)
    compare_texts(*both, permutations=20, top=5).save(place / "texts")
    return place


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_a_comparison_is_read_back_whole(folder: Path, tmp_path: Path) -> None:
    found = TextComparison.load(folder / "texts")
    assert isinstance(load(folder / "texts"), TextComparison)
    again = TextComparison.load(found.save(tmp_path / "again"))
    assert to_plain(again) == to_plain(found)
    assert again.summary() == found.summary()
    assert repr(again) == repr(found)


def test_it_is_a_frame_and_a_table_in_which_names_stay_text(folder: Path) -> None:
    found = TextComparison.load(folder / "texts")
    frame = found.to_frame()
    assert list(frame["moved"]) == sorted(found.contexts.moved, reverse=True)
    assert frame["beyond_chance"].idxmax() == found.contexts.listed[0].name
    assert len(found.to_frame("tokens")) == V
    with pytest.raises(InputError, match="tokens or contexts"):
        found.to_frame("words")  # type: ignore[arg-type]
    html = read(found._repr_html_())
    assert not {"script", "b"} & html.tags
    assert any(EVIL in text for text in html.texts)


def test_it_is_computed_again_from_the_statistics_beside_it(folder: Path, tmp_path: Path) -> None:
    found = verify(folder / "texts")
    assert found.ok, found.failed
    assert found.not_checked == (AS_RECORDED,)
    alone = Path(shutil.copytree(folder / "texts", tmp_path / "alone"))
    sentence, _ = verify(alone).not_checked
    assert "were not computed again: the statistics with the hash" in sentence
    given = verify(alone, beside=[folder / "one", folder / "two"])
    assert (given.ok, given.not_checked) == (True, (AS_RECORDED,))


def larger(value: Any) -> Any:
    return value * 0.9 + 0.01


FORGERIES: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "agreement": (("agreements", "context_agreement", "value"), lambda x: x - 0.01),
    "interval": (("agreements", "token_agreement", "low"), lambda x: x - 0.01),
    "floor's part": (("agreements", "token_similarity", "gaussian"), lambda x: x - 0.1),
    "number of a context": (("contexts", "moved", 3), larger),
    "number of a token": (("tokens", "moved", 1), larger),
    "neighbour": (
        ("contexts", "listed", 0, "gained"),
        lambda x: x[1:] if x else [{"name": "n", "first": 0, "second": 1}],
    ),
    "cosine": (("contexts", "listed", 0, "lost", 0, "first"), larger),
    "reason": (("contexts", "listed", 0, "in_both"), lambda x: x + 1),
    "count": (("tokens", "listed", 0, "only_first", 0, "count"), lambda x: x + 1),
    "windows": (("first", "windows"), lambda x: x - 1),
    "pairs": (("second", "only_pairs"), lambda x: x + 1),
    "proxy": (("is_proxy",), lambda x: not x),
    "limitations": (("limitations",), lambda x: [*x, "Nothing is missing."]),
    "loss gap": (("loss_gap",), lambda x: 0.1),
    "halves of one text": (("agreements", "token_agreement", "reproducible"), lambda x: x + 0.01),
    "halves of the other text": (("agreements", "token_agreement", "reliability"), lambda x: x + 0.01),
    "halves of different texts": (("agreements", "context_agreement", "mean"), lambda x: x - 0.01),
    "corrected": (("agreements", "context_agreement", "corrected"), lambda x: x + 0.01),
    "interval of corrected": (("agreements", "context_agreement", "corrected_high"), lambda x: x + 0.01),
    "size of halves": (("halves", "windows"), lambda x: x + 1),
    "beyond chance": (("tokens", "beyond", 1), lambda x: x - 0.01),
    "name": (("contexts", "names", 0), lambda x: f"{x}!"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_number_is_found(copy: Path, name: str) -> None:
    entry, change = FORGERIES[name]
    forged = forge_json(copy / "texts", TextComparison.file, entry, change)
    found = verify(forged)
    assert found.failed, name


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        (("contexts", "moved", 0), -1, "moved 0 must be in 0..2"),
        (("contexts", "listed", 0, "name"), "nobody", "that the texts do not share"),
        (("first", "windows"), 10**9, "a part is larger than the whole"),
        (("agreements", "context_similarity"), None, "must be an object"),
        (("tokens", "listed", 0, "alike"), -1, "alike must be at least 0"),
        (("settings", "norm"), 3, "must be a text"),
        (("settings", "halves"), 3, "must be"),
        (("halves",), None, "if and only if there are halves"),
        (("contexts", "beyond"), [0.1], "one number per name"),
    ],
)
def test_what_cannot_be_true_is_refused(copy: Path, entry: Any, value: Any, message: str) -> None:
    forge_json(copy / "texts", TextComparison.file, entry, lambda _: value)
    with pytest.raises(InputError, match="is damaged") as refused:
        TextComparison.load(copy / "texts")
    assert message in str(refused.value)


def test_a_name_with_a_line_break_stays_on_one_line(folder: Path) -> None:
    item = replace(TextComparison.load(folder / "texts").contexts.listed[0], name="a\nb", alike=0)
    assert item.label == r"“a\nb”"
    assert "\n" not in item.sentence("contexts", in_limit=False)


def test_the_summary_says_what_halves_say_and_how_items_are_ranked(folder: Path) -> None:
    found = TextComparison.load(folder / "texts")
    assert found.halves is not None
    lines = found.summary().splitlines()
    for name in ("context", "token"):
        known = found.agreements[f"{name}_agreement"]
        (line,) = (line for line in lines if line.startswith(f"{name.capitalize()}s agree {known.value:.2f}; "))
        assert f"same text {known.reproducible:.2f} and {known.reliability:.2f}, " in line
        assert f"different texts {known.mean:.2f}: corrected {known.corrected:.2f} [" in line
        assert not any("attainable" in line or "explains" in line for line in lines)
    item = found.contexts.listed[0]
    assert any(f"moved by {item.moved:.3f} ({item.beyond:.3f} beyond chance)" in line for line in lines)
    assert any(WHAT_IS_BEYOND_CHANCE in line for line in lines)
    contexts, tokens = found.movements
    counted = f"{contexts.beyond_chance} of {contexts.seen_enough} contexts and {tokens.beyond_chance} of"
    assert any(line.startswith(f"Beyond chance moved {counted}") for line in lines)
    without = replace(found, agreements={**found.agreements, "token_agreement": Agreement(0.5, items="tokens")})
    assert "Halves of one text do not agree with each other" in without.summary()


def test_a_comparison_of_version_0_1_0_is_that_of_the_limit_without_halves() -> None:
    """It recorded no loss gap, which was the limit then."""
    old = TextComparison.load(GOLDEN / "texts")
    assert (old.loss_gap, old.halves, old.settings["loss_gap"]) == (None, None, None)
    assert (old.keywords["loss_gap"], old.keywords["halves"]) == (0.0, False)
    assert not any(one.beyond for one in old.movements)
    found = verify(GOLDEN / "texts")
    assert (found.failed, found.not_checked) == ((), (AS_RECORDED,))
    given = NextTokenStatistics.load(GOLDEN / "statistics"), NextTokenStatistics.load(GOLDEN / "statistics-other")
    again = compare_texts(*given, **old.keywords)
    assert again.contexts.moved == pytest.approx(old.contexts.moved, abs=1e-3)
    assert compare_texts(*given, permutations=0).halves is not None
