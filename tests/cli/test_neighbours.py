"""``tokengeom neighbours``: tables, JSON, names that would harm a terminal, wrong arguments, completion."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.cells import cell_len

from command_line import assert_one_paragraph, run, say
from tiny_models import build, save, sentences
from tokengeom.cli.neighbours import completed_names
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict
from tokengeom.training.train import train

TOKENS = ["cat", "שָׁלוֹם", "cafe\u0301", "\x1b[31mred", "a " * 60 + "long"]
CONTEXTS = ["the big", "the old", "cat", "\u202ereversed", "tab\tbed"]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Statistics, a prediction and a run, and a prediction without statistics beside it."""
    folder = tmp_path_factory.mktemp("neighbours")
    counts = np.random.default_rng(0).integers(0, 3, (5, 5)) + np.eye(5, dtype=np.int64)
    stats = NextTokenStatistics.from_counts(counts, CONTEXTS, TOKENS)
    stats.save(folder / "stats")
    predict(stats).save(folder / "prediction")
    predict(stats).save(folder / "alone" / "prediction")
    train(stats, "ufm", dim=3, steps=5).save(folder / "run")
    return folder


def test_neighbours_as_a_table_and_as_json(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys, "neighbours", work / "prediction", "CAFE", "-k", 3)
    assert done.code == 0, done.err
    assert "Nearest tokens to the token “cafe\u0301”" in done.out
    table = done.out.splitlines()[1:5]
    assert table[0].split() == ["token", "cosine", "shared", "of"]
    data = json.loads(say(capsys, "neighbours", work / "prediction", "CAFE", "-k", 3, "--json").out)
    assert data["item"] == "cafe\u0301"
    assert data["items"] == "tokens"
    assert [set(one) for one in data["neighbours"]] == [{"name", "index", "cosine", "shared", "size"}] * 3
    assert data["total"] == 4
    assert data["settings"]["k"] == 3


def test_tables_fit_80_columns_and_do_no_harm(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("cat", "the big"):
        done = say(capsys, "neighbours", work / "prediction", name)
        assert done.code == 0, done.err
        assert not {"\x1b", "\u202e"} & set(done.out)
        assert "\\x1b[31mred" in done.out or "reversed" in done.out
        table = done.out.split("\nNearest of")[0].splitlines()
        assert max(map(cell_len, table)) <= 80


def test_a_text_that_names_both_is_a_token(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = say(capsys, "neighbours", work / "prediction", "cat").out
    assert "to the token “cat”" in token
    assert "A context has this name too: ask with items='contexts' (--items contexts)." in token
    assert "to the context “cat”" in say(capsys, "neighbours", work / "prediction", "cat", "--items", "contexts").out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "Neighbours needs RESULT and TEXT"),
        (["prediction"], "Neighbours needs RESULT and TEXT"),
        (["prediction", "kat"], "Did you mean one of these? 'cat'"),
        (["prediction", "the"], "2 names begin with it. Did you mean one of these? 'the"),
        (["prediction", "cat", "-k", "0"], "k must be at least 1; got 0"),
        (["prediction", "cat", "--items", "words"], "'words' is not one of 'tokens', 'contexts'"),
        (["prediction", "cat", "--loss-gap", "-1"], "loss gap"),
        (["alone/prediction", "cat"], "--stats FOLDER"),
        (["stats", "cat"], "tokengeom predict"),
        (["prediction", "cat", "--text", "a.txt"], "--text needs --model PATH"),
        (["prediction", "cat", "--model", "m", "--text", "a.txt"], "leave out RESULT and --stats"),
        (["--model", "m", "--text", "a.txt"], "Which token or context?"),
        (["cat", "--model", "m"], "--model needs --text FILE"),
        (["cat", "--model", "m", "--text", "a.txt", "--proxy"], "--proxy is about predictions"),
    ],
)
def test_wrong_arguments_are_one_paragraph_with_a_remedy(
    work: Path, given: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    done = say(capsys, "neighbours", *given)
    assert_one_paragraph(done)
    assert said in done.err


def test_statistics_can_lie_elsewhere(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = work / "alone" / "prediction"
    assert say(capsys, "neighbours", place, "cat", "--stats", work / "stats").code == 0
    at = say(
        capsys, "neighbours", work / "prediction", "cat", "--loss-gap", 0.1, "--norm", "gamma2", "--tolerance", 0.05
    )
    assert at.code == 0, at.err


def test_the_most_similar_pairs_are_listed(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys, "neighbours", work / "prediction", "--pairs", "-k", 3)
    assert done.code == 0
    assert "Most similar contexts with different supports" in done.out
    for items in ("contexts", "tokens"):
        given = ("neighbours", work / "prediction", "--pairs", "-k", 3, "--items", items, "--json")
        rows = json.loads(say(capsys, *given).out)["rows"]
        assert len(rows) == 3
        assert rows[0]["cosine"] >= rows[2]["cosine"]
        nearest = say(capsys, "neighbours", work / "prediction", rows[0]["first"], "--items", items, "--json").out
        known = {row["name"]: row["cosine"] for row in json.loads(nearest)["neighbours"]}
        assert known[rows[0]["second"]] == pytest.approx(rows[0]["cosine"], abs=1e-8)
    refused = say(capsys, "neighbours", work / "prediction", "cat", "--pairs")
    assert refused.code != 0
    assert "leave out TEXT, or --pairs" in refused.err


def test_a_trained_model_has_neighbours_on_its_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(build("llama"), tmp_path / "model")
    (tmp_path / "text.txt").write_text("\n".join(sentences()))
    given = ["--model", folder, "--text", tmp_path / "text.txt", "--context", 2, "--top-contexts", 20]
    done = say(capsys, "neighbours", *given, sentences()[0].split()[3], "-k", 3, "--json")
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["neighbours"]) == 3


def test_the_tab_key_completes_names(work: Path) -> None:
    words = {"COMP_WORDS": f"tokengeom neighbours {work / 'prediction'} c", "COMP_CWORD": "3"}
    done = run(env={"PATH": "/usr/bin", "_TOKENGEOM_COMPLETE": "complete_bash", **words})
    assert done.stdout.splitlines() == ["cat", "cafe\u0301", "cat"]


@pytest.mark.parametrize("result", [None, "missing", "stats"])
def test_nothing_is_completed_where_no_statistics_are_found(work: Path, result: str | None) -> None:
    given = SimpleNamespace(params={"result": result and str(work / result)})
    assert completed_names(given, "c") == []  # type: ignore[arg-type]
