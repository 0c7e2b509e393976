"""``python -m benchmarks table``: tables and plot of what was measured, from the rows in ``benchmarks/results``.

A page has places, ``<!-- table NAME -->`` to ``<!-- end -->``, which are filled; sentences are left as they are.
docs/benchmarks.md has every job ("jobs") and every machine ("machines"), the README the jobs of `SHORT` ("ratios"), and
the guide to sizes those of `SIZES` ("sizes").
Of a job that was measured several times, the tables show the newest measurement and the plot shows all of them. Rows of
a busy machine stand on the page only, marked as such, and only until the job is measured on a quiet one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.harness import shown_time
from benchmarks.rows import OURS, Row, read

ROOT = Path(__file__).parents[1]
PAGE, README, PLOT = ROOT / "docs" / "benchmarks.md", ROOT / "README.md", ROOT / "docs" / "benchmarks.png"
GUIDE = ROOT / "docs" / "guide" / "how_large_can_i_go.md"
FILLED = (PAGE, README, GUIDE)
PLACE = re.compile(r"<!-- table (\w+) -->\n.*?<!-- end -->", re.DOTALL)
SHORT = (
    ("count 50 million tokens of text, contexts of 4", "Polars group_by"),
    ("L^mm, V=104, 400 distinct supports", "cvxpy + SCS"),
    ("prediction at a loss in the gamma_2 norm, V=20, m=37", "cvxpy + SCS, semidefinite"),
    ("transformer, V=104, m=403, 4 layers, d=128, per step on one GPU", "plain eager PyTorch loop"),
    (
        "compare --model, a small trained model, V=50,257 (1,477 merged), 400 contexts of tinystories/val.txt, with "
        "forward passes",
        "one context at a time, without proof or intervals",
    ),
)
"""Jobs that the README shows, and their fastest peers."""
SIZES = (
    "count 50 million tokens of text, contexts of 4",
    "count 50 million tokens of text, contexts of 4, to saved statistics",
    "count 500 million tokens, to statistics of the 100,000 most frequent contexts",
    "L^mm, V=104, 400 distinct supports",
    "L^mm, V=300, 1,500 distinct supports",
    "L^mm on one GPU, V=4,096, 16,384 supports",
    "L^mm on one GPU, V=10,000, 50,000 supports",
    "L^mm on one GPU, 5,000 tokens, 100,000 contexts of sampled text (4,950 x 92,469 merged)",
    "L^mm on one GPU, GPT-2 tokens, V=50,257, m=4,000",
    "prediction at a loss, V=104, m=382",
    "prediction at a loss, V=104, m=382, at 20 losses",
    "prediction at a loss gap of 0.05 nats, TinyStories, V=1,000, m=4,000",
    "prediction at a loss, GPT-2 tokens, V=50,257 (1,477 merged), m=400",
    "prediction at a loss on one GPU, V=4,096, m=16,384",
    "prediction at a loss gap of 0.1 nats on one GPU, 5,000 tokens, 100,000 contexts of sampled text "
    "(4,963 x 98,507 merged)",
    "gamma_2 norm at a loss gap of 0.3, cold, V=203, m=1000",
    "prediction with ties at a loss, V=65, m=40,000, 142,860 features",
    "W^mm, V=200, d=300, m=1000, supports of 10",
    "compare --model, 135M random weights, V=49,152, 400 contexts, without forward passes",
    "compare --model, a small trained model, V=50,257 (1,477 merged), 400 contexts of tinystories/val.txt, with "
    "forward passes",
    "compare --model, stories260K, 4,000 contexts, without forward passes",
    "UFM, V=104, m=400, d=128, float32, per AdamW step",
    "transformer, V=104, m=403, 4 layers, d=128, per step on one GPU",
)
"""Jobs that the guide to sizes shows."""
MARKERS = "osD^v"
LEGEND: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5), "fontsize": 8, "frameon": False}
NAMES = {
    "counting": "Counting",
    "linear_svm": "Margins of the linear model, Frobenius norm",
    "margin_norms": "Margins of the linear model, other norms",
    "nuclear_svm": "Prediction in the limit",
    "nuclear_svm_gpu": "Prediction in the limit on a GPU",
    "prediction_at_loss": "Prediction at a loss",
    "tied_prediction": "Prediction with ties at a loss",
    "gamma2_at_loss": "Prediction at a loss in the gamma_2 norm",
    "prediction_at_loss_gpu": "Prediction at a loss on a GPU",
    "linear_training": "Training the linear model",
    "ufm_training": "Training unconstrained features",
    "tied_training": "Training tied features",
    "network_training_gpu": "Training networks on a GPU",
    "checkpoint": "Comparing a checkpoint",
    "counting_at_scale": "Counting as the text grows",
    "estimates": "Estimates compared with what the work then took",
}
"""Titles of the benchmarks, in the order of the page."""


@dataclass(frozen=True)
class Line:
    """One line of a table: tokengeom, and the peer of the same run where there is one."""

    own: Row
    peer: Row | None

    @property
    def ratio(self) -> str:
        """Time of the peer over that of tokengeom, with three digits at most."""
        if self.peer is None or self.peer.ratio is None:
            return ""
        return f"{float(f'{self.peer.ratio:.3g}'):,g}"


def newest_lines(rows: Sequence[Row]) -> list[Line]:
    """The newest measurement of every job and peer, on a quiet machine if any; without a peer, a job has one line."""
    own = {(row.job, row.date): row for row in rows if row.side == OURS}
    jobs: dict[str, dict[str, Line]] = {row.job: {} for row in rows}
    for row in sorted(rows, key=lambda row: not row.busy):
        lines = jobs[row.job]
        if row.side != OURS:
            lines[row.side] = Line(own[row.job, row.date], row)
        elif not set(lines) - {OURS}:
            lines[OURS] = Line(row, None)
    return [line for lines in jobs.values() for side, line in lines.items() if side != OURS or len(lines) == 1]


def jobs_table(rows: Sequence[Row]) -> str:
    """Every job, benchmark by benchmark."""
    lines = newest_lines(rows)
    parts = []
    for benchmark in sorted({row.benchmark for row in rows}, key=list(NAMES).index):
        found = [line for line in lines if line.own.benchmark == benchmark]
        head = ["| job | tokengeom | peer | ratio | runs | date |", "|---|---|---|---|---|---|"]
        parts.append("\n".join([f"### {NAMES[benchmark]}", "", *head, *map(_full, found)]))
    return "\n\n".join(parts)


def _full(line: Line) -> str:
    own, peer = line.own, line.peer
    other = "" if peer is None else f"{peer.side}: {_side(peer)}"
    cells = [own.job, _side(own), other, line.ratio, own.repeats, own.date[:10]]
    return f"| {' | '.join(cells)} |"


def _side(row: Row) -> str:
    """Time, memory, accuracy and note."""
    memory = "" if row.gigabytes is None else f" in {row.gigabytes:.2f} GB"
    time = "" if row.seconds is None else f"{shown_time(row.seconds)}{memory}"
    busy = f"**busy machine** ({row.busy})" if row.busy else ""
    return ", ".join(part for part in (time, row.accuracy, row.note, busy) if part) or "time not kept"


def short_table(rows: Sequence[Row]) -> str:
    """The jobs of the README."""
    quiet = [row for row in rows if not row.busy]
    lines = {(line.own.job, line.peer.side): line for line in newest_lines(quiet) if line.peer is not None}
    head = ["| job | tokengeom | peer | ratio |", "|---|---|---|---|"]
    return "\n".join([*head, *(_brief(lines[key]) for key in SHORT if key in lines)])


def sizes_table(rows: Sequence[Row]) -> str:
    """The jobs of the guide to sizes."""
    own = {line.own.job: line.own for line in newest_lines(rows)}
    head = ["| job | machine | time, memory and accuracy | runs | date |", "|---|---|---|---|---|"]
    found = [own[job] for job in SIZES if job in own]
    return "\n".join(
        [*head, *(f"| {row.job} | {row.machine} | {_side(row)} | {row.repeats} | {row.date[:10]} |" for row in found)]
    )


def _brief(line: Line) -> str:
    assert line.peer is not None, "the README shows ratios"
    times = [shown_time(row.seconds) if row.seconds is not None else "" for row in (line.own, line.peer)]
    return f"| {line.own.job} | {times[0]} | {line.peer.side}: {times[1]} | {line.ratio} |"


def machines_table(rows: Sequence[Row]) -> str:
    """Date, machine, versions, commit and largest load of every day of measurements, by benchmark."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.benchmark, row.date[:10], row.machine), []).append(row)
    lines = ["| benchmark | date | machine | versions | load | commit |", "|---|---|---|---|---|---|"]
    for (benchmark, date, machine), found in sorted(groups.items(), key=lambda item: item[0]):
        versions = {name: one for row in found for name, one in row.versions.items()}
        loads = [row.load for row in found if row.load is not None]
        commits = ", ".join(dict.fromkeys(row.commit for row in found if row.commit)) or "not recorded"
        load = "not recorded" if not loads else f"{min(loads):.1f} to {max(loads):.1f}"
        named = ", ".join(f"{name} {one}" for name, one in versions.items()) or "not recorded"
        lines.append(f"| {benchmark} | {date} | {machine} | {named} | {load} | {commits} |")
    return "\n".join(lines)


