"""A text with its own supports and counts, on a recipe that takes seconds: what it reads, finds and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from study_cases import failed, run_study
from tokengeom import NextTokenStatistics
from tokengeom.extending import InputError
from tokengeom_studies.base import Findings
from tokengeom_studies.natural_text import _places

SMALL: dict[str, Any] = {
    "stories": 300, "context": 3, "contexts": 100, "vocabulary": 40, "layers": 1, "heads": 2, "steps": 100,
    "learning_rate": 1e-2, "draws": 20, "dim": 48, "ufm_steps": 500, "ufm_learning_rate": 1e-2, "support": "count:2",
}  # fmt: skip


def run(**changes: Any) -> Findings:
    return run_study("natural-text", **{**SMALL, **changes})


@pytest.fixture(scope="module")
def found() -> Findings:
    return run()


@pytest.mark.slow
def test_a_small_recipe_passes(found: Findings) -> None:
    assert failed(found) == []


@pytest.mark.slow
def test_an_untrained_transformer_fails() -> None:
    assert "transformer, raw supports: agreement of contexts gained in training" in failed(run(steps=1))


@pytest.mark.slow
def test_built_in_stories_are_not_called_natural(found: Findings) -> None:
    assert "which a grammar writes and which are not natural text" in found.sentence


def random_text(path: Path, followers: int) -> Path:
    """40 documents of 60 tokens out of 12, each followed by that many others, with a separator between them."""
    rng = np.random.default_rng(0)
    documents = []
    for _ in range(40):
        walk = np.cumsum(rng.integers(1, followers + 1, 60)) % 12
        documents.append(" ".join(f"w{i}" for i in walk))
    path.write_text(" @@ ".join(documents))
    return path


def test_a_given_text_is_read_and_named(tmp_path: Path) -> None:
    path = random_text(tmp_path / "diary.txt", followers=4)
    changes = {"context": 1, "steps": 2, "ufm_steps": 30, "support": "count:50"}
    findings = run(text=str(path), separator="@@", **changes)
    assert "diary.txt" in findings.sentence
    assert "grammar" not in findings.sentence
    assert str(tmp_path) not in findings.sentence
    windows = findings.tables["supports"]["windows"]
    # 40 documents of 60 tokens have 59 windows each, and no window spans two documents.
    assert windows[0] == 40 * 59
    assert windows[1] < windows[0]
    assert findings.tables["supports"]["supports"][0] == 12


def test_a_text_in_which_every_token_follows_every_context_is_refused(tmp_path: Path) -> None:
    path = random_text(tmp_path / "soup.txt", followers=12)
    with pytest.raises(InputError, match=r"all 12 tokens follow each of the 12 contexts .*longer context"):
        run(text=str(path), separator="@@", context=1)


def test_cut_contexts_are_found_among_the_raw_contexts() -> None:
    contexts = np.array([[1, 2], [1, 3], [2, 2], [4, 1]], np.int32)
    counts = np.array([[5, 1, 4, 1], [2, 1, 1, 6]])
    raw = NextTokenStatistics.from_counts(counts, contexts=contexts)
    cut = raw.limited(support="count:2")
    assert cut.m == 3
    assert _places(raw, cut).tolist() == [0, 2, 3]


def test_the_second_policy_must_differ_from_raw() -> None:
    with pytest.raises(InputError, match="support='raw'"):
        run(support="raw")
