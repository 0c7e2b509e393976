"""A forged report: one number is changed and every hash is written anew; verifying it names what was changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokengeom as tg
from forging import Entry, forge, forge_entry, forge_json, forge_record, forge_report
from pipeline_cases import plain_page, quick, results_of, write_text
from tokengeom.core.errors import InputError
from tokengeom.core.progress import SilentProgress
from tokengeom.core.system import file_hash
from tokengeom.corpus.stories import stories
from tokengeom.page.cache import key_of
from tokengeom.page.chosen_settings import Choice, choose
from tokengeom.page.report import Report
from tokengeom.page.settings import ReportSettings
from tokengeom.page.source_text import find_text
from tokengeom.results.contract import ALONE
from tokengeom.results.manifests import MANIFEST, read_seal
from tokengeom.verification import reports
from tokengeom.verification.verify import Verification, verify


@pytest.fixture
def results(finished: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the results, with the page beside them."""
    plain_page(monkeypatch)
    shutil.copytree(finished.page.parent, tmp_path / "copy")
    return tmp_path / "copy" / "page-results"


def in_json(file: str, entry: Entry | str, change: Callable[[Any], Any]) -> Callable[[Path], object]:
    return lambda folder: forge_json(folder, file, entry, change)


def in_manifest(entry: Entry | str, change: Callable[[Any], Any]) -> Callable[[Path], object]:
    return lambda folder: forge_entry(folder, entry, change)


def in_record(column: str, place: int) -> Callable[[Path], object]:
    def forged(folder: Path) -> object:
        table = pq.read_table(folder / "trajectory.parquet")
        values = table[column].to_numpy().copy()
        values[place] *= 1.01
        changed = table.set_column(table.column_names.index(column), column, pa.array(values))
        pq.write_table(changed, folder / "trajectory.parquet")
        return forge(folder)

    return forged


FORGERIES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "interval": (
        "comparison-ufm",
        in_json("comparison.json", ("agreements", "limit_token_agreement", "low"), lambda x: x - 0.01),
        "comparison-ufm: computed again, it has the same agreements",
    ),
    "what is reproducible": (
        "comparison-ufm",
        in_json("comparison.json", ("agreements", "nuclear_context_agreement", "reproducible"), lambda x: x - 0.01),
        "comparison-ufm: computed again, it has the same agreements",
    ),
    "efficiency": (
        "comparison-ufm",
        in_json("comparison.json", ("disagreement", "efficiency"), lambda x: x + 0.01),
        "comparison-ufm: computed again, it has the same disagreement",
    ),
    "permutations": ("comparison-ufm", in_json("comparison.json", "permutations", lambda x: 40), "settings are those"),
    "order of rivals": (
        "rivals-ufm",
        in_json("rivals.json", ("rows", 2, "agreement", "mean"), lambda x: x + 0.5),
        "rivals-ufm: explanations are in the order",
    ),
    "norm in the last record": ("run-ufm", in_record("norm_H", -1), "run-ufm: loss gap and norms"),
    "agreement in the last record": (
        "run-ufm",
        in_record("limit_context_agreement", -1),
        "run-ufm: its last record has the agreement",
    ),
    "loss in the first record": ("run-ufm-2", in_record("loss_gap", 0), "run-ufm-2: the loss gap of the first record"),
    "entropy of a run": ("run-ufm", in_manifest(("results", 0, "entropy"), lambda x: x + 0.1), "run-ufm: the entropy"),
    "seed of a run": ("run-ufm-2", in_manifest(("results", 0, "settings", "seed"), lambda x: 9), "settings are those"),
    "statistics of a run": (
        "run-ufm",
        in_manifest(("results", 0, "statistics_hash"), lambda x: 64 * "0"),
        "run-ufm: it is about these statistics",
    ),
}


@pytest.mark.parametrize(("stage", "forged", "named"), FORGERIES.values(), ids=list(FORGERIES))
def test_a_forgery_is_named(results: Path, stage: str, forged: Callable[[Path], object], named: str) -> None:
    made = read_seal(results)
    forge_report(results, forged, stage)
    found = verify(results)
    assert any(named in sentence for sentence in found.failed), found.failed
    assert "the result's hash is the expected one" in verify(results, expect=made).failed


