"""Unconstrained features with AdamW and the papers' schedule, compared with a plain PyTorch loop (V=104, m=400, d=128).

Both sides minimise the same loss on the same data in the same precision from the same start, alternating, and print the
loss gap that they end at. On the CPU, tokengeom's side is the compiled engine; on a GPU it is the torch engine with a
CUDA graph, with one replicate and with a batch of them (time per replicate).

    python -m benchmarks.ufm_training [--device cuda] [--precision float64] [--replicates 1 16] [--steps 30000]

On a GPU it needs only torch and numpy.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.harness import Benchmark, grouped_labels, seconds_per_step
from tokengeom.models.factored import UFM
from tokengeom.training.loop import AbstractEngine
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.adamw import AdamW
from tokengeom.training.optimizers.base import PAPER_STEPS

V, M, D = 104, 400, 128
RATE, DECAY = 1e-4, 1e-6
MILESTONES = list(PAPER_STEPS.milestones)


def start(seed: int) -> UFM:
    """The model with its initial values."""
    return UFM(V, M, D, generator=np.random.default_rng(seed))


class Plain:
    """The usual loop in PyTorch: soft labels on distinct contexts, or hard labels on raw windows."""

    def __init__(self, labels: SoftLabels, options: argparse.Namespace, threads: int, *, raw: bool = False) -> None:
        model, device, self.threads = start(0), options.device, threads
        make = {"device": device, "dtype": getattr(torch, options.precision)}
        self.W = torch.nn.Parameter(torch.tensor(model.W, **make))
        self.H = torch.nn.Parameter(torch.tensor(model.H, **make))
        counts = np.round(labels.share * labels.weight[labels.context] * labels.windows).astype(np.int64)
        joint = np.zeros((M, V))
        joint[labels.context, labels.token] = counts
        self.counts, self.raw = torch.tensor(joint, **make), raw
        self.context = torch.tensor(np.repeat(labels.context, counts), device=device)
        self.token = torch.tensor(np.repeat(labels.token, counts), device=device)
        self.peer = torch.optim.AdamW([self.W, self.H], lr=RATE, weight_decay=DECAY)
        self.schedule = torch.optim.lr_scheduler.MultiStepLR(self.peer, MILESTONES, gamma=PAPER_STEPS.factor)

    def loss(self) -> torch.Tensor:
        """Summed cross-entropy."""
        if self.raw:
            logits = (self.W @ self.H[:, self.context]).T
            return torch.nn.functional.cross_entropy(logits, self.token, reduction="sum")
        return torch.nn.functional.cross_entropy((self.W @ self.H).T, self.counts, reduction="sum")

    def run(self, steps: int) -> None:
        """Make so many steps."""
        torch.set_num_threads(self.threads)
        for _ in range(steps):
            self.peer.zero_grad()
            self.loss().backward()
            self.peer.step()
            self.schedule.step()

    def logits(self) -> np.ndarray:
        """``W H`` in double precision."""
        return (self.W.detach().double() @ self.H.detach().double()).cpu().numpy()


class Ours:
    """An engine of tokengeom with the same schedule."""

    def __init__(self, engine: AbstractEngine) -> None:
        self.engine, self.done = engine, 0

    def run(self, steps: int) -> None:
        """Make so many steps."""
        done = np.arange(self.done, self.done + steps, dtype=np.float64)
        rates = RATE * PAPER_STEPS.factors(done, 30_000)
        self.engine.advance(AdamW().coefficients(done + 1, rates, np.full(steps, DECAY)), None)
        self.done += steps

    def logits(self) -> np.ndarray:
        """``W H`` of the first replicate."""
        return self.engine.readout(0).logits


def engines(labels: SoftLabels, options: argparse.Namespace) -> dict[str, tuple[Ours, int]]:
    """Engines for the device, with their number of replicates."""
    scale, dtype = float(labels.windows), np.dtype(options.precision)
    if options.device == "cpu":
        from tokengeom.training.cpu_engine import CpuEngine

        return {"compiled": (Ours(CpuEngine(start(0), labels, AdamW(), scale=scale, dtype=dtype)), 1)}
    from tokengeom.training.torch_engine import TorchEngine

    make: Callable[[int], TorchEngine] = lambda count: TorchEngine(  # noqa: E731
        [start(seed) for seed in range(count)], labels, AdamW(), scale=scale, dtype=dtype, device=options.device
    )
    return {f"graph x{count}": (Ours(make(count)), count) for count in options.replicates}


def main() -> None:
    """Time all sides alternately and print the ratios of the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", choices=["float32", "float64"])
    parser.add_argument("--replicates", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--steps", type=int, default=1500, help="steps per side, in ten rounds")
    parser.add_argument("--quick", action="store_true", help="a few steps")
    options = parser.parse_args()
    if options.quick:
        options.steps = 20
    packages = ("tokengeom", "numpy", "torch", "numba")
    benchmark = Benchmark("ufm_training", *packages, device=options.device, quick=options.quick)
    labels, cores = grouped_labels(V, M), os.cpu_count() or 1
    counts = sorted({1, cores}) if options.device == "cpu" else [cores]
    plain = {f"plain, {count} thread(s)": (Plain(labels, options, count), 1) for count in counts}
    raw = {f"plain on windows, {cores} thread(s)": (Plain(labels, options, cores, raw=True), 1)}
    sides = {**plain, **raw, **engines(labels, options)}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    each = max(options.steps // 10, 1)
    for _ in range(10):
        for name, (side, count) in sides.items():
            seconds[name].append(seconds_per_step(side.run, each, options.device) / count)
    # The first round compiles, captures and warms up.
    medians = {name: float(np.median(spent[1:])) for name, spent in seconds.items()}
    ends = {name: f"loss gap {labels.loss_gap(side.logits()):.6f}" for name, (side, _) in sides.items()}
    best = min(plain, key=lambda name: medians[name])
    (windows,) = raw
    where = "" if options.device == "cpu" else " on one GPU"
    several = {name: f", {count} runs at once, each" if count > 1 else "" for name, (_, count) in sides.items()}
    job_name, repeats = f"UFM, V={V}, m={M}, d={D}, {options.precision}", f"median of 9 rounds of {each} steps"
    jobs = {
        name: benchmark.job(f"{job_name}, per AdamW step{where}{several[name]}", repeats=repeats)
        for name in sides
        if name not in plain and name not in raw
    }
    for name, job in jobs.items():
        job.ours(medians[name], accuracy=ends[name])
        job.peer("plain PyTorch loop on distinct contexts", medians[best], accuracy=ends[best], note=best)
        job.peer("plain PyTorch loop on raw windows", medians[windows], accuracy=ends[windows])


if __name__ == "__main__":
    main()
