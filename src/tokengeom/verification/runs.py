"""Checks of saved runs: what W and H say of the records, and the statistics of the loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tokengeom.core.errors import InputError
from tokengeom.core.factors import Factors
from tokengeom.results.contract import SAME, NearbyResults, check_hashes, under
from tokengeom.training.objective import SoftLabels
from tokengeom.training.run import Run, load_runs
from tokengeom.verification.statistics import find_statistics
from tokengeom.verification.verify import Checks, not_beside, not_computed, same

NOT_CHECKED: Checks = {
    "records before the last one, and seconds: only training again would show them": None,
    "the settings, except the dimension: only training again would show them": None,
    "numbers in the trajectory that compare with a prediction: the run does not record which prediction it was": None,
}
"""What the checks of a run leave out."""


def check_runs(folder: Path, nearby: NearbyResults) -> Checks:
    """Check a folder with a run, or with the replicates of a batched run: hashes, then what `check_run` checks."""
    checks: Checks = {**check_hashes(folder)}
    if not all(checks.values()):
        return checks
    try:
        runs = load_runs(folder)
    except InputError as error:
        return {**checks, f"the result can be read ({error})": False}
    for r, run in enumerate(runs):
        checks |= under(f"replicate {r}", check_run(run, nearby)) if len(runs) > 1 else check_run(run, nearby)
    return checks


def check_run(run: Run, nearby: NearbyResults) -> Checks:
    """What W and H say of the last record, the start of the first one, and the statistics of the loss."""
    last = int(run.trajectory.last("step")) if len(run.trajectory) else -1
    is_finite = bool(np.isfinite(run.W).all() and np.isfinite(run.H).all())
    checks: Checks = {
        "W and H have the dimension in the settings": run.settings.get("dim") == run.W.shape[1],
        "W and H are finite, or the run diverged": run.diverged or is_finite,
        "the last record is at the last step of a finished run": (
            last == run.steps if run.status == "finished" else last <= run.steps
        ),
    }
    if last == run.steps and not run.diverged:
        checks["loss gap and norms are those of the last record"] = _is_record(run, -1, Factors(run.W, run.H))
    if (start := _recorded_start(run)) is not None:
        checks["the norms before the first step are those of the first record"] = _is_record(run, 0, start)
    return checks | _check_loss(run, nearby, last) | NOT_CHECKED


def _recorded_start(run: Run) -> Factors | None:
    """W and H before the first step, where the first record measures them."""
    is_recorded = len(run.trajectory) > 0 and run.trajectory.steps[0] == 0
    return run.start if is_recorded else None


def _is_record(run: Run, place: int, factors: Factors) -> bool:
    """Whether a record has the norms of these factors, and the last one the loss gap of the run."""
    measured = {
        "norm_W": float(np.linalg.norm(factors.W)),
        "norm_H": float(np.linalg.norm(factors.H)),
        "norm_logits": float(np.linalg.norm(factors.logits)),
    } | ({"loss_gap": run.loss_gap} if place == -1 else {})
    recorded = {name: float(run.trajectory[name][place]) for name in measured if name in run.trajectory.names}
    return same(recorded, {name: measured[name] for name in recorded}, SAME)


def _check_loss(run: Run, nearby: NearbyResults, last: int) -> Checks:
    """Whether losses, entropy and margins are those of the statistics beside the run."""
    if run.statistics_hash is None:
        return not_computed("loss, margin and entropy", "the labels of the training are not saved")
    stats = find_statistics(nearby, run.statistics_hash)
    if stats is None:
        return not_computed("loss, margin and entropy", not_beside("statistics", run.statistics_hash))
    if (run.W.shape[0], run.H.shape[1]) != (stats.V, stats.m):
        return {"the run has the tokens and contexts of its statistics": False}
    checks: Checks = {"the entropy floor is that of the statistics": same(run.entropy, stats.entropy, SAME)}
    if run.diverged:
        return checks
    labels, L = SoftLabels.from_statistics(stats), run.logits
    checks["the loss gap is that of W and H"] = same_loss(run.loss_gap, labels.loss_gap(L))
    if last == run.steps and "margin" in run.trajectory.names:
        recorded, margin = run.trajectory.last("margin"), float(np.min(labels.margins(L)))
        checks["the margin of the last record is that of W and H"] = same(recorded, margin, SAME)
    if (start := _recorded_start(run)) is not None:
        claimed, first = float(run.trajectory["loss_gap"][0]), labels.loss_gap(start.logits)
        checks["the loss gap of the first record is that of the start"] = same_loss(claimed, first)
    return checks


def same_loss(claimed: float, again: float) -> bool:
    """Whether two loss gaps agree, as a share of themselves; below 1e-15 nats, rounding decides."""
    return bool(abs(claimed - again) <= 1e-6 * max(abs(claimed), abs(again)) + 1e-15)