def test_a_genuine_report_is_consistent_and_says_what_was_not_checked(results: Path) -> None:
    found = verify(results)
    assert found.ok, found.failed
    assert verify(results, expect=read_seal(results)).ok
    assert reports.NOT_CHECKED in found.not_checked
    assert any(sentence.startswith("run-ufm, run-ufm-2: records before") for sentence in found.not_checked)
    assert len(found.not_checked) < 15


def test_the_page_is_rendered_again(results: Path) -> None:
    """A page whose text was changed together with its hash, and a title that was changed in the record alone."""
    page = results.parent / "page.html"
    page.write_text(page.read_text() + "All is well.")
    forge_record(results, lambda record: record["page"].update(sha256=file_hash(page)))
    assert verify(results).failed == ("page: rendered again from the results, it is the same",)


def test_a_forged_title_is_found_on_the_page(results: Path) -> None:
    def retitle(record: dict[str, Any]) -> None:
        record["page"]["inputs"]["title"] = "another text"
        record["page"]["key"] = key_of("page", record["page"]["inputs"])

    forge_record(results, retitle)
    assert verify(results).failed == ("page: rendered again from the results, it is the same",)


def test_the_page_of_another_version_or_machine_is_not_rendered_again(results: Path) -> None:
    def change(name: str, value: object) -> Callable[[dict[str, Any]], None]:
        def changed(record: dict[str, Any]) -> None:
            record["page"]["inputs"][name] = value
            record["page"]["key"] = key_of("page", record["page"]["inputs"])

        return changed

    forge_record(results, change("packages", {"plotly": "0.1"}))
    assert any("with another plotly" in sentence for sentence in verify(results).not_checked)
    forge_record(results, change("code", "another"))
    found = verify(results)
    assert found.ok
    assert any("another version of tokengeom wrote it" in sentence for sentence in found.not_checked)


def test_the_page_of_another_machine_may_differ(results: Path) -> None:
    page = results.parent / "page.html"
    page.write_text(page.read_text() + " ")

    def change(record: dict[str, Any]) -> None:
        record["page"]["sha256"] = file_hash(page)
        record["page"]["provenance"]["machine"]["cores"] = 1000

    forge_record(results, change)
    found = verify(results)
    assert found.ok
    assert any("made on another machine" in sentence for sentence in found.not_checked)


def test_a_page_that_states_other_seconds_or_hashes_is_found(results: Path) -> None:
    forge_record(results, lambda record: record["page"]["provenance"]["seconds"].update(statistics=99.0))
    assert "page: the hashes and seconds that it states are those of the stages" in verify(results).failed


def test_a_comparison_with_another_run_is_found(results: Path) -> None:
    """A comparison that names a run which is not among the stages would otherwise not be computed again."""
    forge_report(
        results,
        in_json("comparison.json", ("made_from", "runs"), lambda seals: [64 * "0", *seals[1:]]),
        "comparison-ufm",
    )
    assert verify(results).failed == ("comparison-ufm: the results that it names are those beside it",)


def test_a_stage_of_another_kind_is_found(results: Path) -> None:
    def swapped(folder: Path) -> None:
        shutil.rmtree(folder)
        shutil.copytree(results / "statistics", folder)

    forge_report(results, swapped, "rivals-ufm")
    assert "rivals-ufm: its kind is that of such a stage" in verify(results).failed


@pytest.mark.parametrize("name", ["../secret", "/tmp", "..", "a/b"])
def test_a_stage_outside_the_folder_is_not_read(results: Path, name: str) -> None:
    forge_record(results, lambda record: record["stages"].update({name: record["stages"]["statistics"]}))
    assert "is not a folder inside it" in verify(results).failed[0]
    with pytest.raises(InputError, match="is not a folder inside it"):
        tg.load(results)


