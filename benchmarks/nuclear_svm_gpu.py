"""NTP-SVM* at sizes for a GPU: proven gap by seconds. Needs only torch and numpy.

python -m benchmarks.nuclear_svm_gpu                                      # both target sizes, on cuda
python -m benchmarks.nuclear_svm_gpu --size 1024 4096 1e-4 --device cpu
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.harness import Benchmark
from tokengeom.core.numerics import Bool
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.solvers.nuclear_admm import NuclearADMM

TARGETS = [("4096", "16384", "1e-4"), ("10000", "50000", "1e-5")]


def zipf_supports(V: int, m: int, largest: int, seed: int) -> Bool:
    """V x m matrix of distinct supports of 1 to ``largest`` tokens, token z drawn with weight 1/z."""
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(1.0 / np.arange(1, V + 1))
    seen: set[bytes] = set()
    S = np.zeros((V, m), dtype=bool)
    while len(seen) < m:
        k = int(rng.integers(1, largest + 1))
        drawn = np.searchsorted(cumulative, rng.random(4 * k) * cumulative[-1])
        support = np.unique(drawn[np.sort(np.unique(drawn, return_index=True)[1])[:k]])
        if support.tobytes() not in seen:
            S[support, len(seen)] = True
            seen.add(support.tobytes())
    return S


def warm_up(device: str) -> None:
    """Solve one small instance, to load the libraries before time is measured."""
    NuclearADMM(tolerance=1e-4)(NuclearSVM.from_support(zipf_supports(64, 128, 8, 0), device=device))


def measure(benchmark: Benchmark, V: int, m: int, tolerance: float, args: argparse.Namespace) -> None:
    """Solve one instance and print one line per check of the gap."""
    S = zipf_supports(V, m, args.largest, args.seed)
    began = time.perf_counter()
    problem = NuclearSVM.from_support(S, device=args.device)
    print(f"V={V} m={m} merged to {problem.shape} in {time.perf_counter() - began:.1f} s", flush=True)
    solver = NuclearADMM(
        tolerance=tolerance, memory=args.memory, check_every=args.check_every, time_limit=args.time_limit
    )

    def show(iteration: int, seconds: float, gap: float) -> None:
        print(f"  iteration {iteration:4d}  {seconds:8.2f} s  estimated gap {gap:.3e}", flush=True)

    solution = solver(problem, observer=show)
    found = solution.certificate
    where = "" if args.device == "cpu" else " on one GPU"
    job = benchmark.job(f"L^mm{where}, V={V:,}, {m:,} supports", repeats="once")
    note = f"{solution.iterations} iterations; {time.perf_counter() - began:.1f} s with set-up"
    job.ours(solution.seconds, gigabytes=_peak(args.device), accuracy=f"gap {found.relative_gap:.1e}", note=note)


def _peak(device: str) -> float | None:
    """Gigabytes that PyTorch has allocated on the GPU at most since the last call."""
    if not device.startswith("cuda"):
        return None
    import torch

    peak = torch.cuda.max_memory_allocated() / 1e9
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.empty_cache()
    return float(peak)


def main() -> None:
    """Solve the given sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", nargs=3, action="append", metavar=("V", "M", "GAP"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--largest", type=int, default=20, help="tokens of the largest support")
    parser.add_argument("--memory", type=int, default=5, help="memory of Anderson acceleration; 0 is plain ADMM")
    parser.add_argument("--check-every", type=int, default=10)
    parser.add_argument("--time-limit", type=float, default=540.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    warm_up(args.device)
    benchmark = Benchmark("nuclear_svm_gpu", "tokengeom", "numpy", "torch", device=args.device, quick=bool(args.size))
    for V, m, tolerance in args.size or TARGETS:
        measure(benchmark, int(V), int(m), float(tolerance), args)


if __name__ == "__main__":
    main()
