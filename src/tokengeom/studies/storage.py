"""Findings on disk: the recipe, the checks, every figure drawn and as data, every table as Parquet."""

from __future__ import annotations

from pathlib import Path

from tokengeom.figures.data import save_data
from tokengeom.figures.interactive import save_interactive
from tokengeom.figures.static import save_static
from tokengeom.folders import write_manifest, written_beside
from tokengeom.studies.base import AbstractStudy, Findings, Recipe

FORMAT, FORMAT_VERSION = "tokengeom-findings", 1


def save_findings(study: AbstractStudy, recipe: Recipe, findings: Findings, folder: Path) -> None:
    """Write everything that a study found; an older result of that name is replaced once the new one is whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with written_beside(folder, FORMAT) as work:
        for figure in findings.figures:
            save_static(figure, work / f"{figure.name}.png")
            save_static(figure, work / f"{figure.name}.svg")
            save_interactive(figure, work / f"{figure.name}.html")
            save_data(figure, work / f"{figure.name}-data")
        for name, columns in findings.tables.items():
            pq.write_table(pa.table({key: list(values) for key, values in columns.items()}), work / f"{name}.parquet")
        content = {
            "study": study.name,
            "question": study.question,
            "recipe": dict(recipe),
            "passed": findings.passed,
            "sentence": findings.sentence,
            "checks": [{**vars(check), "passed": check.passed} for check in findings.checks],
        }
        write_manifest(work, FORMAT, FORMAT_VERSION, content)
