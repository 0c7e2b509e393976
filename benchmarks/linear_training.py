"""Gradient descent on the linear model: iterations a second against a plain PyTorch autograd loop.

Both sides run the same full-batch steps in float64 on the same data (V=10, d=60, m=50, supports of 6), in turns, and
must end at the same loss. Run: ``python benchmarks/linear_training.py``.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from tokengeom.models import Linear
from tokengeom.training.cpu import CpuEngine
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers import AbstractOptimizer
from tokengeom.training.optimizers.adam import Adam
from tokengeom.training.optimizers.gd import GD

V, D, M, SUPPORT = 10, 60, 50, 6


def data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Next-token probabilities and Gaussian embeddings of the overparameterised linear setting."""
    rng = np.random.default_rng(seed)
    P = np.zeros((V, M))
    for j in range(M):
        P[rng.choice(V, SUPPORT, replace=False), j] = rng.dirichlet(np.ones(SUPPORT))
    return P, rng.standard_normal((D, M))


class Plain:
    """The loop as one writes it in PyTorch."""

    def __init__(self, P: np.ndarray, H: np.ndarray, name: str, rate: float, threads: int) -> None:
        self.P, self.H = torch.tensor(P), torch.tensor(H)
        self.threads = threads
        self.W = torch.nn.Parameter(torch.zeros(V, D, dtype=torch.float64))
        adam = name == "adam"
        self.peer = torch.optim.Adam([self.W], lr=rate) if adam else torch.optim.SGD([self.W], lr=rate)

    def run(self, steps: int) -> None:
        """Make steps."""
        torch.set_num_threads(self.threads)
        for _ in range(steps):
            self.peer.zero_grad()
            loss = -(self.P * torch.log_softmax(self.W @ self.H, dim=0)).sum(0).mean()
            loss.backward()
            self.peer.step()


class Ours:
    """The compiled loop."""

    def __init__(self, P: np.ndarray, H: np.ndarray, optimizer: AbstractOptimizer, rate: float) -> None:
        self.engine = CpuEngine(Linear(V, H), SoftLabels.from_dense(P), optimizer)
        self.optimizer, self.rate, self.done = optimizer, rate, 0

    def run(self, steps: int) -> None:
        """Make steps."""
        at = np.arange(self.done + 1.0, self.done + steps + 1)
        self.engine.advance(self.optimizer.coefficients(at, np.full(steps, self.rate), np.zeros(steps)), None)
        self.done += steps


def compare(name: str, optimizer: AbstractOptimizer, rate: float, rounds: int, steps: int) -> None:
    """Time both sides in turns and print the ratio of the medians."""
    P, H = data(0)
    cores = os.cpu_count() or 1
    plain = {f"plain, {count} thread(s)": Plain(P, H, name, rate, count) for count in sorted({1, cores})}
    ours = Ours(P, H, optimizer, rate)
    seconds: dict[str, list[float]] = {side: [] for side in (*plain, "ours")}
    for _ in range(rounds + 1):  # the first round compiles and warms up
        for side, runner in (*plain.items(), ("ours", ours)):
            begin = time.perf_counter()
            runner.run(steps)
            seconds[side].append((time.perf_counter() - begin) / steps)
    medians = {side: float(np.median(values[1:])) for side, values in seconds.items()}
    best = min(medians[side] for side in plain)
    # Adam oscillates late in training and multiplies rounding: the two sides part after some hundred equal steps.
    labels = SoftLabels.from_dense(P)
    ends = {side: labels.loss_gap(peer.W.detach().numpy() @ H) for side, peer in plain.items()}
    ends["ours"] = labels.loss_gap(ours.engine.readout(0).logits)
    print(f"{name} V={V} d={D} m={M} float64, medians of {rounds} rounds of {steps} steps:")
    for side, median in medians.items():
        print(f"  {side:20s} {median * 1e6:8.2f} us a step, CE - H {ends[side]:.6e}")
    print(f"  ratio to the faster plain loop: {best / medians['ours']:.1f}")


def main() -> None:
    """Run the comparison on the machine's cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}")
    compare("gd", GD(), 0.5, options.rounds, options.steps)
    compare("adam", Adam(), 0.01, options.rounds, options.steps)


if __name__ == "__main__":
    main()
