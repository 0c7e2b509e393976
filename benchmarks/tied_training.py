"""Tied features beside fastText, which trains the same model one window after the other (words, contexts of 4, d=64).

Both sides have the same features (positions, suffixes, the context itself), given to fastText as words, and a softmax
over the next tokens, on one thread each. In an epoch fastText makes one step per window, and tokengeom one exact step
of AdamW on the distinct contexts; so there are two jobs: the time per window and epoch, and the time to the loss gap at
which fastText is after its epochs.

    python -m benchmarks.tied_training [--stories 2000] [--epochs 20]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from itertools import islice
from pathlib import Path

import fasttext
import numpy as np
import torch

from benchmarks.harness import Benchmark, stopwatch
from tokengeom.corpus.stories import stories
from tokengeom.models.networks.tied import TIES
from tokengeom.statistics.context_features import ContextFeatures
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.loop import AbstractEngine
from tokengeom.training.network_engine import NetworkEngine
from tokengeom.training.objective import SoftLabels
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import build_network

D, RATE, PEER_RATE = 64, 1e-2, 0.5
REPEATS = 5
CHECKED = 5
"""Steps after which the loss is looked at on the way to a loss gap."""


class FastText:
    """fastText's supervised mode on a file with one line per window: its label, then its features."""

    def __init__(self, stats: NextTokenStatistics, features: ContextFeatures, folder: Path) -> None:
        self.stats, self.features, self.file = stats, features, folder / "windows.txt"
        table = stats.counts.tocoo()
        context, token = (np.repeat(x, table.data) for x in (table.col, table.row))
        order = np.random.default_rng(0).permutation(context.size)
        words = [" ".join(f"f{f}" for f in numbers if f < features.F) for numbers in features.numbers.tolist()]
        lines = (f"__label__{token[i]} {words[context[i]]}\n" for i in order)
        self.file.write_text("".join(lines))

    def train(self, epochs: int) -> fasttext.FastText._FastText:
        """A model after so many epochs."""
        return fasttext.train_supervised(
            str(self.file), dim=D, epoch=epochs, lr=PEER_RATE, loss="softmax", thread=1, minCount=1, bucket=0, verbose=0
        )

    def loss_gap(self, model: fasttext.FastText._FastText, labels: SoftLabels) -> float:
        """Loss gap of its logits; a state is the mean over features and fastText's own end of line."""
        F, tokens = self.features.F, [int(label.removeprefix("__label__")) for label in model.get_labels()]
        place = {word: number for number, word in enumerate(model.get_words())}
        table = model.get_input_matrix()
        A = np.stack([table[place[f"f{f}"]] for f in range(F)])
        Phi = self.features.matrix
        H = (Phi.T @ A + table[place["</s>"]]) / (np.asarray(Phi.sum(axis=0)).reshape(-1, 1) + 1.0)
        L = np.full((labels.V, labels.m), -1e3)
        L[tokens] = model.get_output_matrix() @ H.T
        return labels.loss_gap(L)


class Ours:
    """The tied model on the distinct contexts."""

    def __init__(self, stats: NextTokenStatistics, labels: SoftLabels) -> None:
        settings = TrainingSettings(model="tied", ties=TIES, dim=D, learning_rate=RATE, rate_schedule="constant")
        self.labels, self.rule, self.done = labels, settings.optimization(), 0
        network = build_network(stats, settings)
        self.engine: AbstractEngine = NetworkEngine(
            network, labels, self.rule.optimizer, scale=float(labels.windows), precision="float32"
        )

    def run(self, steps: int) -> None:
        """Make so many steps."""
        self.engine.advance(self.rule.coefficients(self.done, self.done + steps), None)
        self.done += steps

    @property
    def loss_gap(self) -> float:
        """Loss gap of its logits."""
        return self.labels.loss_gap(self.engine.readout(0).logits)


def seconds_to(gap: float, stats: NextTokenStatistics, labels: SoftLabels) -> tuple[float, float]:
    """Seconds of steps from the start to a loss gap, and the gap reached."""
    ours, spent = Ours(stats, labels), 0.0
    while ours.loss_gap > gap:
        with stopwatch() as elapsed:
            ours.run(CHECKED)
            spent += elapsed()
    return spent, ours.loss_gap


def main() -> None:
    """Time both sides alternately and print the ratios of the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stories", type=int, default=2000, help="stories of the built-in corpus")
    parser.add_argument("--epochs", type=int, default=20, help="epochs of fastText")
    parser.add_argument("--quick", action="store_true", help="few stories")
    options = parser.parse_args()
    number, epochs = (100, 4) if options.quick else (options.stories, options.epochs)
    torch.set_num_threads(1)
    packages = ("tokengeom", "numpy", "torch", "fasttext-wheel")
    benchmark = Benchmark("tied_training", *packages, quick=options.quick)
    stats = count(list(islice(stories(0), number)), context=4, tokenizer="word")
    labels = SoftLabels.from_statistics(stats)
    assert stats.contexts is not None
    features = ContextFeatures.of_contexts(stats.contexts, TIES)
    size = f"tied features, V={stats.V}, m={stats.m:,}, F={features.F:,}, {stats.n:,} windows, d={D}"
    epoch = benchmark.job(f"{size}, per window and epoch", repeats=f"median of {REPEATS}")
    whole = benchmark.job(f"{size}, to the loss gap of fastText after {epochs} epochs", repeats=f"median of {REPEATS}")
    ours = Ours(stats, labels)
    ours.run(epochs)
    with tempfile.TemporaryDirectory() as folder:
        peer = FastText(stats, features, Path(folder))
        gap = peer.loss_gap(peer.train(epochs), labels)
        spent: dict[str, list[float]] = {"ours": [], "peer": [], "to gap": [], "whole": []}
        for _ in range(REPEATS):
            with stopwatch() as elapsed:
                ours.run(epochs)
                spent["ours"].append(elapsed() / epochs)
            # The difference of two trainings leaves out reading the file and counting its words.
            with stopwatch() as elapsed:
                peer.train(1)
                once = elapsed()
            with stopwatch() as elapsed:
                peer.train(1 + epochs)
                spent["peer"].append((elapsed() - once) / epochs)
            spent["whole"].append(spent["peer"][-1] * epochs)
            seconds, reached = seconds_to(gap, stats, labels)
            spent["to gap"].append(seconds)
    medians = {name: statistics.median(values) for name, values in spent.items()}
    epoch.ours(medians["ours"] / stats.n, note="one step of AdamW per epoch")
    epoch.peer("fastText, supervised", medians["peer"] / stats.n, note=f"{stats.n:,} steps per epoch")
    whole.ours(medians["to gap"], accuracy=f"loss gap {reached:.4f}", note=f"AdamW at {RATE:g}")
    whole.peer("fastText, supervised", medians["whole"], accuracy=f"loss gap {gap:.4f}", note=f"lr {PEER_RATE:g}")


if __name__ == "__main__":
    main()
