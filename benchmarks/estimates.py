"""Estimates compared with what the work then takes: seconds and memory, and how many are within a factor of 1.5.

    python -m benchmarks.estimates                              # built-in stories and random supports
    python -m benchmarks.estimates --text stories.txt           # and a text, by words, in contexts of 4
    python -m benchmarks.estimates --text stories.txt --model FOLDER       # and reports about a trained model
    python -m benchmarks.estimates --only report                # or predict, simulate, train
    python -m benchmarks.estimates --device cuda                # predictions and trainings on a GPU
    python -m benchmarks.estimates --quick                      # small sizes, seconds

TOKENGEOM_BENCHMARK_TEXT and TOKENGEOM_BENCHMARK_MODEL name a text and a model too.

Every case runs in a process of its own: estimate first, then the work. The estimate counts as within a factor of 1.5 if
the measured duration is within that factor of the range that is stated. Of a report, every stage is shown with what was
announced for it and what it took, and those above 5 s that were not announced, or not within that factor, are listed
again at the end. Memory is the growth of the process, or what PyTorch has allocated on a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Benchmark, grouped_labels, stopwatch
from tokengeom.core.progress import AbstractProgress, AbstractStage
from tokengeom.core.resources import LONG, Estimate

Work = tuple[Callable[[], Estimate], Callable[[], object]]
FACTOR = 1.5
"""A stated range is right if the measured time is within it, or within this factor of it."""
TIES = "positions+suffixes+self"

LIMITS = [(104, 400), (500, 1500), (1000, 4000)]
LOSSES = [(104, 400, 0.1), (104, 400, 0.001), (500, 1500, 0.1), (500, 1500, 0.001)]
TRAININGS: list[tuple[str, dict[str, Any]]] = [
    ("ufm", {"optimizer": "gd", "steps": 5_000}),
    ("ufm", {"optimizer": "adamw", "steps": 5_000}),
    ("ufm", {"optimizer": "adamw", "steps": 5_000, "precision": "float32"}),
    ("transformer", {"layers": 2, "heads": 4, "steps": 200}),
    ("mlp", {"layers": 2, "steps": 500}),
]


def cases(text: str | None, model: str | None, device: str, *, quick: bool) -> list[dict[str, Any]]:
    """What is measured, as arguments of `work`."""
    tied: dict[str, Any] = {"source": "stories", "V": 104, "m": 400, "ties": TIES}
    ties: list[dict[str, Any]] = [
        {"do": "predict", **tied, "loss_gap": 0.3, "norm": norm} for norm in ("nuclear", "gamma2")
    ]
    ties.append({"do": "simulate", **tied, "loss_gap": 0.1, "dim": 64, "replicates": 4, "last_norm": True})
    if quick:
        few: dict[str, Any] = {"source": "stories", "context": 2, "top_contexts": 40, "vocabulary": 30, "steps": 50}
        tied |= {"V": 30, "m": 40}
        return [{"do": "predict", "source": "stories", "V": 30, "m": 40}, {**ties[0], **tied}, {"do": "report", **few}]
    if device != "cpu":
        sizes = [(1000, 4000, 1e-6), (2000, 8000, 1e-6), (4096, 16384, 1e-6)]
        found: list[dict[str, Any]] = [{"do": "solve", "V": V, "m": m, "tolerance": gap} for V, m, gap in sizes]
        found += [{"do": "labels", "V": V, "m": m, "steps": 30_000} for V, m in [(104, 400), (1000, 4000)]]
        return [{**case, "device": device} for case in found]
    sources = ["stories", "random", *([text] if text else [])]
    found = [{"do": "predict", "source": source, "V": V, "m": m} for source in sources for V, m in LIMITS]
    found += [
        {"do": "predict", "source": source, "V": V, "m": m, "loss_gap": gap, "norm": norm}
        for source in sources
        for V, m, gap in LOSSES
        for norm in ("nuclear", "gamma2")
    ]
    found += [{"do": "train", "source": "stories", "V": 104, "m": 400, "model": m, **kw} for m, kw in TRAININGS]
    found += [{"do": "train", "source": "random", "V": 500, "m": 1500, "model": "ufm", "steps": 1000}]
    sources = ["stories", *([text] if text else [])]
    reports: list[dict[str, Any]] = [{"do": "report", "source": source} for source in sources]
    if text and model:
        reports += [{"do": "report", "source": text, "model": model, "ties": names} for names in (None, TIES)]
    return [*found, *ties, *reports]


def statistics(source: str, V: int, m: int) -> Any:
    """Statistics of the built-in stories, of random supports of 1 to 10 tokens, or of a text."""
    import tokengeom as tg

    if source == "stories":
        return tg.count(top_contexts=m, vocabulary=V)
    if source != "random":
        return tg.count(source, tokenizer="word", context=4, top_contexts=m, vocabulary=V)
    rng = np.random.default_rng(0)
    weights = 1.0 / np.arange(1, V + 1)
    counts = np.zeros((V, m), np.int64)
    for j in range(m):
        size = int(rng.integers(1, 11))
        counts[rng.choice(V, size, replace=False, p=weights / weights.sum()), j] = rng.integers(1, 5, size)
    return tg.NextTokenStatistics.from_counts(counts)


def work(case: dict[str, Any]) -> Work:
    """The estimate of a case, and the work itself."""
    kind, device = case.pop("do"), case.get("device", "cpu")
    if kind in ("solve", "labels"):
        return _on_device(kind, case, device)
    import tokengeom as tg

    if kind == "report":
        source, page = case.pop("source"), Path(sys.argv[2]) / "report.html"
        text = None if source == "stories" else source
        return lambda: tg.estimate("report", text, **case), lambda: _parts_of_report(text, page, case)
    stats = statistics(case.pop("source"), case.pop("V"), case.pop("m"))
    verb: Callable[..., object] = getattr(tg, kind)
    return lambda: tg.estimate(kind, stats, **case), lambda: verb(stats, **case)


class Timed(AbstractProgress):
    """Seconds of every part of a report by its title, from the note on the bar of the whole."""

    def __init__(self) -> None:
        self.taken: dict[str, float] = defaultdict(float)
        self._part, self._since = "", 0.0

    def _begin(self, part: str) -> float:
        """End the present part; returns the time."""
        now = time.perf_counter()
        self.taken[self._part] += now - self._since
        self._part, self._since = part, now
        return now

    @contextmanager
    def stage(self, title: str, total: float | None) -> Iterator[AbstractStage]:
        """The bar of the whole; measuring is a part of its own."""
        from tokengeom.page.executor import MEASURING

        before = self._part
        if title in ("Report", MEASURING):
            self._begin(title)
        yield _Parts(self._begin if title == "Report" else lambda part: 0.0)
        if title in ("Report", MEASURING):
            self._begin(before)


class _Parts(AbstractStage):
    def __init__(self, begin: Callable[[str], float]) -> None:
        self._begin = begin

    def advance(self, amount: float, note: str = "") -> None:
        if note:
            self._begin(note)


def _parts_of_report(source: str | None, page: Path, settings: dict[str, Any]) -> dict[str, float]:
    """Seconds of the parts of a report, those that come after counting."""
    import tokengeom as tg

    shown = Timed()
    tg.report(source, page, progress=shown, **settings)
    titles = list(shown.taken)
    return {title: shown.taken[title] for title in titles[titles.index("Predicting") :]}


def _on_device(kind: str, case: dict[str, Any], device: str) -> Work:
    """Work that needs only torch and numpy."""
    V, m = case["V"], case["m"]
    if kind == "labels":
        from tokengeom.training.train import estimate_training, train

        labels, settings = grouped_labels(V, m), {"dim": 128, "steps": case["steps"], "device": device}
        return lambda: estimate_training(labels, **settings), lambda: train(labels, **settings)
    from benchmarks.nuclear_svm_gpu import zipf_supports
    from tokengeom.problems.nuclear_svm import NuclearSVM
    from tokengeom.solvers.nuclear_admm import NuclearADMM
    from tokengeom.theory.solving_time import estimate_limit

    problem = NuclearSVM.from_support(zipf_supports(V, m, 20, 0), device=device)
    solver = NuclearADMM(tolerance=case["tolerance"])
    return lambda: estimate_limit(problem, solver, 0), lambda: solver(problem)


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Run one case in this process."""
    device = case.get("device", "cpu")
    estimate, run = work(case)
    before = _memory(device)
    with stopwatch() as elapsed:
        expected = estimate()
        asked = elapsed()
    with stopwatch() as elapsed:
        made = run()
        taken, seconds = made if isinstance(made, dict) else {}, elapsed()
    # A report counts first, which is not estimated.
    seconds = sum(taken.values()) if taken else seconds
    held = _memory(device, peak=True) - before
    return {**expected.to_dict(), "asked": asked, "measured": seconds, "held": held, "taken": taken}


