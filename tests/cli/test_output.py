"""What commands print: JSON without infinities, text for a reader, nothing when quiet; and where figures may go."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tokengeom import NextTokenStatistics
from tokengeom.cli.output import chosen_output, print_result, print_summary, progress_shown, require_figure_path
from tokengeom.core.errors import InputError
from tokengeom.core.progress import SilentProgress


def test_json_has_neither_infinities_nor_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"a": np.inf, "b": np.array([1.0, np.nan]), "c": (np.int64(3), "x"), "e": {"d": -np.inf}}
    with chosen_output(as_json=True):
        print_result(data, lambda console: None)
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.0, None], "c": [3, "x"], "e": {"d": None}}


def test_text_is_printed_unless_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet, printed in ((False, "hello\n"), (True, "")):
        with chosen_output(quiet=quiet):
            print_result({}, lambda console: console.print("hello"))
        assert capsys.readouterr().out == printed


def test_only_the_first_of_several_processes_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    with chosen_output(as_json=True):
        print_result({"a": 1}, lambda console: console.print("hello"))
    assert capsys.readouterr().out == ""


def test_a_summary_says_where_the_result_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stats = NextTokenStatistics.from_counts([[1, 2], [3, 0]])
    stats.save(tmp_path / "stats")
    seal = json.loads((tmp_path / "stats" / "manifest.json").read_text())["seal"]
    print_summary(stats, began=0.0, out=tmp_path / "stats")
    assert f"Saved in {tmp_path / 'stats'}, hash {seal}." in capsys.readouterr().out.replace("\n", "")
    with chosen_output(as_json=True):
        print_summary(stats, began=0.0, out=None, more={"extra": 5})
    data = json.loads(capsys.readouterr().out)
    assert (data["out"], data["extra"], data["contexts"]) == (None, 5, 2)


def test_progress_is_silent_without_a_terminal() -> None:
    with progress_shown() as progress:
        assert isinstance(progress, SilentProgress)


def test_a_figure_needs_a_known_suffix_and_a_folder(tmp_path: Path) -> None:
    require_figure_path(None)
    require_figure_path(tmp_path / "a.png")
    with pytest.raises(InputError, match="must end in"):
        require_figure_path(tmp_path / "a.gif")
    with pytest.raises(InputError, match="must exist"):
        require_figure_path(tmp_path / "none" / "a.png")
