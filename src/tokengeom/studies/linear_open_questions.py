"""Two open questions on one draw of the linear setting, as tables: nothing here is judged.

Which margin does an optimizer maximise for soft labels (docs/theory.md 5)? And what becomes of the predictions when the
embeddings are trained as well?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tokengeom.geometry.similarity import cosine
from tokengeom.numerics import Float
from tokengeom.problems.norms import NORMS
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.solvers.margin import solve_margin
from tokengeom.studies.linear_draws import Draw
from tokengeom.theory.linear import LinearPrediction, predict_linear
from tokengeom.training import Run, train
from tokengeom.training.optimizers import AbstractOptimizer
from tokengeom.training.optimizers.adam import Adam

Table = Mapping[str, Sequence[Any]]


def optimizer_of(name: str) -> str | AbstractOptimizer:
    """Optimizer by name; Adam with the averages that the published runs had."""
    return Adam(betas=(0.9, 0.99)) if name == "adam" else name


def margin_table(
    draw: Draw,
    prediction: LinearPrediction,
    rates: Mapping[str, Sequence[float]],
    steps: int,
    done: Callable[[str], None],
) -> Table:
    """How much of the largest margin of each norm each optimizer has, and the cosine with that norm's maximiser.

    One row an optimizer and learning rate: for methods whose step does not shrink with the gradient, the direction
    depends on the rate.

    The finite part is taken off first: it does not grow, so it says nothing of the direction. A maximiser in a norm
    other than Frobenius need not be unique, so that its cosine is a hint and its margin is what counts.
    """
    rows = [(name, float(rate)) for name, several in rates.items() for rate in several]
    rest: list[Float] = []
    for name, rate in rows:
        optimizer = optimizer_of(name)
        run = train(draw.stats, "linear", embeddings=draw.H, optimizer=optimizer, learning_rate=rate, steps=steps)
        rest.append(run.W - prediction.finite_part(run.W))
        done(f"{name} at rate {rate:g}, {steps} steps")
    table: dict[str, list[Any]] = {"optimizer": [row[0] for row in rows], "rate": [row[1] for row in rows]}
    for name, norm in NORMS.items():
        problem = MarginProblem(prediction.data.S, prediction.data.H, norm)
        best = solve_margin(problem).solution.x
        table[f"share_of_{name}_margin"] = [problem.margin(W) / problem.margin(best) for W in rest]
        table[f"cosine_{name}"] = [cosine(W, best) for W in rest]
    return table


def train_embeddings(draw: Draw, seed: int, rate: float, steps: int) -> Run:
    """Gradient descent on W and H from the given H."""
    return train(
        draw.stats,
        "linear",
        embeddings=draw.H,
        optimizer="gd",
        learning_rate=rate,
        steps=steps,
        seed=seed,
        learn_embeddings=True,
    )


def learned_table(runs: Sequence[Run], draws: Sequence[Draw], predictions: Sequence[LinearPrediction]) -> Table:
    """Training with H free, held against the prediction for the first H and against the one for the last H."""
    after = [predict_linear(draw.stats, run.H) for draw, run in zip(draws, runs, strict=True)]
    table: dict[str, list[Any]] = {
        "seed": list(range(len(runs))),
        "loss_gap": [run.loss_gap for run in runs],
        "norm_W": [float(np.linalg.norm(run.W)) for run in runs],
        "embeddings_moved": [_distance(run.H, draw.H) for run, draw in zip(runs, draws, strict=True)],
    }
    for which, held in (("first_H", predictions), ("last_H", after)):
        pairs = list(zip(runs, held, strict=True))
        table[f"cosine_{which}"] = [cosine(run.W, p.W_mm) for run, p in pairs]
        table[f"cosine_without_finite_{which}"] = [cosine(run.W - p.W_star, p.W_mm) for run, p in pairs]
        table[f"finite_error_{which}"] = [_distance(p.finite_part(run.W), p.W_star) for run, p in pairs]
    return table


def _distance(X: Float, target: Float) -> float:
    """Distance from the target, relative to its size."""
    return float(np.linalg.norm(X - target) / np.linalg.norm(target))
