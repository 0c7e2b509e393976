"""Estimates compared with what the work then takes: seconds and memory, and how many are within a factor of 2.

    python -m benchmarks.estimates                              # built-in stories and random supports
    python -m benchmarks.estimates --text stories.txt           # and a text, by words, in contexts of 4
    python -m benchmarks.estimates --only train
    python -m benchmarks.estimates --device cuda                # predictions and trainings on a GPU

Every case runs in a process of its own: estimate first, then the work. The estimate counts as within a factor of 2 if
its typical duration is, and the measured duration is given as a share of it. Memory is the growth of the process, or
what PyTorch has allocated on a GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Benchmark, grouped_labels, stopwatch
from tokengeom.core.resources import Estimate

Work = tuple[Callable[[], Estimate], Callable[[], object]]

LIMITS = [(104, 400), (500, 1500), (1000, 4000)]
LOSSES = [(104, 400, 0.1), (104, 400, 0.001), (500, 1500, 0.1), (500, 1500, 0.001)]
TRAININGS = [
    ("ufm", {"optimizer": "gd", "steps": 5_000}),
    ("ufm", {"optimizer": "adamw", "steps": 5_000}),
    ("ufm", {"optimizer": "adamw", "steps": 5_000, "precision": "float32"}),
    ("transformer", {"layers": 2, "heads": 4, "steps": 200}),
    ("mlp", {"layers": 2, "steps": 500}),
]


def cases(text: str | None, device: str) -> list[dict[str, Any]]:
    """What is measured, as arguments of `work`."""
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
    return [*found, {"do": "report", "source": "stories", "V": 104, "m": 400}]


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

    stats = statistics(case.pop("source"), case.pop("V"), case.pop("m"))
    if kind == "report":
        page = Path(sys.argv[2]) / "report.html"
        return lambda: tg.estimate("report", stats), lambda: tg.report(stats, page)
    verb: Callable[..., object] = tg.predict if kind == "predict" else tg.train
    return lambda: tg.estimate(kind, stats, **case), lambda: verb(stats, **case)


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
        run()
        seconds = elapsed()
    return {**expected.to_dict(), "asked": asked, "measured": seconds, "held": _memory(device, peak=True) - before}


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
    parser.add_argument("--text", help="a text to count")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", help="predict, train or report")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds after which a case is left out")
    args = parser.parse_args()
    benchmark = Benchmark("estimates", "tokengeom", "numpy", "torch", device=args.device)
    shares, inside = [], 0
    chosen = [case for case in cases(args.text, args.device) if args.only in (None, case["do"])]
    for case in chosen:
        found = _in_process(case, args.limit)
        name = " ".join(f"{value}" for value in case.values())
        if found is None:
            print(f"{name}: not finished within {args.limit:.0f} s", flush=True)
            continue
        share = found["measured"] / max(found["seconds"], 1e-9)
        shares.append(share)
        inside += found["shortest_seconds"] <= found["measured"] <= found["longest_seconds"]
        expected = f"estimated {found['shortest_seconds']:.3g} to {found['longest_seconds']:.3g} s"
        note = f"{found['bytes'] / 1e9:.2f} GB estimated, {share:.2f} of the estimated time"
        job = benchmark.job(f"estimated work: {name}", repeats="once")
        job.ours(found["measured"], gigabytes=found["held"] / 1e9, accuracy=expected, note=note)
    near = sum(0.5 <= share <= 2.0 for share in shares)
    print(f"within a factor of 2: {near} of {len(shares)}; inside the stated range: {inside}")


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
