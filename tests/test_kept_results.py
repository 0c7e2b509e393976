"""Tables of the documentation are those that the kept rows give, and what the pages say of runs is true of the rows."""

from __future__ import annotations

import importlib.util
import math
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from pictures import SAME_PICTURE, changed_share
from tokengeom.extending import save_static
from tokengeom_studies.common.measured import SETTING, chosen, read_rows

ROOT = Path(__file__).parents[1]


def pages_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_pages", ROOT / "results/make_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = pages_script()
kept_findings = cache(PAGES.kept_findings)
NAMES = list(PAGES.kept_studies())


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def differing_cells(now: str, written: str) -> list[tuple[str, str]]:
    """Words of two pages that differ, numbers by more than a unit of their fourth digit: sums round differently on
    another processor."""
    pairs = zip(now.split(), written.split(), strict=True)
    return [(new, old) for new, old in pairs if new != old and not _nearly_equal(new, old)]


def _nearly_equal(new: str, old: str) -> bool:
    try:
        return math.isclose(float(new), float(old), rel_tol=1e-3)
    except ValueError:
        return False


def test_the_tables_of_a_page_are_those_of_its_rows(name: str) -> None:
    page = (ROOT / "docs/results" / f"{name.replace('-', '_')}.md").read_text(encoding="utf-8")
    findings = kept_findings(name)
    assert differing_cells(PAGES.with_tables(page, findings), page) == []
    places = re.findall(r"<!-- table ([^>]+?) -->", page)
    assert "hypotheses" in places
    assert page.count("<!-- end -->") == len(places)


@pytest.mark.parametrize("most", [1, pytest.param(9, marks=pytest.mark.slow)])
def test_the_pictures_of_a_page_are_those_of_its_rows(name: str, most: int, tmp_path: Path) -> None:
    page = (ROOT / "docs/results" / f"{name.replace('-', '_')}.md").read_text(encoding="utf-8")
    for figure in kept_findings(name).figures[:most]:
        picture = f"{name.replace('-', '_')}-{figure.name}.png"
        assert picture in page
        save_static(figure, tmp_path / picture)
        assert changed_share(tmp_path / picture, ROOT / "docs/results" / picture) <= SAME_PICTURE


def test_a_table_that_was_changed_is_written_again() -> None:
    page = (ROOT / "docs/results" / f"{NAMES[0].replace('-', '_')}.md").read_text(encoding="utf-8")
    changed = re.sub(r"(<!-- table hypotheses -->\n).*?(<!-- end -->)", r"\1\2", page, count=1, flags=re.DOTALL)
    assert changed != page
    assert PAGES.with_tables(changed, kept_findings(NAMES[0])) == page


FAILED = {"memory-capacity"}
"""Studies whose rows fail some of the checks that the study makes of its own measurements; their pages say so."""


def test_kept_rows_are_valid_and_say_how_they_were_measured(name: str) -> None:
    findings = kept_findings(name)
    assert findings.passed == (name not in FAILED), findings.summary()
    page = (ROOT / f"docs/results/{name.replace('-', '_')}.md").read_text(encoding="utf-8")
    assert ("own checks fail" in page) == (name in FAILED)
    for path in sorted(PAGES.kept_studies()[name].glob("*.jsonl")):
        setting = chosen(read_rows([path]), kind=SETTING)[0]
        assert {"study", "recipe", "command", "machine", "versions"} <= set(setting)
        assert setting["study"] == name
        # Only relative paths: nothing of the machine.
        assert not [part for part in setting["command"] if part.startswith("/")]


def test_every_kept_study_is_in_the_overview(name: str) -> None:
    overview = (ROOT / "docs/results/README.md").read_text(encoding="utf-8")
    assert f"({name.replace('-', '_')}.md)" in overview


def test_the_table_of_the_first_page_is_that_of_the_rows() -> None:
    page = PAGES.INDEX.read_text(encoding="utf-8")
    assert page.count("<!-- table ") == 1
    assert PAGES.with_tables(page, kept_findings(PAGES.INDEX_STUDY)) == page


def test_kept_rows_are_added_to_and_never_changed() -> None:
    assert PAGES.changed_rows() == []
    known = PAGES.known_fingerprints()
    assert {str(path.relative_to(ROOT / "results")) for path in PAGES.rows_files()} == set(known)


def test_a_changed_row_is_noticed_and_an_added_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "results/some/rows.jsonl"
    rows.parent.mkdir(parents=True)
    rows.write_text('{"a": 1}\n{"a": 2}\n')
    monkeypatch.setattr(PAGES, "ROOT", tmp_path)
    monkeypatch.setattr(PAGES, "CHECKSUMS", tmp_path / "results/CHECKSUMS")
    (tmp_path / "results/CHECKSUMS").write_text(f"{PAGES.fingerprint(rows)} 2 some/rows.jsonl\n")
    rows.write_text('{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    assert PAGES.changed_rows() == []
    PAGES.write_checksums()
    assert PAGES.known_fingerprints()["some/rows.jsonl"][0] == 3
    rows.write_text('{"a": 1}\n{"a": 2}\n')
    assert PAGES.changed_rows() == ["rows.jsonl"]
    with pytest.raises(SystemExit, match="withdraw"):
        PAGES.write_checksums()
