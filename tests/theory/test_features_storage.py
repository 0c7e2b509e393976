"""A saved prediction loads as it was, proves itself without solving, and shows where it was changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from feature_cases import from_counts, random_counts
from forging import Entry, forge_array, forge_entry
from tokengeom import NextTokenStatistics
from tokengeom.core.errors import InputError, ResourceError
from tokengeom.core.numerics import Float
from tokengeom.problems.base import Solution
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.results.manifests import MANIFEST
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.theory.storage import FEATURES as ARRAYS
from tokengeom.theory.storage import are_counts
from tokengeom.theory.uniqueness import solution_bounds
from tokengeom.verification.verify import check_result

STATS = from_counts(random_counts(9, 20, 3, seed=0))


@pytest.fixture(scope="module")
def prediction() -> FeaturePrediction:
    return predict(STATS)


def test_what_is_saved_is_loaded(prediction: FeaturePrediction, tmp_path: Path) -> None:
    back = tg.load(prediction.save(tmp_path / "p"))
    assert isinstance(back, FeaturePrediction)
    for name in ("L_mm", "L_in", "W", "H", "singular_values"):
        assert (getattr(back, name) == getattr(prediction, name)).all()
    for name in ("certificate", "entropy", "rank", "proxy_is_exact", "spread", "warnings", "nuclear_norm"):
        assert getattr(back, name) == getattr(prediction, name)
    assert back.summary() == prediction.summary()
    assert back.to_dict() == prediction.to_dict()
    assert back.statistics_hash == prediction.statistics_hash
    assert back.stats is None


def test_a_saved_prediction_is_verified_without_solving(
    prediction: FeaturePrediction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prediction.save(tmp_path / "p")
    monkeypatch.setattr("tokengeom.solvers.nuclear_admm.NuclearADMM.__call__", None)
    found = tg.verify(folder)
    assert found
    assert len(found.checked) == 16
    better = replace(prediction.certificate, bound=prediction.certificate.value)
    assert not check_result(replace(prediction, certificate=better))["the proven gap is within 1.0e-09"]
    assert any("give their folder: --with FOLDER" in sentence for sentence in found.not_checked)


def moved(a: Float) -> Float:
    """Some probability of a context's first token is given to its second; there are three per context."""
    a[0], a[1] = a[0] + 0.5 * a[1], 0.5 * a[1]
    return a


def test_a_changed_file_fails_its_hash(prediction: FeaturePrediction, tmp_path: Path) -> None:
    folder = prediction.save(tmp_path / "p")
    with (folder / ARRAYS).open("ab") as file:
        file.write(b"!")
    (failed,) = tg.verify(folder).failed
    assert ARRAYS in failed


FORGED_ENTRIES = {
    "value": (("certificate", "value"), lambda x: 0.999 * x, "the result can be read"),
    "rank": ("rank", lambda x: x - 1, "the rank is the one claimed"),
    "rank bound": ("rank_bound", lambda x: x - 1, "the bounds on every solution are the ones claimed"),
    "entropy": ("entropy", lambda x: 0.9 * x, "the entropy floor is the one claimed"),
    "proxy's norm": ("proxy_nuclear_norm", lambda x: 1.01 * x, "the proxy's nuclear norm is the one claimed"),
    "exactness": ("proxy_is_exact", lambda x: not x, "whether the proxy is exact is as claimed"),
    "sentence": ("proxy_sentence", lambda x: f"{x} So be it.", "whether the proxy is exact is as claimed"),
    "warnings": ("warnings", lambda x: [*x, "Beware."], "the warnings are those of the supports"),
    "residual": (("certificate", "dual_residual"), lambda x: x + 1e-3, "the residuals are the ones claimed"),
    "spread": (("spread", "gap"), lambda x: 0.0, "the gap of the solutions compared is not below that of L_mm"),
    "windows": ("windows", lambda x: 2 * x, "windows and coverage are those of the statistics"),
    "coverage": ("coverage", lambda x: 0.5, "windows and coverage are those of the statistics"),
}