def is_right(shortest: float, longest: float, seconds: float) -> bool:
    """Whether a stated range is right."""
    return shortest / FACTOR <= seconds <= FACTOR * longest


def compared_parts(found: dict[str, Any]) -> list[tuple[str, bool]]:
    """A line per part of a report, and whether it is right: short parts are."""
    stated: dict[str, list[float]] = {}
    for part in found["parts"]:
        before = stated.get(part["what"], [0.0, 0.0])
        stated[part["what"]] = [before[0] + part["shortest_seconds"], before[1] + part["longest_seconds"]]
    lines = []
    for title in dict.fromkeys([*found["taken"], *stated]):
        seconds, range_ = found["taken"].get(title, 0.0), stated.get(title)
        said = "not announced" if range_ is None else f"announced {range_[0]:.3g} to {range_[1]:.3g} s"
        right = range_ is not None and is_right(range_[0], range_[1], seconds)
        long = seconds >= LONG or (range_ is not None and range_[0] >= FACTOR * LONG)
        lines.append((f"{title}: {said}, took {seconds:.3g} s", right or not long))
    return lines


def _memory(device: str, *, peak: bool = False) -> int:
    """Bytes of the process or of the device, now or at the peak."""
    if device != "cpu":
        import torch

        return int(torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated())
    found = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(found["VmHWM" if peak else "VmRSS"].split()[0]) * 1024


