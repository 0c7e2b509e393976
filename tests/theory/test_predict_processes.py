"""Processes that solve together, each with a part of the columns, find what one process finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import process_cases
from process_cases import LOSS_GAP, SHAPES, TOLERANCE
from tokengeom.core.errors import ResourceError
from tokengeom.core.numerics import Float
from tokengeom.core.system import Processes, join_processes, launched_processes
from tokengeom.problems.backend import Backend
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.verification.verify import verify
from waiting import PATIENCE

LAUNCHER = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
Found = dict[str, Float]


@dataclass(frozen=True)
class Launched:
    """What two processes wrote to a folder, each by itself, and what they printed together."""

    folder: Path
    found: list[Found]
    printed: list[str]


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("processes")
    process_cases.statistics("odd").save(folder / "stats")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(process_cases.__file__).parent)}
    command = [*LAUNCHER, process_cases.__file__, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return Launched(folder, [dict(np.load(folder / f"{rank}.npz")) for rank in range(2)], done.stdout.splitlines())


@pytest.fixture(scope="module")
def together(launched: Launched) -> list[Found]:
    """What each of two processes found."""
    return launched.found


def test_every_process_gets_the_same_answer_to_the_bit(together: list[Found]) -> None:
    first, second = together
    assert first.keys() == second.keys()
    for name, value in first.items():
        if name != "operations/held":
            np.testing.assert_array_equal(value, second[name], err_msg=name)


def test_every_operation_over_processes_is_that_of_the_whole_matrix(together: list[Found]) -> None:
    found = {name.removeprefix("operations/"): value for name, value in together[0].items() if "operations/" in name}
    x, backend = process_cases.matrix(), Backend.on()
    s = np.linalg.svd(x, compute_uv=False)
    assert found["held"].tolist() == [0, 3], "seven columns do not divide evenly"
    assert together[1]["operations/held"].tolist() == [3, 7]
    np.testing.assert_allclose(found["gram"], x @ x.T, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(found["decomposed"], x @ x.T, rtol=1e-12, atol=1e-12)
    assert found["norm"] == pytest.approx(np.linalg.norm(x), rel=1e-14)
    assert found["largest"] == (x**2).max()
    assert found["finite"].tolist() == [1, 0], "one process's infinity is seen by all"
    np.testing.assert_allclose(found["singular_values"][-4:], s[:4][::-1], rtol=1e-9)
    assert s[0] <= found["proven_spectral_norm"] <= s[0] * (1 + 1e-12)
    assert s.sum() <= found["proven_nuclear_norm"] <= s.sum() * (1 + 1e-12)
    polar, values = backend.polar_factor(x)
    np.testing.assert_allclose(found["polar"], polar, atol=1e-9)
    np.testing.assert_allclose(found["polar_values"], values, rtol=1e-12)
    np.testing.assert_array_equal(found["whole"], x)
    assert found["first"] == 0.0


@pytest.mark.parametrize("name", SHAPES)
def test_two_processes_find_the_limit_that_one_does(together: list[Found], name: str) -> None:
    found = {key.removeprefix(f"{name}/"): value for key, value in together[0].items() if key.startswith(f"{name}/")}
    alone = predict(process_cases.statistics(name), tolerance=TOLERANCE)
    np.testing.assert_allclose(found["L_mm"], alone.L_mm, atol=1e-6)
    np.testing.assert_allclose(
        found["limit"], [alone.nuclear_norm, alone.lower_bound, alone.proxy_nuclear_norm], rtol=1e-9
    )
    np.testing.assert_allclose(found["dual"], alone.dual_merged, atol=1e-6)
    assert found["slack_bound"].shape == alone.solution_bounds.slack_bound.shape
    # One process alone certifies what two have found.
    proof = NuclearSVM(alone.reduction).certify(alone.reduction.reduce(found["L_mm"]), found["dual"])
    assert proof.holds(TOLERANCE)
    assert found["stopped"] == 1, "a time limit stops all processes together"


@pytest.mark.parametrize("name", SHAPES)
def test_two_processes_find_the_point_of_the_path_that_one_does(together: list[Found], name: str) -> None:
    found = {key.removeprefix(f"{name}/"): value for key, value in together[0].items() if key.startswith(f"{name}/")}
    alone = predict(process_cases.statistics(name), loss_gap=LOSS_GAP, tolerance=TOLERANCE)
    np.testing.assert_allclose(found["L"], alone.L, atol=1e-6)
    np.testing.assert_allclose(
        found["at"], [alone.nuclear_norm, alone.lower_bound, alone.loss_gap, alone.lam], rtol=1e-9
    )
    np.testing.assert_allclose(found["change"], alone.change_merged, atol=1e-7)
    assert found["checks"].all(), "each process verifies the whole prediction by itself"


def test_the_command_line_solves_over_processes_and_only_the_first_writes_and_prints(launched: Launched) -> None:
    stats = process_cases.statistics("odd")
    assert len(launched.printed) == 2, "one line per command"
    assert [path.name for path in launched.folder.glob("saved-by-*")] == ["saved-by-0"]
    limit, at = predict(stats), predict(stats, loss_gap=LOSS_GAP)
    printed = [json.loads(line)["nuclear_norm"] for line in launched.printed]
    np.testing.assert_allclose(printed, [limit.nuclear_norm, at.nuclear_norm], rtol=1e-9)
    np.testing.assert_allclose(FeaturePrediction.load(launched.folder / "limit").L_mm, limit.L_mm, atol=1e-5)
    np.testing.assert_allclose(LossPrediction.load(launched.folder / "at-loss").L, at.L, atol=1e-5)
    assert verify(launched.folder / "limit").ok
    assert verify(launched.folder / "at-loss").ok


def test_without_a_launcher_a_process_holds_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert launched_processes() == 1
    backend = Backend.over_processes()
    assert backend.device is None
    assert backend.world == 1
    assert backend.columns(7) == slice(0, 7)
    assert [Processes(rank, 3, "cpu").part(2) for rank in range(3)] == [slice(0, 0), slice(0, 1), slice(1, 2)]


def test_processes_that_cannot_be_joined_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ResourceError, match="torchrun"):
        join_processes(torch, "cpu")
