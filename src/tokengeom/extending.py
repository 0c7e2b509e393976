"""What other distributions may rely on, beside the public names of `tokengeom`.

A study, a rival explanation or a command that is not part of tokengeom imports from `tokengeom` and from here. Modules
move; these names stay. Each is imported when it is first used, so that importing this module is fast.

Groups of entry points by which a distribution adds members:

``tokengeom.commands``   a command of the command line; its module adds it when it is imported
``tokengeom.kinds``      a kind of saved result -> its class
``tokengeom.checks``     a kind of saved result -> ``check(result, nearby)``, which ``verify`` calls
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokengeom.cli.app import EXIT_CHECK_FAILED as EXIT_CHECK_FAILED
    from tokengeom.cli.app import Json as Json
    from tokengeom.cli.app import Quiet as Quiet
    from tokengeom.cli.app import app as app
    from tokengeom.cli.app import guarded as guarded
    from tokengeom.cli.options import starting_with as starting_with
    from tokengeom.cli.output import TerminalConsole as TerminalConsole
    from tokengeom.cli.output import hash_of_saved as hash_of_saved
    from tokengeom.cli.output import print_result as print_result
    from tokengeom.cli.output import progress_shown as progress_shown
    from tokengeom.comparison.explanations.base import AbstractRival as AbstractRival
    from tokengeom.comparison.explanations.base import FitInputs as FitInputs
    from tokengeom.comparison.explanations.base import explanation_classes as explanation_classes
    from tokengeom.comparison.on_device import LogitSpectrum as LogitSpectrum
    from tokengeom.comparison.on_device import PairGeometry as PairGeometry
    from tokengeom.comparison.on_device import TextOnDevice as TextOnDevice
    from tokengeom.comparison.probes import feature_probes as feature_probes
    from tokengeom.comparison.probes import linear_probes as linear_probes
    from tokengeom.comparison.similarity import NeuralCollapse as NeuralCollapse
    from tokengeom.comparison.similarity import cosine as cosine
    from tokengeom.comparison.similarity import directional_agreement as directional_agreement
    from tokengeom.comparison.similarity import directional_similarity as directional_similarity
    from tokengeom.comparison.similarity import neural_collapse as neural_collapse
    from tokengeom.comparison.similarity import subspace_collapse as subspace_collapse
    from tokengeom.core.errors import InputError as InputError
    from tokengeom.core.errors import ProblemError as ProblemError
    from tokengeom.core.errors import ResourceError as ResourceError
    from tokengeom.core.errors import missing_extra as missing_extra
    from tokengeom.core.numerics import Bool as Bool
    from tokengeom.core.numerics import Float as Float
    from tokengeom.core.numerics import Int as Int
    from tokengeom.core.numerics import blas_threads_for as blas_threads_for
    from tokengeom.core.numerics import centre_columns as centre_columns
    from tokengeom.core.numerics import cosines as cosines
    from tokengeom.core.numerics import unit_columns as unit_columns
    from tokengeom.core.progress import AbstractProgress as AbstractProgress
    from tokengeom.core.progress import AbstractStage as AbstractStage
    from tokengeom.core.progress import SilentProgress as SilentProgress
    from tokengeom.core.settings import did_you_mean as did_you_mean
    from tokengeom.core.settings import make as make
    from tokengeom.core.settings import member as member
    from tokengeom.core.settings import member_names as member_names
    from tokengeom.core.settings import option as option
    from tokengeom.corpus.documents import AbstractTextSource as AbstractTextSource
    from tokengeom.corpus.locate import open_corpus as open_corpus
    from tokengeom.corpus.stories import stories as stories
    from tokengeom.corpus.tokenizers import WordTokenizer as WordTokenizer
    from tokengeom.figures.base import Curve as Curve
    from tokengeom.figures.base import Figure as Figure
    from tokengeom.figures.base import HeatmapPanel as HeatmapPanel
    from tokengeom.figures.base import LinePanel as LinePanel
    from tokengeom.figures.base import Panel as Panel
    from tokengeom.figures.base import Points as Points
    from tokengeom.figures.base import Scale as Scale
    from tokengeom.figures.base import ScatterPanel as ScatterPanel
    from tokengeom.figures.concepts import LearnedConcepts as LearnedConcepts
    from tokengeom.figures.concepts import concepts as concepts
    from tokengeom.figures.data import load_data as load_data
    from tokengeom.figures.data import save_data as save_data
    from tokengeom.figures.heatmaps import Snapshots as Snapshots
    from tokengeom.figures.heatmaps import evolution as evolution
    from tokengeom.figures.heatmaps import feature_heatmaps as feature_heatmaps
    from tokengeom.figures.heatmaps import labelled_contexts as labelled_contexts
    from tokengeom.figures.heatmaps import labelled_tokens as labelled_tokens
    from tokengeom.figures.heatmaps import linear_heatmaps as linear_heatmaps
    from tokengeom.figures.heatmaps import pattern_triple as pattern_triple
    from tokengeom.figures.heatmaps import support_heatmaps as support_heatmaps
    from tokengeom.figures.interactive import save_interactive as save_interactive
    from tokengeom.figures.scatters import context_token_angles as context_token_angles
    from tokengeom.figures.scatters import context_token_cosines as context_token_cosines
    from tokengeom.figures.scatters import linear_plane as linear_plane
    from tokengeom.figures.static import draw as draw
    from tokengeom.figures.static import save_static as save_static
    from tokengeom.figures.training_curves import feature_training as feature_training
    from tokengeom.figures.training_curves import linear_training as linear_training
    from tokengeom.figures.training_curves import path as path
    from tokengeom.models.network import Network as Network
    from tokengeom.models.networks.base import NetworkShape as NetworkShape
    from tokengeom.models.networks.base import architecture_named as architecture_named
    from tokengeom.models.networks.base import checked_device as checked_device
    from tokengeom.models.networks.base import import_torch as import_torch
    from tokengeom.models.networks.base import threads_for as threads_for
    from tokengeom.models.networks.mlp import MLP as MLP
    from tokengeom.problems.backend import Backend as Backend
    from tokengeom.problems.backend import blocks_of as blocks_of
    from tokengeom.problems.instances import KnownInstance as KnownInstance
    from tokengeom.problems.instances import all_subsets as all_subsets
    from tokengeom.problems.instances import one_hot as one_hot
    from tokengeom.problems.ntp_svm import MarginProblem as MarginProblem
    from tokengeom.problems.ntp_svm import norm_named as norm_named
    from tokengeom.problems.nuclear_svm import NuclearSVM as NuclearSVM
    from tokengeom.problems.regularised_logits import Merging as Merging
    from tokengeom.problems.supports import cone_levels as cone_levels
    from tokengeom.results.contract import data_frame as data_frame
    from tokengeom.results.contract import html_table as html_table
    from tokengeom.results.convert import Matches as Matches
    from tokengeom.results.convert import Number as Number
    from tokengeom.results.convert import Within as Within
    from tokengeom.results.convert import damaged as damaged
    from tokengeom.results.convert import from_plain as from_plain
    from tokengeom.results.convert import to_plain as to_plain
    from tokengeom.results.manifests import MANIFEST as MANIFEST
    from tokengeom.results.manifests import read_json as read_json
    from tokengeom.solvers.logit_admm import RegularisedLoss as RegularisedLoss
    from tokengeom.solvers.margin import solve_margin as solve_margin
    from tokengeom.solvers.ntp_svm import separating_decoder as separating_decoder
    from tokengeom.solvers.ntp_svm import solve_ntp_svm as solve_ntp_svm
    from tokengeom.solvers.nuclear_admm import NuclearADMM as NuclearADMM
    from tokengeom.statistics.supports import estimate_completeness as estimate_completeness
    from tokengeom.theory.at_loss import LossSettings as LossSettings
    from tokengeom.theory.concepts import Concepts as Concepts
    from tokengeom.theory.features import project_on_F as project_on_F
    from tokengeom.theory.linear_path import RegularisationPath as RegularisationPath
    from tokengeom.theory.linear_path import norm_path as norm_path
    from tokengeom.theory.logit_path import LogitPath as LogitPath
    from tokengeom.theory.logit_path import PathPoint as PathPoint
    from tokengeom.theory.logit_path import regularisation_path as regularisation_path
    from tokengeom.theory.loss_path import LossPath as LossPath
    from tokengeom.theory.proxy import proxy as proxy
    from tokengeom.training.loop import Probe as Probe
    from tokengeom.training.loop import State as State
    from tokengeom.training.objective import SoftLabels as SoftLabels
    from tokengeom.training.optimizers.adam import Adam as Adam
    from tokengeom.training.optimizers.base import paper_steps as paper_steps
    from tokengeom.training.optimizers.gd import GD as GD
    from tokengeom.training.optimizers.spectral import Spectral as Spectral
    from tokengeom.training.start import PredictedStart as PredictedStart
    from tokengeom.training.stepped import SteppedTraining as SteppedTraining
    from tokengeom.training.train import build_network as build_network
    from tokengeom.training.train import train_many as train_many

_MODULES: dict[str, tuple[str, ...]] = {
    # Errors, which a command turns into a sentence and an exit code.
    "core.errors": ("InputError", "ProblemError", "ResourceError", "missing_extra"),
    # Types of arrays, and the operations that define the geometry: centring, cosines, agreement; threads of small work.
    "core.numerics": ("Bool", "Float", "Int", "blas_threads_for", "centre_columns", "cosines", "unit_columns"),
    "comparison.similarity": (
        *("cosine", "directional_agreement", "directional_similarity"),
        *("NeuralCollapse", "neural_collapse", "subspace_collapse"),
    ),
    # Progress, which verbs and studies report to.
    "core.progress": ("AbstractProgress", "AbstractStage", "SilentProgress"),
    # Settings as dataclasses, and members of a package that are added as files and found by name.
    "core.settings": ("did_you_mean", "make", "member", "member_names", "option"),
    # The contract of a result: save, load, describe; and the converter between dataclasses and JSON.
    "results.contract": ("data_frame", "html_table"),
    "results.manifests": ("MANIFEST", "read_json"),
    "results.convert": ("Matches", "Number", "Within", "damaged", "from_plain", "to_plain"),
    # A command of the command line (entry points of the group ``tokengeom.commands``).
    "cli.app": ("EXIT_CHECK_FAILED", "Json", "Quiet", "app", "guarded"),
    "cli.options": ("starting_with",),
    "cli.output": ("TerminalConsole", "hash_of_saved", "print_result", "progress_shown"),
    # Figures as data, what saves and draws them, and the figures that need a prediction or runs.
    "figures.base": ("Curve", "Figure", "HeatmapPanel", "LinePanel", "Panel", "Points", "Scale", "ScatterPanel"),
    "figures.data": ("load_data", "save_data"),
    "figures.interactive": ("save_interactive",),
    "figures.static": ("draw", "save_static"),
    "figures.heatmaps": (
        "Snapshots",
        "evolution",
        "feature_heatmaps",
        "labelled_contexts",
        "labelled_tokens",
        "linear_heatmaps",
        "pattern_triple",
        "support_heatmaps",
    ),
    "figures.training_curves": ("feature_training", "linear_training", "path"),
    "figures.concepts": ("LearnedConcepts", "concepts"),
    "figures.scatters": ("context_token_angles", "context_token_cosines", "linear_plane"),
    # Texts: the built-in stories, a text document by document, and what a text does not show.
    "corpus.stories": ("stories",),
    "corpus.documents": ("AbstractTextSource",),
    "corpus.locate": ("open_corpus",),
    "corpus.tokenizers": ("WordTokenizer",),
    "statistics.supports": ("estimate_completeness",),
    # Trainings: one that its caller advances, replicates in a batch, what is measured meanwhile, optimizers.
    "training.stepped": ("SteppedTraining",),
    "training.train": ("build_network", "train_many"),
    "training.loop": ("Probe", "State"),
    "training.objective": ("SoftLabels",),
    "training.start": ("PredictedStart",),
    "training.optimizers.base": ("paper_steps",),
    "training.optimizers.adam": ("Adam",),
    "training.optimizers.gd": ("GD",),
    "training.optimizers.spectral": ("Spectral",),
    "comparison.probes": ("feature_probes", "linear_probes"),
    # Networks, and the device that they are on.
    "models.network": ("Network",),
    "models.networks.base": ("NetworkShape", "architecture_named", "checked_device", "import_torch", "threads_for"),
    "models.networks.mlp": ("MLP",),
    # Comparison: one number, many geometries on a device, collapse, and rival explanations.
    "comparison.on_device": ("LogitSpectrum", "PairGeometry", "TextOnDevice"),
    "comparison.explanations.base": ("AbstractRival", "FitInputs", "explanation_classes"),
    # Paths of the theory: at many losses, over regularisation, over norms; and its parts.
    "theory.at_loss": ("LossSettings",),
    "theory.loss_path": ("LossPath",),
    "theory.logit_path": ("LogitPath", "PathPoint", "regularisation_path"),
    "theory.linear_path": ("RegularisationPath", "norm_path"),
    "theory.concepts": ("Concepts",),
    "theory.features": ("project_on_F",),
    "theory.proxy": ("proxy",),
    # Problems as data, their solvers, and instances whose solution is known.
    "problems.instances": ("KnownInstance", "all_subsets", "one_hot"),
    "problems.ntp_svm": ("MarginProblem", "norm_named"),
    "problems.nuclear_svm": ("NuclearSVM",),
    "problems.supports": ("cone_levels",),
    "problems.backend": ("Backend", "blocks_of"),
    "problems.regularised_logits": ("Merging",),
    "solvers.logit_admm": ("RegularisedLoss",),
    "solvers.margin": ("solve_margin",),
    "solvers.ntp_svm": ("separating_decoder", "solve_ntp_svm"),
    "solvers.nuclear_admm": ("NuclearADMM",),
}
"""Module of tokengeom -> names that are taken from it."""
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tokengeom.extending' has no attribute '{name}'")
    return getattr(import_module(f"tokengeom.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