def test_links_are_not_followed(results: Path) -> None:
    (results / "statistics").rename(results.parent / "moved")
    (results / "statistics").symlink_to(results.parent / "moved")
    assert "is a link" in verify(results).failed[0]
    (results / "statistics").unlink()
    (results.parent / "moved").rename(results / "statistics")
    assert verify(results).ok
    (results.parent / "page.html").rename(results.parent / "other.html")
    (results.parent / "page.html").symlink_to(results.parent / "other.html")
    assert "page: it has the hash in the record" in verify(results).failed


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        (("stages",), []),
        (("stages", "run-ufm"), None),
        (("stages", "run-ufm", "seconds"), "1"),
        (("stages", "run-ufm", "inputs"), 3),
        (("stages", "run-ufm", "inputs", "stages"), [1]),
        (("stages", "run-ufm", "manifest"), 5),
        (("page", "provenance"), []),
        (("page", "inputs", "title"), None),
        (("page", "inputs", "missing"), "nothing"),
        (("page", "inputs", "stages"), {"nothing": "x"}),
        (("page", "name"), "../page.html"),
    ],
)
def test_a_record_that_cannot_be_is_refused(results: Path, entry: Entry, value: object) -> None:
    def change(record: dict[str, Any]) -> None:
        inside: Any = record
        for name in entry[:-1]:
            inside = inside[name]
        inside[entry[-1]] = value

    forge_record(results, change)
    with pytest.raises(InputError, match="page-results is damaged"):
        tg.load(results)
    assert not verify(results).ok


def test_damaged_files_are_named_without_computing_anything_again(results: Path) -> None:
    manifest = results / "run-ufm" / MANIFEST
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(content))
    found = verify(results)
    assert "run-ufm: its manifest is the one in the record" in found.failed
    assert not any("computed again, " in sentence for sentence in found.checked)
    assert any("was not computed again" in sentence for sentence in found.not_checked)
    manifest.write_text("{")
    assert any("run-ufm: the result can be read" in sentence for sentence in verify(results).failed)


@pytest.mark.slow
def test_the_whole_report_is_computed_and_rendered_again(tmp_path: Path) -> None:
    made = quick(write_text(tmp_path / "stories.txt"), tmp_path / "page.html")
    found = verify(results_of(made))
    assert found.ok, found.failed
    assert any("rivals-ufm: computed again, it has the same rows" in sentence for sentence in found.checked)
    folder = results_of(made)
    forge_report(folder, in_json("rivals.json", ("rows", 20, "similarity", "value"), lambda x: x + 0.01), "rivals-ufm")
    assert any("rivals-ufm: computed again" in sentence for sentence in verify(folder).failed)


@pytest.fixture
def beside_statistics(tmp_path: Path) -> Path:
    """A choice for a text, and the statistics that were counted with it."""
    documents = list(islice(stories(0), 200))
    choice = choose(find_text(documents, tg.ReadingSettings()), ReportSettings(), SilentProgress())
    tg.count(documents, **choice.settings).save(tmp_path / "statistics")
    return choice.save(tmp_path / "choice")


def verified(folder: Path) -> Verification:
    """A choice as a report checks it, with the statistics that were counted with it."""
    stats = tg.NextTokenStatistics.load(folder.parent / "statistics")
    return Verification.of(reports.check_choice(Choice.load(folder), ALONE, stats))


def test_a_choice_alone_is_not_compared_with_any_statistics_beside_it(beside_statistics: Path) -> None:
    found = verify(beside_statistics)
    assert found.ok, found.failed
    assert not any("those of the statistics" in sentence for sentence in found.checked)


def test_a_choice_is_checked_with_the_statistics_beside_it(beside_statistics: Path) -> None:
    found = verified(beside_statistics)
    assert found.ok, found.failed
    for words in ("best candidate", "those of the statistics"):
        assert any(words in sentence for sentence in found.checked), words
    assert any("the text is not saved" in sentence for sentence in found.not_checked)


@pytest.mark.parametrize(
    ("entry", "change", "failed"),
    [
        ("candidates", lambda rows: [{**row, "score": 1 - row["score"]} for row in rows], "best candidate"),
        ("candidates", lambda rows: [{**row, "chosen": not row["chosen"]} for row in rows], "best candidate"),
        ("candidates", lambda rows: [{**row, "one_hot": row["one_hot"] + 0.01} for row in rows], "those of the stat"),
        ("settings", lambda settings: {**settings, "context": 1}, "best candidate"),
        ("candidates", lambda rows: [{**row, "score": "high"} for row in rows], "can be read"),
    ],
)
def test_a_forged_choice_is_named(
    beside_statistics: Path, entry: str, change: Callable[[Any], Any], failed: str
) -> None:
    forge_json(beside_statistics, "choice.json", entry, change)
    found = verified(beside_statistics)
    assert any(failed in sentence for sentence in found.failed), found.failed
