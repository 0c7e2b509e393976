"""What training finds: the exact soft-label objective, optimizers, one loop, and the way as a table."""

from tokengeom.training.loop import Probe, State
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers import AbstractOptimizer, discover, optimizer_named
from tokengeom.training.optimizers.base import PAPER_STEPS, Constant, Cosine, Steps
from tokengeom.training.run import Run, Trajectory, load_runs, record_steps
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import Attendance, train, train_many

__all__ = [
    "PAPER_STEPS",
    "AbstractOptimizer",
    "Attendance",
    "Constant",
    "Cosine",
    "Probe",
    "Run",
    "SoftLabels",
    "State",
    "Steps",
    "TrainingSettings",
    "Trajectory",
    "discover",
    "load_runs",
    "optimizer_named",
    "record_steps",
    "train",
    "train_many",
]
