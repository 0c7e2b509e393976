"""What training finds: the exact soft-label objective, optimizers, one loop, and runs with their trajectories."""

from tokengeom.training.loop import Probe, State, TrainingHooks
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.base import PAPER_STEPS, Constant, Cosine, Steps, paper_steps
from tokengeom.training.run import Run, Trajectory, load_runs
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import train, train_many

__all__ = [
    "PAPER_STEPS",
    "Constant",
    "Cosine",
    "Probe",
    "Run",
    "SoftLabels",
    "State",
    "Steps",
    "TrainingHooks",
    "TrainingSettings",
    "Trajectory",
    "load_runs",
    "paper_steps",
    "train",
    "train_many",
]
