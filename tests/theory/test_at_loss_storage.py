"""A saved prediction at a loss proves itself again, and a forged one is refused or fails a check that names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from feature_cases import from_counts, random_counts
from forging import Entry, forge_array, forge_entry
from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.storage import AT_LOSS as ARRAYS
from tokengeom.verification.verify import AS_RECORDED

STATS = from_counts(np.hstack([random_counts(8, 12, 3, seed=0)] * 2))
NORMS = ("nuclear", "gamma2")


@pytest.fixture(scope="module")
def predictions() -> dict[str, LossPrediction]:
    return {norm: tg.predict(STATS, loss_gap=0.05, norm=norm) for norm in NORMS}


@pytest.mark.parametrize("norm", NORMS)
def test_a_saved_prediction_is_checked_alone_and_against_its_statistics(
    predictions: dict[str, LossPrediction], tmp_path: Path, norm: str
) -> None:
    folder = predictions[norm].save(tmp_path / "p")
    alone = tg.verify(folder)
    assert alone.ok, alone.failed
    assert any("give their folder: --with FOLDER" in sentence for sentence in alone.not_checked)
    STATS.save(tmp_path / "stats")
    found = tg.verify(folder)
    assert found.ok, found.failed
    assert "probabilities and shares are those of the statistics" in found.checked
    assert len(found.not_checked) == 2
    assert found.not_checked[1] == AS_RECORDED


def test_other_statistics_that_were_named_are_not_taken_for_its_own(
    predictions: dict[str, LossPrediction], tmp_path: Path
) -> None:
    folder = predictions["nuclear"].save(tmp_path / "p")
    other = from_counts(random_counts(8, 24, 3, seed=1)).save(tmp_path / "elsewhere" / "stats")
    assert len(tg.verify(folder, beside=[other]).checked) == len(tg.verify(folder).checked)


def shifted(a: Float) -> Float:
    """The probabilities of two contexts with other tokens are exchanged."""
    a[:, [0, 1]] = a[:, [1, 0]]
    return a


FORGED = {
    "loss gap": ("loss_gap", lambda x: 1.001 * x, "the loss gap is the one claimed"),
    "lambda": ("lam", lambda x: 1.001 * x, "the regularised objective is the one claimed"),
    "entropy": ("entropy", lambda x: 0.999 * x, "the entropy floor is the one claimed"),
    "certificate": (
        "certificate",
        lambda x: x | {"value": 0.999 * x["value"], "bound": 0.999 * x["bound"]},
        "the lower bound of the objective is the one claimed",
    ),
    "residual": (("certificate", "dual_residual"), lambda x: x + 0.1, "the residuals are the ones claimed"),
}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("entry", "change", "fails"), FORGED.values(), ids=list(FORGED))
def test_a_forged_number_is_named(
    predictions: dict[str, LossPrediction],
    tmp_path: Path,
    norm: str,
    entry: Entry | str,
    change: Callable[[Any], Any],
    fails: str,
) -> None:
    folder = predictions[norm].save(tmp_path / "p")
    assert fails in tg.verify(forge_entry(folder, entry, change)).failed


FORGED_ARRAYS = {
    "logits": ("nuclear", "L_merged", lambda a: 1.001 * a, "the loss gap is the one claimed"),
    "dual": ("nuclear", "change_merged", lambda a: 0.99 * a, "the lower bound of the objective is the one claimed"),
    "factors": ("gamma2", "W_merged", lambda a: 1.001 * a, "the loss gap is the one claimed"),
    "weights": ("gamma2", "p", lambda a: np.roll(a, 1), "the lower bound of the objective is the one claimed"),
    "probabilities": ("nuclear", "P_merged", shifted, "probabilities and shares are those of the statistics"),
    "contexts": (
        "nuclear",
        "column_of",
        lambda a: np.roll(a, 1),
        "probabilities and shares are those of the statistics",
    ),
    "shares": ("gamma2", "pi", lambda a: np.roll(a, 1), "probabilities and shares are those of the statistics"),
}


@pytest.mark.parametrize(("norm", "name", "change", "fails"), FORGED_ARRAYS.values(), ids=list(FORGED_ARRAYS))
def test_a_forged_array_is_named(
    predictions: dict[str, LossPrediction],
    tmp_path: Path,
    norm: str,
    name: str,
    change: Callable[[Float], Float],
    fails: str,
) -> None:
    STATS.save(tmp_path / "stats")
    folder = predictions[norm].save(tmp_path / "p")
    assert fails in tg.verify(forge_array(folder, ARRAYS, name, change)).failed


def test_logits_with_an_honest_but_large_gap_are_not_a_proof(
    predictions: dict[str, LossPrediction], tmp_path: Path
) -> None:
    """A dual of 0 proves nothing; the certificate says so, and is the right one."""
    one = predictions["nuclear"]
    problem = one.problem()
    object.__setattr__(weak := LossPrediction.load(one.save(tmp_path / "p")), "change_merged", 0.0 * one.change_merged)
    object.__setattr__(weak, "certificate", problem.certify(one.L_merged, 0.0 * one.change_merged))
    found = tg.verify(weak.save(tmp_path / "weak"))
    assert found.failed == ("the objective is proven to be within 5% of the smallest",)
    assert any("is not compared with" in sentence for sentence in found.not_checked)


REFUSED = {
    "P is negative": ("nuclear", "P_merged", lambda a: -a),
    "P is 7 times too large": ("nuclear", "P_merged", lambda a: a / 7),
    "P is not a number": ("nuclear", "P_merged", lambda a: np.nan * a),
    "tokens of no group": ("nuclear", "row_of", lambda a: a + 2**40),
    "contexts of no group": ("nuclear", "column_of", lambda a: a - 1),
    "a group without tokens": ("nuclear", "row_of", lambda a: 0 * a),
    "infinite logits": ("nuclear", "L_merged", lambda a: np.inf + a),
    "logits of another shape": ("nuclear", "L_merged", lambda a: a[1:]),
    "a dual that is not a number": ("gamma2", "change_merged", lambda a: np.nan * a),
    "factors that do not fit": ("gamma2", "H_merged", lambda a: a[1:]),
    "weights of 0": ("gamma2", "p", lambda a: np.where(np.arange(a.size) == 0, 0.0, a)),
    "weights that do not sum to 1": ("gamma2", "q", lambda a: 0.5 * a),
}


@pytest.mark.parametrize(("norm", "name", "change"), REFUSED.values(), ids=list(REFUSED))
def test_arrays_that_cannot_be_are_refused(
    predictions: dict[str, LossPrediction], tmp_path: Path, norm: str, name: str, change: Callable[[Float], Float]
) -> None:
    folder = forge_array(predictions[norm].save(tmp_path / "p"), ARRAYS, name, change)
    with pytest.raises(InputError, match=rf"{folder} is damaged: .*Make the result again"):
        LossPrediction.load(folder)


@pytest.mark.parametrize(
    ("entry", "value"),
    [("norm", "spectral"), ("norm", "gamma2"), ("lam", 0.0), ("lam", -1.0), ("loss_gap", -0.1), ("status", None)],
)
def test_entries_that_cannot_be_are_refused(
    predictions: dict[str, LossPrediction], tmp_path: Path, entry: str, value: object
) -> None:
    folder = forge_entry(predictions["nuclear"].save(tmp_path / "p"), entry, lambda _: value)
    with pytest.raises(InputError, match=rf"{folder} is damaged: .*Make the result again"):
        LossPrediction.load(folder)