def filled(page: str, rows: Sequence[Row]) -> str:
    """A page with its places filled."""
    makers = {"jobs": jobs_table, "machines": machines_table, "ratios": short_table, "sizes": sizes_table}

    def table(place: re.Match[str]) -> str:
        if place[1] not in makers:
            return place[0]
        return f"<!-- table {place[1]} -->\n{makers[place[1]](rows)}\n<!-- end -->"

    return PLACE.sub(table, page)


def draw(rows: Sequence[Row]) -> Any:
    """Ratios of the README's jobs against the date of their measurement, on a logarithmic scale."""
    from matplotlib.dates import ConciseDateFormatter
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.5), layout="constrained")
    axes: Any = figure.subplots()
    last = []
    for marker, (job, peer) in zip(MARKERS, SHORT, strict=True):
        found = [row for row in rows if (row.job, row.side) == (job, peer) and row.ratio is not None and not row.busy]
        if found:
            ratios = [row.ratio for row in found if row.ratio is not None]
            dates = [datetime.fromisoformat(row.date) for row in found]
            axes.plot(dates, ratios, f"{marker}-", markersize=6, linewidth=1.2, label=f"{job}\n  compared with {peer}")
            last.append(ratios[-1])
    axes.set(yscale="log", ylabel="time of the peer / time of tokengeom", title="Measured ratios by date")
    axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator()))
    order = sorted(range(len(last)), key=lambda place: -last[place])
    lines = axes.get_lines()
    axes.axhline(1.0, color="0.6", linewidth=0.8)
    axes.legend([lines[place] for place in order], [lines[place].get_label() for place in order], **LEGEND)
    return figure


def write_all() -> None:
    """Write the pages and the plot."""
    rows = read()
    for path in FILLED:
        path.write_text(filled(path.read_text(encoding="utf-8"), rows), encoding="utf-8")
    draw(rows).savefig(PLOT, dpi=150, metadata={"Software": None})