def main() -> None:
    """Measure every case in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", default=os.environ.get("TOKENGEOM_BENCHMARK_TEXT"), help="a text to count")
    parser.add_argument(
        "--model",
        default=os.environ.get("TOKENGEOM_BENCHMARK_MODEL"),
        help="the folder of a trained model, for reports about it on the text",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", help="predict, simulate, train or report")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds after which a case is left out")
    args = parser.parse_args()
    benchmark = Benchmark("estimates", "tokengeom", "numpy", "torch", device=args.device, quick=args.quick)
    right, wrong = 0, list[str]()
    known = cases(args.text, args.model, args.device, quick=args.quick)
    chosen = [case for case in known if args.only in (None, case["do"])]
    for case in chosen:
        found = _in_process(case, args.limit)
        name = " ".join(Path(value).name if key in ("source", "model") else str(value) for key, value in case.items())
        if found is None:
            print(f"{name}: not finished within {args.limit:.0f} s", flush=True)
            continue
        share = found["measured"] / max(found["seconds"], 1e-9)
        right += is_right(found["shortest_seconds"], found["longest_seconds"], found["measured"])
        for line, is_fine in compared_parts(found) if found["taken"] else []:
            print(f"    {line}{'' if is_fine else '  <-'}", flush=True)
            wrong += [] if is_fine else [f"{name}: {line}"]
        expected = f"estimated {found['shortest_seconds']:.3g} to {found['longest_seconds']:.3g} s"
        note = f"{found['bytes'] / 1e9:.2f} GB estimated, {share:.2f} of the estimated time"
        job = benchmark.job(f"estimated work: {name}", repeats="once")
        job.ours(found["measured"], gigabytes=found["held"] / 1e9, accuracy=expected, note=note)
    print(f"within a factor of {FACTOR} of the stated range: {right} of {len(chosen)}")
    print("\n".join(["parts of reports above 5 s that are not:", *wrong]) if wrong else "and all parts of reports")


def _in_process(case: dict[str, Any], limit: float) -> dict[str, Any] | None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.estimates", json.dumps(case), folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return None
    if done.returncode:
        raise RuntimeError(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].startswith("{"):
        print(json.dumps(measure(json.loads(sys.argv[1]))))
    else:
        main()
