"""Run by ``torchrun``: solves over all processes, and writes what each process found to the folder that it is given.

The folder holds saved statistics, for which the command line then predicts.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np

from feature_cases import random_pattern
from tokengeom.core.numerics import Float
from tokengeom.problems.backend import Backend
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.results.contract import AbstractResult
from tokengeom.solvers.nuclear_admm import NuclearADMM
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict
from tokengeom.verification.verify import check_result

SHAPES = {"odd": (9, 13), "tall": (12, 5), "one column": (6, 1)}
LOSS_GAP = 0.05
TOLERANCE = 1e-7


def statistics(name: str) -> NextTokenStatistics:
    """Random statistics with distinct supports and unequal shares."""
    V, m = SHAPES[name]
    rng = np.random.default_rng(len(name))
    counts = random_pattern(V, m, 3, density=0.4) * rng.integers(1, 9, (V, m))
    return NextTokenStatistics.from_counts(counts)


def matrix() -> Float:
    """A V x m matrix with a small singular value."""
    x = np.random.default_rng(0).standard_normal((5, 7))
    x[4] = x[3] + 1e-9 * x[4]
    return x


def operations() -> dict[str, Float]:
    """Every operation that adds up over processes, on a matrix whose columns are spread."""
    backend = Backend.over_processes()
    columns = backend.columns(7)
    x, y = (backend.asarray(z[:, columns]) for z in (matrix(), matrix() ** 2))
    eigenvalues, Q = backend.eigh(backend.gram(x))
    polar, s = backend.polar_factor(x)
    return {
        "gram": backend.to_numpy(backend.gram(x)),
        "norm": np.array(backend.norm(x)),
        "largest": np.array(backend.largest(y)),
        "finite": np.array([backend.all_finite(x), backend.all_finite(x / (1.0 - float(columns.start == 0)))]),
        "singular_values": backend.to_numpy(backend.fast_singular_values(x)),
        "proven_spectral_norm": np.array(backend.proven_spectral_norm(x)),
        "proven_nuclear_norm": np.array(backend.proven_nuclear_norm(x)),
        "decomposed": backend.to_numpy((Q * eigenvalues) @ Q.T),
        "polar": backend.whole(polar),
        "polar_values": backend.to_numpy(s),
        "whole": backend.whole(x),
        "first": np.array(float(backend.agree(float(columns.start)))),
        "held": np.array([columns.start, columns.stop]),
    }


def solves(name: str) -> dict[str, Float]:
    """L_mm and the prediction at a loss: answers and certificates."""
    stats = statistics(name)
    limit = predict(stats, tolerance=TOLERANCE)
    at = predict(stats, loss_gap=LOSS_GAP, tolerance=TOLERANCE)
    timed = NuclearADMM(tolerance=1e-15, time_limit=0.0)
    problem = NuclearSVM(limit.reduction, Backend.over_processes())
    return {
        "L_mm": limit.L_mm,
        "dual": limit.dual_merged,
        "slack_bound": limit.solution_bounds.slack_bound,
        "limit": np.array([limit.nuclear_norm, limit.lower_bound, limit.proxy_nuclear_norm]),
        "L": at.L,
        "change": at.change_merged,
        "at": np.array([at.nuclear_norm, at.lower_bound, at.loss_gap, at.lam]),
        "stopped": np.array(timed(problem).iterations),
        "checks": np.array([holds is not False for one in (limit, at) for holds in check_result(one).values()]),
    }


def run_command(*arguments: str) -> None:
    """``python -m tokengeom ARGUMENTS`` in this process."""
    sys.argv[1:] = arguments
    try:
        runpy.run_module("tokengeom", run_name="__main__", alter_sys=True)
    except SystemExit as done:
        if done.code:
            raise


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    joined = Backend.over_processes().processes
    assert joined is not None
    found = {f"{name}/{key}": value for name in SHAPES for key, value in solves(name).items()}
    found |= {f"operations/{key}": value for key, value in operations().items()}
    np.savez(folder / f"{joined.rank}.npz", allow_pickle=False, **found)
    save, mark = AbstractResult.save, folder / f"saved-by-{joined.rank}"

    def noted(result: AbstractResult, target: str | Path) -> Path:
        mark.touch()
        return save(result, target)

    setattr(AbstractResult, "save", noted)  # noqa: B010
    saved = str(folder / "stats")
    run_command("predict", saved, "--json", "--out", str(folder / "limit"))
    run_command("predict", saved, "--json", "--loss-gap", str(LOSS_GAP), "--out", str(folder / "at-loss"))
