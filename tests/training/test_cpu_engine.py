"""The CPU engine: blocks, precision, and steps in any portions."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom.core.numerics import Float
from tokengeom.models.factored import UFM
from tokengeom.training.cpu_engine import CpuEngine
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.adamw import AdamW
from training_problems import random_statistics


def test_the_number_of_cores_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    labels = SoftLabels.from_statistics(random_statistics(5, m=40))
    table = AdamW().coefficients(np.arange(1.0, 41), np.full(40, 0.01), np.full(40, 0.01))

    def end(blocks_of: float, threads: int) -> Float:
        monkeypatch.setattr("tokengeom.training.cpu_engine.BLOCK_WORK", blocks_of)
        engine = CpuEngine(UFM(7, 40, 6, generator=np.random.default_rng(0)), labels, AdamW())
        numba.set_num_threads(threads)
        engine.advance(table, None)
        numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
        return engine.readout(0).logits

    most = min(2, numba.config.NUMBA_NUM_THREADS)
    np.testing.assert_array_equal(end(2000.0, 1), end(2000.0, most))
    np.testing.assert_allclose(end(2000.0, 1), end(1e9, 1), atol=1e-10)


def test_the_division_of_steps_between_calls_does_not_change_the_result() -> None:
    labels = SoftLabels.from_statistics(random_statistics(5))
    table = AdamW().coefficients(np.arange(1.0, 41), np.full(40, 0.01), np.full(40, 0.01))
    engines = [CpuEngine(UFM(7, 9, 6, generator=np.random.default_rng(0)), labels, AdamW()) for _ in range(2)]
    engines[0].advance(table, None)
    for part in np.array_split(table, 7):
        engines[1].advance(part, None)
    np.testing.assert_array_equal(engines[0].readout(0).logits, engines[1].readout(0).logits)
