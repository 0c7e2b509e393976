"""The torch engine: replicates in one batch, on machines that have torch and NumPy only."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

from tokengeom.core.errors import ProblemError
from tokengeom.models.factored import Linear
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.gd import GD
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.torch_engine import TorchEngine, _no_collection
from tokengeom.training.train import train_many
from training_problems import random_statistics


def test_many_replicates_equal_single_runs() -> None:
    stats = random_statistics(7)
    settings = [TrainingSettings(dim=d, seed=s, optimizer="adamw", steps=60) for d, s in ((3, 0), (5, 1))]
    batched = train_many(stats, settings)
    alone = train_many(stats, settings, backend="cpu")
    for one, other in zip(batched, alone, strict=True):
        np.testing.assert_allclose(one.W, other.W, atol=1e-10)
        np.testing.assert_allclose(one.trajectory["loss_gap"], other.trajectory["loss_gap"], rtol=1e-8)


def test_replicates_that_train_other_parameters_are_refused() -> None:
    labels = SoftLabels.from_statistics(random_statistics(7))
    H = np.ones((2, 9))
    with pytest.raises(ProblemError, match="same parameters"):
        TorchEngine([Linear(7, H), Linear(7, H, learn_embeddings=True)], labels, GD())


BARE = """
import sys
for name in ("numba", "scipy", "pyarrow", "pandas", "rich", "duckdb", "threadpoolctl"):
    sys.modules[name] = None
import numpy as np
from tokengeom.training.objective import SoftLabels
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import train_many
labels = SoftLabels.from_dense(np.array([[0.5, 0.0], [0.5, 0.2], [0.0, 0.8]]))
runs = train_many(labels, [TrainingSettings(dim=2, seed=s, optimizer="adamw", steps=5) for s in range(2)])
assert all(run.status == "finished" for run in runs)
"""


def test_the_torch_engine_needs_only_torch_and_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_garbage_is_collected_while_a_graph_is_recorded() -> None:
    # On a GPU, destroying the graph of an earlier run during a recording makes the recording fail.
    class Cycle:
        def __init__(self) -> None:
            self.me = self

    before, earlier = gc.isenabled(), weakref.ref(Cycle())
    gc.enable()
    try:
        with _no_collection():
            assert earlier() is None, "what is garbage already goes before the recording"
            assert not gc.isenabled()
        assert gc.isenabled()
        with pytest.raises(ValueError, match="a step that fails"), _no_collection():
            raise ValueError("a step that fails")
        assert gc.isenabled()
        gc.disable()
        with _no_collection():
            pass
        assert not gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()
