"""The papers' transformer (V=104, m=403, 4 layers, 6 heads, d=128), full batch, against a plain eager PyTorch loop.

Both sides train the same network from the same weights on the same soft labels with AdamW and the papers' schedule, in
turns; the loss of both is printed along the way. How far rounding alone takes two runs apart is shown by the plain loop
once more, its first weights moved by one unit in the last place.

Run: ``python benchmarks/network_training_gpu.py [--device cpu] [--steps 30000] [--model lstm] [--compiled 0 1]``.
It needs torch, transformers and numpy alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from tokengeom.models.network import Network
from tokengeom.models.networks import architecture_named
from tokengeom.training.network_engine import NetworkEngine
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.adam import AdamW
from tokengeom.training.optimizers.base import PAPER_STEPS

V, M, D, LENGTH, SUPPORT, GROUPS = 104, 403, 128, 5, 5, 40
RATE, DECAY = 1e-4, 1e-6


def data(seed: int) -> tuple[SimpleNamespace, SoftLabels]:
    """Forty random supports shared by ten contexts each, every pair seen one to four times: about 5,000 windows."""
    rng = np.random.default_rng(seed)
    supports = [rng.choice(V, SUPPORT, replace=False) for _ in range(GROUPS)]
    counts = np.zeros((V, M), np.int64)
    for j in range(M):
        counts[supports[j % GROUPS], j] = rng.integers(1, 5, SUPPORT)
    n = int(counts.sum())
    labels = SoftLabels.from_dense(counts / counts.sum(0), counts.sum(0) / n, windows=n)
    return SimpleNamespace(V=V, contexts=rng.integers(0, V, (M, LENGTH)).astype(np.int32)), labels


class Plain:
    """The loop as one writes it: forward, cross-entropy with soft targets, backward, AdamW, scheduler."""

    def __init__(self, network: Network, labels: SoftLabels, device: str, *, nudged: bool = False) -> None:
        self.network, self.decoder = network, network.decoder.to(device).train()
        if nudged:
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
        """Make steps."""
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
        """Make steps."""
        done = np.arange(self.done, self.done + steps, dtype=np.float64)
        rates = RATE * PAPER_STEPS.factors(done, 30_000)
        self.engine.advance(AdamW().coefficients(done + 1, rates, np.full(steps, DECAY)), None)
        self.done += steps

    def logits(self) -> np.ndarray:
        """``W H`` in double precision."""
        return self.engine.readout(0).logits


def timed(side: Plain | Ours, steps: int, device: str) -> float:
    """Seconds a step, the device's queue emptied before and after."""
    if device != "cpu":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    side.run(steps)
    if device != "cpu":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / steps


def main() -> None:
    """Time all sides in turns; print losses along the way, medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="transformer")
    parser.add_argument("--steps", type=int, default=30_000, help="steps of each side, in thirty rounds")
    parser.add_argument("--noise", action="store_true", help="run the plain loop from nudged weights too")
    parser.add_argument("--compiled", type=int, nargs="+", default=[0, 1])
    options = parser.parse_args()
    stats, labels = data(0)
    make = lambda: Network(architecture_named(options.model), stats, dim=D, seed=0)  # noqa: E731
    sides: dict[str, Plain | Ours] = {"plain eager loop": Plain(make(), labels, options.device)}
    if options.noise:
        sides["plain, nudged"] = Plain(make(), labels, options.device, nudged=True)
    for compiled in options.compiled:
        name = "tokengeom, compiled" if compiled else "tokengeom"
        sides[name] = Ours(make(), labels, options.device, bool(compiled))
    machine = torch.cuda.get_device_name() if options.device != "cpu" else f"{os.cpu_count()} cores"
    print(f"{machine}, torch {torch.__version__}, {options.model}, V={V} m={M} d={D} L={LENGTH} n={labels.windows}")
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    each = max(options.steps // 30, 1)
    for turn in range(30):
        for name, side in sides.items():
            seconds[name].append(timed(side, each, options.device))
        if turn in (0, 1, 2, 4, 9, 19, 29):
            gaps = [labels.loss_gap(side.logits()) for side in sides.values()]
            losses = "  ".join(f"{labels.entropy + gap:.6f} ({gap:.3e})" for gap in gaps)
            print(f"  step {each * (turn + 1):6d}: CE (CE - H)  {losses}", flush=True)
    # The first round compiles, captures and warms up.
    base = float(np.median(seconds["plain eager loop"][1:]))
    for name, spent in seconds.items():
        median = float(np.median(spent[1:]))
        print(
            f"{name:22s} {median * 1e6:8.1f} us a step, {sum(spent) * each:7.1f} s in all (first round "
            f"{spent[0] * each:.1f} s), ratio {base / median:5.2f}"
        )


if __name__ == "__main__":
    main()
