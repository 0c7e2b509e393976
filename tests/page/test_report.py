"""The report as a result: its numbers, what it is made of, loading, saving, and what `verify` finds."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tokengeom as tg
from forging import forge_report
from pipeline_cases import QUICK, plain_page, quick, results_of
from tokengeom import Run, verify
from tokengeom.core.errors import InputError, MissingExtraError
from tokengeom.page.cache import key_of, require_place
from tokengeom.page.render import render
from tokengeom.page.report import Report, report
from tokengeom.results.manifests import as_json, sealed

OPTIONS = {name: value for name, value in QUICK.items() if name in ("steps", "dim", "permutations", "transformer")}


@pytest.fixture(autouse=True)
def _plain_page(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_page(monkeypatch)


@pytest.fixture
def copy(finished: Report, tmp_path: Path) -> Path:
    """The folder of a copy of the page and of its results."""
    shutil.copytree(finished.page.parent, tmp_path / "copy")
    return tmp_path / "copy"


def test_the_numbers_are_those_of_the_verbs(finished: Report, text: Path) -> None:
    stats = tg.count(text, context=2).limited(top_contexts=30, vocabulary=20, rest="merge")
    assert finished.contents.stats.equals(stats)
    found = finished.to_dict()
    assert (found["windows"], found["contexts"], found["vocabulary"]) == (stats.n, stats.m, stats.V)
    assert found["nuclear_norm"] == pytest.approx(tg.predict(stats).nuclear_norm, rel=1e-5)
    run = finished.contents.runs["unconstrained features"]
    direct = tg.compare(tg.predict(stats), [run, *finished.contents.repeats["unconstrained features"]], permutations=20)
    headline = {"support_agreement", "context_agreement", "token_agreement"}
    for name in (*headline, "context_similarity", "token_similarity"):
        assert found[name]["value"] == pytest.approx(getattr(direct, name).value, abs=2e-3), name
        assert {"low", "high", "floor", "attainable", "explained"} <= set(found[name])
    assert (found["verdict"], found["model"]) == (direct.verdict, "unconstrained features")
    assert set(found["in_limit"]) == headline
    assert finished.summary().startswith(f"unconstrained features: {found['reasons'][0]}")
    assert {"versions", "machine", "seeds", "settings", "hashes", "seconds"} <= set(finished.contents.provenance)


def test_a_missing_page_package_is_named_before_any_work(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokengeom.page.report.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"tokengeom\[report\]"):
        quick(text, tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_report_is_made_from_statistics_in_memory_and_in_a_folder(text: Path, tmp_path: Path) -> None:
    stats = tg.count(text, context=2).limited(top_contexts=30, vocabulary=20)
    made = report(stats, tmp_path / "page.html", **OPTIONS)
    assert made.contents.stats.equals(stats)
    assert made.contents.title == "stories.txt"
    stats.save(tmp_path / "saved")
    assert report([tmp_path / "saved"], tmp_path / "page.html", **OPTIONS).made == ()
    assert report(stats, tmp_path / "page.html", **OPTIONS, vocabulary=10, rest="drop").contents.stats.V == 10


def test_a_comparison_in_memory_has_a_page_without_results(text: Path, tmp_path: Path) -> None:
    stats = tg.count(text, context=2).limited(top_contexts=30, vocabulary=20)
    prediction, run = tg.predict(stats), tg.train(stats, "ufm", dim=4, steps=5)
    made = report(tg.compare(prediction, run, permutations=0), tmp_path / "page.html")
    assert made.page.read_text().endswith("<title>stories.txt</title>")
    assert made.results is None
    with pytest.raises(InputError, match=r"comparison\.save"):
        made.save(tmp_path / "saved")
    with pytest.raises(InputError, match="in the same session"):
        report(tg.compare(prediction, (run.W, run.H), permutations=0, at_loss=False), tmp_path / "page.html")


def test_report_is_a_function_before_and_after_its_modules_are_imported() -> None:
    code = (
        "import tokengeom as tg; before = tg.report; import tokengeom.page.source_text; import tokengeom.page.report;"
        "import inspect; assert inspect.isfunction(before) and before is tg.report is tokengeom.page.report.report;"
        "from tokengeom.core.errors import InputError\n"
        "try: tg.report(['a b'], out='.', preset='huge')\n"
        "except InputError as error: assert 'preset' in str(error), error\n"
        "else: raise SystemExit('nothing was refused')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_signature_shows_every_setting() -> None:
    shown = inspect.signature(report).parameters
    assert {"source", "out", "progress", "preset", "steps", "tokenizer", "separator_id", "format"} <= set(shown)
    assert shown["permutations"].default == 200
    assert shown["seeds"].default is None
    with pytest.raises(InputError, match=r"report has no setting 'step'. Did you mean 'steps'"):
        report(["a b"], step=3)  # type: ignore[call-arg]


def test_a_folder_is_refused_as_a_page(text: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        quick(text, tmp_path)


@pytest.mark.parametrize("name", ["page", "page.txt", "page.html.gz"])
def test_a_page_that_does_not_end_in_html_is_refused_before_any_work(text: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"must end in \.html or \.htm; got .*" + name.replace(".", r"\.")):
        quick(text, tmp_path / "new" / name)
    assert list(tmp_path.iterdir()) == []
    for good in ("page.html", "page.htm", "PAGE.HTML"):
        require_place(tmp_path / good)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "page-results").rglob("*") if path.is_file())


def test_an_intact_report_passes_in_any_folder(copy: Path) -> None:
    found = verify(copy / "page-results")
    assert found.ok, found.failed
    said = " ".join(found.checked)
    for words in (
        "the logits are feasible",
        "the loss gap is that of W and H",
        "computed again, it has the same agreements",
        "the verdict and its reasons follow from the numbers",
        "at-loss-ufm-gamma2: it is about these statistics",
        "page: rendered again from the results, it is the same",
    ):
        assert words in said


def test_one_changed_byte_in_any_file_is_found(copy: Path) -> None:
    for path in [*files(copy), copy / "page.html"]:
        content = path.read_bytes()
        if path == copy / "page-results/manifest.json":
            continue
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        assert not verify(copy / "page-results"), path
        path.write_bytes(content)
    assert verify(copy / "page-results")


def test_a_missing_and_an_added_file_are_found(copy: Path) -> None:
    for path in [*files(copy)[:-1], copy / "page.html"]:
        if path == copy / "page-results/manifest.json":
            continue
        kept = path.read_bytes()
        path.unlink()
        assert not verify(copy / "page-results"), path
        path.write_bytes(kept)
    for name in ("notes.txt", "statistics/notes.txt"):
        added = copy / "page-results" / name
        added.write_text("x")
        assert not verify(copy / "page-results"), name
        added.unlink()
    assert verify(copy / "page-results")


def rewritten(folder: Path, change: object) -> None:
    """Change the record and seal it again, as a forger would."""
    manifest = folder / "page-results/manifest.json"
    record = json.loads(manifest.read_text())
    change(record)  # type: ignore[operator]
    manifest.write_bytes(as_json(sealed(record)))


@pytest.mark.parametrize("field", ["seconds", "machine", "command", "space"])
def test_a_changed_record_is_found(copy: Path, field: str) -> None:
    manifest = copy / "page-results/manifest.json"
    record = json.loads(manifest.read_text())
    match field:
        case "seconds":
            record["stages"]["run-ufm"]["seconds"] += 1.0
        case "machine":
            record["machine"]["cores"] = 999
        case "command":
            record["command"] = {"name": "another"}
    manifest.write_bytes(as_json(record) + (b" " if field == "space" else b""))
    assert verify(copy / "page-results").failed == (
        "every file has the hash in the manifest (manifest.json was changed)",
    )


def test_inputs_that_do_not_give_the_key_are_found(copy: Path) -> None:
    rewritten(copy, lambda record: record["stages"]["run-ufm"]["inputs"]["training"].update(seed=5))
    assert verify(copy / "page-results").failed == ("run-ufm: its key is that of its inputs",)


def test_a_stage_from_another_report_is_found(copy: Path) -> None:
    def forge(record: dict[str, dict[str, dict[str, object]]]) -> None:
        entry = record["stages"]["statistics"]
        entry["inputs"]["text"] = "another"  # type: ignore[index]
        entry["key"] = key_of("statistics", entry["inputs"])  # type: ignore[arg-type]

    rewritten(copy, forge)
    failed = verify(copy / "page-results").failed
    assert "prediction: it was made from the results beside it" in failed
    assert "page: it was made from the results beside it" in failed


def test_numbers_that_cannot_be_recomputed_are_found_although_the_hashes_match(copy: Path) -> None:
    folder = copy / "page-results/run-ufm"
    run = Run.load(folder)
    forge_report(copy / "page-results", replace(run, W=2 * run.W).save, "run-ufm")
    failed = verify(copy / "page-results").failed
    assert "run-ufm: the loss gap is that of W and H" in failed
    assert "comparison-ufm: computed again, it has the same agreements" in failed


def test_a_page_in_another_folder_is_not_read(copy: Path) -> None:
    rewritten(copy, lambda record: record["page"].update(name="../copy/page.html"))
    assert "must be a plain name" in verify(copy / "page-results").failed[0]


def test_a_folder_of_results_is_checked_one_by_one(copy: Path, tmp_path: Path) -> None:
    for name in ("statistics", "prediction"):
        shutil.copytree(copy / "page-results" / name, tmp_path / "plain" / name)
    assert verify(tmp_path / "plain").ok
    (tmp_path / "plain/statistics/vocabulary.parquet").write_bytes(b"")
    assert verify(tmp_path / "plain").failed == (
        "statistics: every file has the hash in the manifest (vocabulary.parquet is missing, changed or added)",
    )
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no saved result"):
        verify(tmp_path / "empty")


def test_an_unfinished_report_fails_and_does_not_load(copy: Path) -> None:
    rewritten(copy, lambda record: record["page"].clear())
    assert "the report is finished" in verify(copy / "page-results").failed
    with pytest.raises(InputError, match="not finished"):
        tg.load(copy / "page-results")


def test_a_report_loads_with_its_contents(finished: Report, copy: Path) -> None:
    again = tg.load(copy / "page-results")
    assert isinstance(again, Report)
    assert again.page == copy / "page.html"
    assert again.made == ()
    assert again.seconds > 0
    assert (again.contents.title, again.contents.missing) == (finished.contents.title, finished.contents.missing)
    assert again.contents.provenance == finished.contents.provenance
    assert again.contents.stats.equals(finished.contents.stats)
    differ = ("page", "results", "seconds", "made")
    mine, theirs = ({k: v for k, v in one.to_dict().items() if k not in differ} for one in (again, finished))
    assert str(mine) == str(theirs)
    assert "page.html" in again.summary()
    assert len(repr(again)) < 300


def test_a_loaded_report_has_the_stages_of_its_page_alone(copy: Path, text: Path) -> None:
    quick(text, copy / "page.html", transformer=True, steps=12)
    again = tg.load(results_of(quick(text, copy / "page.html", steps=12)))
    assert isinstance(again, Report)
    assert set(again.contents.runs) == {"unconstrained features"}


def test_a_report_is_saved_with_its_page(finished: Report, tmp_path: Path) -> None:
    saved = finished.save(tmp_path / "archive" / "page-results")
    assert verify(saved)
    assert (tmp_path / "archive/page.html").read_bytes() == finished.page.read_bytes()
    assert finished.save(results_of(finished)) == finished.results
    (tmp_path / "other").mkdir()
    (tmp_path / "other/page.html").write_text("a year of work")
    with pytest.raises(InputError, match="was not changed"):
        finished.save(tmp_path / "other" / "page-results")


def test_a_damaged_report_does_not_load(copy: Path) -> None:
    rewritten(copy, lambda record: record["page"]["inputs"].pop("title"))
    with pytest.raises(InputError, match="is damaged"):
        tg.load(copy / "page-results")


def test_a_page_about_token_ids_says_so(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 7, 3000).astype(np.uint16)
    ids.tofile(tmp_path / "ids.bin")
    made = quick(tmp_path / "ids.bin", tmp_path / "page.html")
    assert made.contents.choice.settings["tokenizer"] is None
    assert made.contents.stats.tokenizer is None
    assert "Tokens are the ids in the file" in made.summary()
    page = render(made.contents)
    assert "Tokens are the ids in the file" in page
    assert '<span class="quiet">tokenizer</span> none' in page
    assert tg.verify(results_of(made))
