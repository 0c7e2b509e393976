"""A saved linear prediction proves itself again, and a changed one does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forging import Entry, forge_array, forge_entry
from synthetic_languages import random_soft_labels
from tokengeom import NextTokenStatistics
from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float
from tokengeom.results.registry import load
from tokengeom.theory.linear import ARRAYS, LinearPrediction
from tokengeom.theory.predict import predict
from tokengeom.verification.verify import AS_RECORDED, verify


def statistics() -> NextTokenStatistics:
    truth = random_soft_labels(V=6, m=12, k=3, seed=1).truth
    return NextTokenStatistics.from_probabilities(truth.P, truth.pi)


def embeddings(d: int) -> Float:
    return np.random.default_rng(2).normal(size=(d, 12))


CASES = {"both hold": 14, "neither holds": 4, "one dimension": 1}


@pytest.mark.parametrize("d", CASES.values(), ids=list(CASES))
def test_a_linear_prediction_is_loaded_as_it_was_and_proves_itself(tmp_path: Path, d: int) -> None:
    before = predict(statistics(), embeddings=embeddings(d))
    before.save(tmp_path / "p")
    after = load(tmp_path / "p")
    assert isinstance(after, LinearPrediction)
    assert after.summary() == before.summary()
    assert after.to_dict() == before.to_dict()
    assert after.statistics_hash == before.statistics_hash
    assert after.stats is None
    for name in ("W_star", "W_mm", "effective_support", "multipliers"):
        assert np.array_equal(getattr(after, name), getattr(before, name))
    found = verify(tmp_path / "p")
    assert found.ok, found.failed
    assert len(found.checked) >= 17
    statistics().save(tmp_path / "stats")
    found = verify(tmp_path / "p")
    assert found.ok, found.failed
    assert "probabilities and shares are those of the statistics" in found.checked
    assert found.not_checked == ("that the embeddings are the ones given: they are kept nowhere else", AS_RECORDED)


def noisy(change: float) -> Callable[[Float], Float]:
    return lambda array: array + change * np.random.default_rng(0).normal(size=array.shape)


@pytest.mark.parametrize("name", ["W_mm", "W_star", "multipliers", "H"])
def test_a_changed_array_fails_its_proof_even_with_a_new_hash(tmp_path: Path, name: str) -> None:
    predict(statistics(), embeddings=embeddings(14)).save(tmp_path / "p")
    forge_array(tmp_path / "p", ARRAYS, name, noisy(1e-3))
    assert not verify(tmp_path / "p").ok


@pytest.mark.parametrize("name", ["compatible", "separable", "blocking", "W_star"])
def test_a_changed_refutation_fails_its_proof(tmp_path: Path, name: str) -> None:
    predict(statistics(), embeddings=embeddings(4)).save(tmp_path / "p")
    forge_array(tmp_path / "p", ARRAYS, name, noisy(1e-2))
    assert not verify(tmp_path / "p").ok


FORGED = {
    "margin": ("margin", lambda x: 2 * x, "the margin is the one claimed"),
    "floor": ("loss_floor", lambda x: x + 0.1, "the floor of the loss is the one claimed"),
    "entropy": ("entropy", lambda x: x + 0.1, "the entropy is the one claimed"),
    "direction": (
        "certificate",
        lambda x: x | {"value": 2 * x["value"], "bound": 2 * x["bound"]},
        "the certificate of the direction is the one claimed",
    ),
    "finite part": (
        "finite_certificate",
        lambda x: x | {"value": 2 * x["value"], "bound": 2 * x["bound"]},
        "the certificate of the finite part is the one claimed",
    ),
    "supports": (
        ("support_certificate", "primal_residual"),
        lambda x: x + 0.1,
        "the certificate of the effective supports is the one claimed",
    ),
    "compatible": (
        ("compatible", "sentence"),
        lambda x: f"{x} Surely.",
        "compatibility is described as its proof shows it",
    ),
    "separable": (
        ("separable", "sentence"),
        lambda x: x.replace("separable", "inseparable"),
        "separability is described as its proof shows it",
    ),
    "contexts": (("separable", "contexts"), lambda x: [1, 2], "separability is described as its proof shows it"),
    "names": ("token_names", lambda x: x[::-1], "the names are those of the statistics"),
}


@pytest.mark.parametrize(("entry", "change", "fails"), FORGED.values(), ids=list(FORGED))
def test_a_forged_number_is_named(tmp_path: Path, entry: Entry | str, change: Callable[[Any], Any], fails: str) -> None:
    statistics().save(tmp_path / "stats")
    folder = predict(statistics(), embeddings=embeddings(14)).save(tmp_path / "p")
    assert fails in verify(forge_entry(folder, entry, change)).failed


@pytest.mark.parametrize(("d", "name"), [(14, "compatible"), (4, "compatible"), (14, "separable"), (4, "separable")])
def test_a_forged_condition_has_no_proof(tmp_path: Path, d: int, name: str) -> None:
    folder = predict(statistics(), embeddings=embeddings(d)).save(tmp_path / "p")
    assert not verify(forge_entry(folder, (name, "holds"), lambda holds: not holds))


def test_other_probabilities_differ_from_the_statistics(tmp_path: Path) -> None:
    statistics().save(tmp_path / "stats")
    folder = predict(statistics(), embeddings=embeddings(4)).save(tmp_path / "p")
    forge_array(folder, ARRAYS, "pi", lambda pi: pi * (1 + 1e-3 * (-1.0) ** np.arange(pi.size)))
    assert "probabilities and shares are those of the statistics" in verify(folder).failed


REFUSED = {
    "P is negative": ("P", lambda a: -a),
    "P is 7 times too large": ("P", lambda a: a / 7),
    "P is not a number": ("P", lambda a: np.nan * a),
    "a context without tokens": ("P", lambda a: a * (np.arange(a.shape[1]) > 0)),
    "one token": ("P", lambda a: np.ones((1, a.shape[1]))),
    "an embedding is 0": ("H", lambda a: a * (np.arange(a.shape[1]) > 0)),
    "embeddings for other contexts": ("H", lambda a: a[:, 1:]),
    "an empty effective support": ("effective_support", lambda a: 0 * a),
    "a support of 7": ("effective_support", lambda a: 7 * a),
    "a proof of another shape": ("separable", lambda a: a[:2]),
    "infinite multipliers": ("multipliers", lambda a: a + np.inf),
    "a huge direction": ("W_mm", lambda a: a + 1e200),
}


@pytest.mark.parametrize(("name", "change"), REFUSED.values(), ids=list(REFUSED))
def test_arrays_that_cannot_be_are_refused(tmp_path: Path, name: str, change: Callable[[Float], Float]) -> None:
    folder = predict(statistics(), embeddings=embeddings(4)).save(tmp_path / "p")
    with pytest.raises(InputError, match=rf"{folder} is damaged: .*Make the result again"):
        LinearPrediction.load(forge_array(folder, ARRAYS, name, change))


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("token_names", ["a"]),
        ("token_names", [1] * 6),
        ("context_names", "abc"),
        ("margin", -1.0),
        ("entropy", float("inf")),
        (("certificate", "value"), float("nan")),
        (("compatible", "holds"), "yes"),
        (("compatible", "contexts"), [12]),
        (("separable", "pairs"), [[0, 6]]),
    ],
)
def test_entries_that_cannot_be_are_refused(tmp_path: Path, entry: Entry | str, value: object) -> None:
    folder = predict(statistics(), embeddings=embeddings(4)).save(tmp_path / "p")
    with pytest.raises(InputError, match=rf"{folder} is damaged: .*Make the result again"):
        LinearPrediction.load(forge_entry(folder, entry, lambda _: value))


def test_a_damaged_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    predict(statistics(), embeddings=embeddings(4)).save(tmp_path / "p")
    with (tmp_path / "p" / ARRAYS).open("ab") as file:
        file.write(b"!")
    with pytest.raises(InputError, match=rf"is damaged: {ARRAYS}"):
        load(tmp_path / "p")
    assert ARRAYS in verify(tmp_path / "p").failed[0]


def test_a_new_file_in_the_folder_is_found(tmp_path: Path) -> None:
    predict(statistics()).save(tmp_path / "f")
    assert verify(tmp_path / "f").ok
    (tmp_path / "f/extra.txt").write_text("a new file")
    assert not verify(tmp_path / "f").ok


def test_a_folder_without_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no saved result"):
        verify(tmp_path)
    with pytest.raises(InputError, match="no saved result"):
        load(tmp_path)