@pytest.mark.parametrize(("entry", "change", "fails"), FORGED_ENTRIES.values(), ids=list(FORGED_ENTRIES))
def test_a_forged_number_is_named(
    prediction: FeaturePrediction, tmp_path: Path, entry: Entry | str, change: Callable[[Any], Any], fails: str
) -> None:
    STATS.save(tmp_path / "stats")
    (failed,) = tg.verify(forge_entry(prediction.save(tmp_path / "p"), entry, change)).failed
    assert failed.startswith(fails)


FORGED_ARRAYS = {
    "logits": ("L_merged", lambda a: 1.001 * a, "the nuclear norm is the one claimed"),
    "dual": ("dual_merged", lambda a: 0.999 * a, "the lower bound is the one claimed"),
    "pattern": ("S_red", lambda a: 1 - a, "the result can be read"),
    "slack": (
        "slack_bound",
        lambda a: np.where(np.isnan(a), a, 0.5 * a),
        "the bounds on every solution are the ones claimed",
    ),
    "probabilities": ("P_data", moved, "the result can be read"),
    "shares": ("pi", lambda a: a[::-1], "the result can be read"),
}


@pytest.mark.parametrize(("name", "change", "fails"), FORGED_ARRAYS.values(), ids=list(FORGED_ARRAYS))
def test_a_forged_array_is_named(
    prediction: FeaturePrediction, tmp_path: Path, name: str, change: Callable[[Float], Float], fails: str
) -> None:
    STATS.save(tmp_path / "stats")
    failed = tg.verify(forge_array(prediction.save(tmp_path / "p"), ARRAYS, name, change)).failed
    assert any(sentence.startswith(fails) for sentence in failed)


def test_other_probabilities_differ_from_the_statistics(tmp_path: Path) -> None:
    stats = NextTokenStatistics.from_probabilities(STATS.P, STATS.pi)
    stats.save(tmp_path / "stats")
    folder = predict(stats).save(tmp_path / "p")
    assert tg.verify(folder)
    forge_array(folder, ARRAYS, "P_data", moved)
    assert "probabilities and shares are those of the statistics" in tg.verify(folder).failed


def test_logits_with_an_honest_but_large_gap_are_not_a_proof(prediction: FeaturePrediction, tmp_path: Path) -> None:
    """Feasible logits that are far too long, with everything that follows from them."""
    rng = np.random.default_rng(0)
    longer = np.where(prediction.reduction.S_red, 3.0, rng.uniform(-40.0, 0.0, prediction.L_merged.shape))
    proof = NuclearSVM(prediction.reduction).certify(longer, prediction.dual_merged)
    assert 0.5 < proof.relative_gap < 1.0
    forged = replace(prediction, L_merged=longer, certificate=proof, claimed=None)
    bounds = solution_bounds(
        NuclearSVM(prediction.reduction), Solution(longer, prediction.dual_merged, proof, "", 0, 0.0)
    )
    spread = None if prediction.spread is None else replace(prediction.spread, gap=1.0)
    failed = tg.verify(replace(forged, solution_bounds=bounds, spread=spread).save(tmp_path / "p")).failed
    assert failed == ("the nuclear norm is proven to be within 5% of the smallest",)


