"""Gradient descent on the linear model: time per step compared with a plain PyTorch autograd loop.

Both sides make the same full-batch steps in float64 on the same data (V=10, d=60, m=50, supports of 6 tokens),
alternating, and print the loss gap that they end at.

    python -m benchmarks.linear_training [--rounds 7] [--steps 500]
"""

from __future__ import annotations

import argparse
import os

import numpy as np
import torch

from benchmarks.harness import Benchmark, seconds_per_step
from tokengeom.models.factored import Linear
from tokengeom.training.cpu_engine import CpuEngine
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.adam import Adam
from tokengeom.training.optimizers.base import AbstractOptimizer
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
    """The usual loop in PyTorch."""

    def __init__(self, P: np.ndarray, H: np.ndarray, name: str, rate: float, threads: int) -> None:
        self.P, self.H = torch.tensor(P), torch.tensor(H)
        self.threads = threads
        self.W = torch.nn.Parameter(torch.zeros(V, D, dtype=torch.float64))
        adam = name == "adam"
        self.peer = torch.optim.Adam([self.W], lr=rate) if adam else torch.optim.SGD([self.W], lr=rate)

    def run(self, steps: int) -> None:
        """Make so many steps."""
        torch.set_num_threads(self.threads)
        for _ in range(steps):
            self.peer.zero_grad()
            loss = -(self.P * torch.log_softmax(self.W @ self.H, dim=0)).sum(0).mean()
            loss.backward()
            self.peer.step()


class Ours:
    """The compiled loop of tokengeom."""

    def __init__(self, P: np.ndarray, H: np.ndarray, optimizer: AbstractOptimizer, rate: float) -> None:
        self.engine = CpuEngine(Linear(V, H), SoftLabels.from_dense(P), optimizer)
        self.optimizer, self.rate, self.done = optimizer, rate, 0

    def run(self, steps: int) -> None:
        """Make so many steps."""
        at = np.arange(self.done + 1.0, self.done + steps + 1)
        self.engine.advance(self.optimizer.coefficients(at, np.full(steps, self.rate), np.zeros(steps)), None)
        self.done += steps


def compare(
    benchmark: Benchmark, name: str, optimizer: AbstractOptimizer, rate: float, rounds: int, steps: int
) -> None:
    """Time both sides alternately and print the ratio of the medians."""
    P, H = data(0)
    cores = os.cpu_count() or 1
    plain = {f"plain, {count} thread(s)": Plain(P, H, name, rate, count) for count in sorted({1, cores})}
    ours = Ours(P, H, optimizer, rate)
    seconds: dict[str, list[float]] = {side: [] for side in (*plain, "tokengeom")}
    # The first round compiles and warms up.
    for _ in range(rounds + 1):
        for side, runner in (*plain.items(), ("tokengeom", ours)):
            seconds[side].append(seconds_per_step(runner.run, steps, "cpu"))
    medians = {side: float(np.median(values[1:])) for side, values in seconds.items()}
    # Late in training Adam oscillates and amplifies rounding errors, so its two losses differ slightly.
    labels = SoftLabels.from_dense(P)
    ends = {side: labels.loss_gap(peer.W.detach().numpy() @ H) for side, peer in plain.items()}
    ends["tokengeom"] = labels.loss_gap(ours.engine.readout(0).logits)
    what = {"gd": "gradient descent", "adam": "Adam"}[name]
    job = benchmark.job(
        f"{what}, V={V}, d={D}, m={M}, float64, per step", repeats=f"median of {rounds} rounds of {steps} steps"
    )
    job.ours(medians["tokengeom"], accuracy=f"ends at a loss gap of {ends['tokengeom']:.4e}")
    # Of the plain loops with one thread and with all, the faster one is the peer.
    best = min(plain, key=lambda side: medians[side])
    job.peer("plain PyTorch loop", medians[best], accuracy=f"ends at {ends[best]:.4e}", note=best)


def main() -> None:
    """Compare gradient descent and Adam."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="a few steps")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.steps = 1, 50
    benchmark = Benchmark("linear_training", "tokengeom", "numpy", "torch", "numba", quick=options.quick)
    compare(benchmark, "gd", GD(), 0.5, options.rounds, options.steps)
    compare(benchmark, "adam", Adam(), 0.01, options.rounds, options.steps)


if __name__ == "__main__":
    main()
