"""Rebuilds the tables and figures of docs/results from the rows that are kept here: ``python results/make_pages.py``.

A page docs/results/NAME.md has places for tables, ``<!-- table NAME -->`` to ``<!-- end -->``, and shows pictures
NAME-FIGURE.png. Both are written from the rows in results/NAME; sentences are left as they are. docs/index.md has one
table, of `INDEX_STUDY`.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
from pathlib import Path

from tokengeom_studies.base import Findings, Table, find_study, study_names
from tokengeom_studies.common.measured import AbstractMeasuredStudy

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "results"
INDEX, INDEX_STUDY = ROOT / "docs" / "index.md", "explained-share"
CHECKSUMS = ROOT / "results" / "CHECKSUMS"
PLACE = re.compile(r"<!-- table ([^>]+?) -->\n.*?<!-- end -->", re.DOTALL)


def kept_studies() -> dict[str, Path]:
    """Names of the studies with kept rows -> their folders."""
    folders = sorted(path.parent for path in (ROOT / "results").glob("*/*.jsonl"))
    named = {folder.name.replace("_", "-"): folder for folder in folders}
    return {name: folder for name, folder in named.items() if name in study_names()}


def kept_findings(name: str) -> Findings:
    """What a study finds in its kept rows."""
    study = find_study(name)
    assert isinstance(study, AbstractMeasuredStudy), name
    return study.from_kept(kept_studies()[name])


def markdown(table: Table) -> str:
    """A table with one row per line."""
    lines = [f"| {' | '.join(table)} |", "|" + "---|" * len(table)]
    lines += [f"| {' | '.join(map(_cell, row))} |" for row in zip(*table.values(), strict=True)]
    return "\n".join(lines)


def _cell(value: object) -> str:
    missing = isinstance(value, float) and math.isnan(value)
    text = "-" if missing else f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def with_tables(page: str, findings: Findings) -> str:
    """A page with the tables of findings in their places."""

    def filled(place: re.Match[str]) -> str:
        return f"<!-- table {place[1]} -->\n{markdown(findings.tables[place[1]])}\n<!-- end -->"

    return PLACE.sub(filled, page)


def rows_files() -> list[Path]:
    """All files of kept rows."""
    return sorted((ROOT / "results").glob("*/**/*.jsonl"))


def fingerprint(path: Path, lines: int | None = None) -> str:
    """Hash of the first lines of a file, or of all of them."""
    return hashlib.sha256(b"".join(path.read_bytes().splitlines(keepends=True)[:lines])).hexdigest()


def known_fingerprints() -> dict[str, tuple[int, str]]:
    """File -> number of its lines and their hash, as `CHECKSUMS` has them."""
    listed = [line.split() for line in CHECKSUMS.read_text(encoding="utf-8").splitlines()]
    return {name: (int(lines), digest) for digest, lines, name in listed}


def changed_rows() -> list[str]:
    """Files whose known lines are not what they were: rows may be added, and never changed or removed."""
    known = {ROOT / "results" / name: facts for name, facts in known_fingerprints().items()}
    return [
        path.name for path, (lines, digest) in known.items() if not path.is_file() or fingerprint(path, lines) != digest
    ]


def write_checksums() -> None:
    """Add new rows to `CHECKSUMS`; refuse where a known one was changed."""
    if changed := changed_rows():
        raise SystemExit(
            f"Rows were changed or removed in {', '.join(changed)}: withdraw a row, with a reason, instead."
        )
    listed = [(fingerprint(path), len(path.read_bytes().splitlines()), path) for path in rows_files()]
    lines = [f"{digest} {count} {path.relative_to(ROOT / 'results')}\n" for digest, count, path in listed]
    CHECKSUMS.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    """Write every page and figure, and the checksums of the rows."""
    from tokengeom.extending import save_static

    write_checksums()
    for name in sys.argv[1:] or kept_studies():
        findings, page = kept_findings(name), PAGES / f"{name.replace('-', '_')}.md"
        page.write_text(with_tables(page.read_text(encoding="utf-8"), findings), encoding="utf-8")
        if name == INDEX_STUDY:
            INDEX.write_text(with_tables(INDEX.read_text(encoding="utf-8"), findings), encoding="utf-8")
        for figure in findings.figures:
            save_static(figure, PAGES / f"{name.replace('-', '_')}-{figure.name}.png")
        sys.stdout.write(f"{page.relative_to(ROOT)}: {len(findings.tables)} tables, {len(findings.figures)} figures\n")


if __name__ == "__main__":
    main()