REFUSED = {
    "indptr falls": ("P_indptr", lambda a: np.where(np.arange(a.size) == 2, a[1] - 1, a)),
    "indptr starts late": ("P_indptr", lambda a: np.where(np.arange(a.size) == 0, 1, a)),
    "indptr ends late": ("P_indptr", lambda a: a + (np.arange(a.size) == a.size - 1)),
    "indptr is huge": ("P_indptr", lambda a: np.where(np.arange(a.size) == 2, 2**62, a)),
    "indptr is short": ("P_indptr", lambda a: a[:-1]),
    "indptr is of 16 bits": ("P_indptr", lambda a: a.astype(np.int16)),
    "indices out of range": ("P_indices", lambda a: a + 2**33),
    "indices below 0": ("P_indices", lambda a: a - 1),
    "indices repeat": ("P_indices", lambda a: 0 * a),
    "indices fall": ("P_indices", lambda a: a[::-1]),
    "P is negative": ("P_data", lambda a: -a),
    "P is 7 times too large": ("P_data", lambda a: 7 * a),
    "P is not a number": ("P_data", lambda a: np.where(np.arange(a.size) == 3, np.nan, a)),
    "P is 0": ("P_data", lambda a: np.where(np.arange(a.size) == 3, 0.0, a)),
    "P is of 32 bits": ("P_data", lambda a: a.astype(np.float32)),
    "pi is negative": ("pi", lambda a: -a),
    "pi does not sum to 1": ("pi", lambda a: 2 * a),
    "pi is short": ("pi", lambda a: a[:-1]),
    "tokens of no group": ("row_of", lambda a: a + 10**9),
    "contexts of no group": ("column_of", lambda a: a - 2),
    "a group without contexts": ("column_of", lambda a: np.minimum(a, 1)),
    "a dual that is not a number": ("dual_merged", lambda a: np.nan * a),
    "infinite logits": ("L_merged", lambda a: np.inf * a),
    "huge logits": ("L_merged", lambda a: 1e300 * a),
    "logits of another shape": ("L_merged", lambda a: a.T),
    "slack below 0": ("slack_bound", lambda a: -a),
}


@pytest.mark.parametrize(("name", "change"), REFUSED.values(), ids=list(REFUSED))
def test_arrays_that_cannot_be_are_refused_before_they_are_used(
    prediction: FeaturePrediction, tmp_path: Path, name: str, change: Callable[[Float], Float]
) -> None:
    folder = forge_array(prediction.save(tmp_path / "p"), ARRAYS, name, change)
    with pytest.raises(InputError, match=rf"{folder} is damaged: .*Make the result again"):
        FeaturePrediction.load(folder)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("entropy", None),
        ("entropy", float("nan")),
        ("entropy", 10**400),
        ("windows", 2.5),
        ("windows", 7),
        ("coverage", 1.5),
        ("spread", [1]),
        ("warnings", "none"),
        ("proxy_is_exact", 1),
        ("statistics_hash", "abc"),
        ("rank_bound", -1),
        (("certificate", "bound"), "1"),
        (("certificate", "value"), float("inf")),
        (("certificate", "relative_gap"), 0.5),
    ],
)
def test_entries_that_cannot_be_are_refused(
    prediction: FeaturePrediction, tmp_path: Path, entry: Entry | str, value: object
) -> None:
    folder = forge_entry(prediction.save(tmp_path / "p"), entry, lambda _: value)
    with pytest.raises(InputError, match=rf"{folder} is damaged: .*Make the result again"):
        FeaturePrediction.load(folder)


def test_a_failed_save_leaves_the_old_prediction(
    prediction: FeaturePrediction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prediction.save(tmp_path / "p")

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("tokengeom.theory.storage.save_file", broken)
    with pytest.raises(ResourceError, match="disk full"):
        prediction.save(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]
    assert tg.verify(folder)


def test_saving_twice_replaces(prediction: FeaturePrediction, tmp_path: Path) -> None:
    prediction.save(tmp_path / "p")
    prediction.save(tmp_path / "p")
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_a_folder_of_another_kind_or_a_damaged_one_is_refused(prediction: FeaturePrediction, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=MANIFEST):
        FeaturePrediction.load(tmp_path)
    (tmp_path / MANIFEST).write_text('{"format": "tokengeom-run"}')
    with pytest.raises(InputError, match="tokengeom-run"):
        FeaturePrediction.load(tmp_path)
    folder = prediction.save(tmp_path / "p")
    (folder / ARRAYS).write_bytes(b"short")
    with pytest.raises(InputError, match=rf"is damaged: {ARRAYS}"):
        FeaturePrediction.load(folder)


def test_windows_are_whole_numbers() -> None:
    assert are_counts(STATS.P, STATS.pi, STATS.n)
    assert not are_counts(STATS.P, STATS.pi, STATS.n + 1)
    assert not are_counts(STATS.P, STATS.pi, 1)
