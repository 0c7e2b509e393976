"""The papers' transformer (V=104, m=403, 4 layers, 6 heads, d=128), full batch, compared with an eager PyTorch loop.

Both sides train the same network from the same weights on the same soft labels with AdamW and the papers' schedule,
alternating; the losses of both are printed during training. ``--noise`` adds the plain loop with initial weights moved
by one unit in the last place, which shows how far rounding alone separates two runs.

    python -m benchmarks.network_training_gpu [--device cpu] [--steps 30000] [--model lstm] [--compiled 0 1] [--noise]

It needs only torch, transformers and numpy.
"""

from __future__ import annotations

import argparse
from types import SimpleNamespace

import numpy as np
import torch

from benchmarks.harness import Benchmark, grouped_labels, seconds_per_step
from tokengeom.models.network import Network
from tokengeom.models.networks.base import architecture_named
from tokengeom.training.network_engine import NetworkEngine
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.adamw import AdamW
from tokengeom.training.optimizers.base import PAPER_STEPS

V, M, D, LENGTH = 104, 403, 128, 5
RATE, DECAY = 1e-4, 1e-6
FULL = 3000
"""Steps from which on the rows of a run are kept."""


class Plain:
    """The usual loop: forward, cross-entropy with soft targets, backward, AdamW, scheduler."""

    def __init__(self, network: Network, labels: SoftLabels, device: str, *, moved: bool = False) -> None:
        self.network, self.decoder = network, network.decoder.to(device).train()
        if moved:
            with torch.no_grad():
                for p in self.decoder.parameters():
                    p.copy_(torch.nextafter(p, torch.full_like(p, torch.inf)))
        target = np.zeros((M, V))
        target[labels.context, labels.token] = labels.share * labels.weight[labels.context] * labels.windows
        self.target = torch.tensor(target, dtype=torch.float32, device=device)
        self.optimizer = torch.optim.AdamW(self.decoder.parameters(), lr=RATE, weight_decay=DECAY)
        milestones = list(PAPER_STEPS.milestones)
        self.schedule = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, milestones, gamma=PAPER_STEPS.factor)

    def run(self, steps: int) -> None:
        """Make so many steps."""
        for _ in range(steps):
            self.optimizer.zero_grad()
            logits = self.decoder(slice(0, M))
            torch.nn.functional.cross_entropy(logits, self.target, reduction="sum").backward()
            self.optimizer.step()
            self.schedule.step()

    def logits(self) -> np.ndarray:
        """``W H`` in double precision."""
        return self.network.readout().logits


class Ours:
    """The engine that ``train`` uses."""

    def __init__(self, network: Network, labels: SoftLabels, device: str, compiled: bool) -> None:
        self.engine = NetworkEngine(
            network, labels, AdamW(), scale=float(labels.windows), device=device, compiled=compiled
        )
        self.done = 0

    def run(self, steps: int) -> None:
        """Make so many steps."""
        done = np.arange(self.done, self.done + steps, dtype=np.float64)
        rates = RATE * PAPER_STEPS.factors(done, 30_000)
        self.engine.advance(AdamW().coefficients(done + 1, rates, np.full(steps, DECAY)), None)
        self.done += steps

    def logits(self) -> np.ndarray:
        """``W H`` in double precision."""
        return self.engine.readout(0).logits


def main() -> None:
    """Time all sides alternately; print losses during training, medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="transformer")
    parser.add_argument("--steps", type=int, default=30_000, help="steps per side, in thirty rounds")
    parser.add_argument("--noise", action="store_true", help="also run the plain loop from slightly moved weights")
    parser.add_argument("--compiled", type=int, nargs="+", default=[0, 1])
    options = parser.parse_args()
    labels = grouped_labels(V, M)
    contexts = np.random.default_rng(0).integers(0, V, (M, LENGTH)).astype(np.int32)
    stats = SimpleNamespace(V=V, contexts=contexts)
    make = lambda: Network(architecture_named(options.model), stats, dim=D, seed=0)  # noqa: E731
    sides: dict[str, Plain | Ours] = {"plain eager loop": Plain(make(), labels, options.device)}
    if options.noise:
        sides["plain, moved"] = Plain(make(), labels, options.device, moved=True)
    for compiled in options.compiled:
        name = "tokengeom, compiled" if compiled else "tokengeom"
        sides[name] = Ours(make(), labels, options.device, bool(compiled))
    packages = ("tokengeom", "numpy", "torch", "transformers")
    quick = options.steps < FULL
    benchmark = Benchmark("network_training_gpu", *packages, device=options.device, quick=quick)
    print(f"{options.model}, V={V} m={M} d={D}, contexts of {LENGTH} tokens, n={labels.windows}")
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    each = max(options.steps // 30, 1)
    for number in range(1, 31):
        for name, side in sides.items():
            seconds[name].append(seconds_per_step(side.run, each, options.device))
        if number in (1, 2, 3, 5, 10, 20, 30):
            gaps = [labels.loss_gap(side.logits()) for side in sides.values()]
            losses = "  ".join(f"{labels.entropy + gap:.6f} ({gap:.3e})" for gap in gaps)
            print(f"  step {each * number:6d}: CE (CE - H)  {losses}", flush=True)
    # The first round compiles, captures and warms up.
    base = float(np.median(seconds["plain eager loop"][1:]))
    where = "" if options.device == "cpu" else " on one GPU"
    job_name, repeats = f"{options.model}, V={V}, m={M}, 4 layers, d={D}", f"median of 29 rounds of {each} steps"
    jobs = {
        name: benchmark.job(
            f"{job_name}, per step{where}{', compiled first' if name.endswith('compiled') else ''}", repeats=repeats
        )
        for name in seconds
        if name.startswith("tokengeom")
    }
    for name, job in jobs.items():
        spent = seconds[name]
        job.ours(float(np.median(spent[1:])), note=f"first round {spent[0] * each:.1f} s")
        job.peer("plain eager PyTorch loop", base)


if __name__ == "__main__":
    main()
