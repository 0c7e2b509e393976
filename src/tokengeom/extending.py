"""What other distributions may rely on beside the public names of `tokengeom`.

Names below stay where they are; modules that they come from may move. Each is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokengeom.cli.app import EXIT_CHECK_FAILED as EXIT_CHECK_FAILED
    from tokengeom.cli.app import EstimateOnly as EstimateOnly
    from tokengeom.cli.app import Json as Json
    from tokengeom.cli.app import Quiet as Quiet
    from tokengeom.cli.app import app as app
    from tokengeom.cli.app import guarded as guarded
    from tokengeom.cli.options import starting_with as starting_with
    from tokengeom.cli.output import TerminalConsole as TerminalConsole
    from tokengeom.cli.output import hash_of_saved as hash_of_saved
    from tokengeom.cli.output import print_estimate as print_estimate
    from tokengeom.cli.output import print_result as print_result
    from tokengeom.cli.output import progress_shown as progress_shown
    from tokengeom.comparison.agreement import TIE as TIE
    from tokengeom.comparison.agreement import Agreement as Agreement
    from tokengeom.comparison.agreement import assess as assess
    from tokengeom.comparison.agreement import with_reference as with_reference
    from tokengeom.comparison.collapse import NeuralCollapse as NeuralCollapse
    from tokengeom.comparison.collapse import neural_collapse as neural_collapse
    from tokengeom.comparison.collapse import subspace_collapse as subspace_collapse
    from tokengeom.comparison.compare import support_groups as support_groups
    from tokengeom.comparison.explanations.base import AbstractLogitRival as AbstractLogitRival
    from tokengeom.comparison.explanations.base import AbstractRival as AbstractRival
    from tokengeom.comparison.explanations.base import Contexts as Contexts
    from tokengeom.comparison.explanations.base import Known as Known
    from tokengeom.comparison.explanations.base import explanation_classes as explanation_classes
    from tokengeom.comparison.explanations.proxy import Proxy as Proxy
    from tokengeom.comparison.probes import feature_probes as feature_probes
    from tokengeom.comparison.probes import linear_probes as linear_probes
    from tokengeom.comparison.similarity import centred_tokens as centred_tokens
    from tokengeom.comparison.similarity import cosine as cosine
    from tokengeom.comparison.similarity import directional_agreement as directional_agreement
    from tokengeom.comparison.similarity import directional_similarity as directional_similarity
    from tokengeom.comparison.similarity_numbers import SimilarityNumbers as SimilarityNumbers
    from tokengeom.comparison.verdict import AGREES as AGREES
    from tokengeom.comparison.verdict import level_of as level_of
    from tokengeom.core.checks import Entries as Entries
    from tokengeom.core.checks import is_plain_name as is_plain_name
    from tokengeom.core.errors import InputError as InputError
    from tokengeom.core.errors import ProblemError as ProblemError
    from tokengeom.core.errors import ResourceError as ResourceError
    from tokengeom.core.errors import missing_extra as missing_extra
    from tokengeom.core.factors import HasFactors as HasFactors
    from tokengeom.core.numerics import Bool as Bool
    from tokengeom.core.numerics import Float as Float
    from tokengeom.core.numerics import Int as Int
    from tokengeom.core.numerics import blas_threads_for as blas_threads_for
    from tokengeom.core.numerics import centre_columns as centre_columns
    from tokengeom.core.numerics import cosines as cosines
    from tokengeom.core.numerics import dense as dense
    from tokengeom.core.numerics import log_sum_exp as log_sum_exp
    from tokengeom.core.numerics import unit_columns as unit_columns
    from tokengeom.core.numerics import x_log_x as x_log_x
    from tokengeom.core.progress import AbstractProgress as AbstractProgress
    from tokengeom.core.progress import AbstractStage as AbstractStage
    from tokengeom.core.progress import SilentProgress as SilentProgress
    from tokengeom.core.progress import WithoutSentences as WithoutSentences
    from tokengeom.core.resources import Estimate as Estimate
    from tokengeom.core.settings import did_you_mean as did_you_mean
    from tokengeom.core.settings import member as member
    from tokengeom.core.settings import member_names as member_names
    from tokengeom.corpus.documents import AbstractTextSource as AbstractTextSource
    from tokengeom.corpus.locate import open_corpus as open_corpus
    from tokengeom.corpus.stories import stories as stories
    from tokengeom.corpus.tokenizers import WordTokenizer as WordTokenizer
    from tokengeom.figures.angles import context_token_angles as context_token_angles
    from tokengeom.figures.angles import context_token_cosines as context_token_cosines
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
    from tokengeom.figures.linear_plane import linear_plane as linear_plane
    from tokengeom.figures.path import path as path
    from tokengeom.figures.static import draw as draw
    from tokengeom.figures.static import save_static as save_static
    from tokengeom.figures.sweeps import PhaseGrid as PhaseGrid
    from tokengeom.figures.sweeps import phase_diagram as phase_diagram
    from tokengeom.figures.sweeps import small_d as small_d
    from tokengeom.figures.training_curves import feature_training as feature_training
    from tokengeom.figures.training_curves import linear_training as linear_training
    from tokengeom.models.devices import checked_device as checked_device
    from tokengeom.models.devices import threads_for as threads_for
    from tokengeom.models.factored import UFM as UFM
    from tokengeom.models.factored import Init as Init
    from tokengeom.models.network import Network as Network
    from tokengeom.models.networks.base import NetworkShape as NetworkShape
    from tokengeom.models.networks.base import architecture_named as architecture_named
    from tokengeom.models.networks.base import import_torch as import_torch
    from tokengeom.models.networks.mlp import MLP as MLP
    from tokengeom.problems.backend import Array as Array
    from tokengeom.problems.backend import Backend as Backend
    from tokengeom.problems.backend import blocks_of as blocks_of
    from tokengeom.problems.instances import KnownInstance as KnownInstance
    from tokengeom.problems.instances import all_subsets as all_subsets
    from tokengeom.problems.instances import catalogue as catalogue
    from tokengeom.problems.instances import embeddings_at as embeddings_at
    from tokengeom.problems.instances import one_hot as one_hot
    from tokengeom.problems.merging import Merging as Merging
    from tokengeom.problems.ntp_svm import MarginProblem as MarginProblem
    from tokengeom.problems.ntp_svm import norm_named as norm_named
    from tokengeom.problems.nuclear_svm import NuclearSVM as NuclearSVM
    from tokengeom.problems.supports import cone_levels as cone_levels
    from tokengeom.problems.supports import reduce_support as reduce_support
    from tokengeom.results.contract import ALONE as ALONE
    from tokengeom.results.contract import AbstractResult as AbstractResult
    from tokengeom.results.contract import NearbyResults as NearbyResults
    from tokengeom.results.contract import data_frame as data_frame
    from tokengeom.results.contract import html_table as html_table
    from tokengeom.results.manifests import MANIFEST as MANIFEST
    from tokengeom.results.manifests import read_json as read_json
    from tokengeom.solvers.logit_admm import RegularisedLoss as RegularisedLoss
    from tokengeom.solvers.margin import solve_margin as solve_margin
    from tokengeom.solvers.ntp_svm import separating_decoder as separating_decoder
    from tokengeom.solvers.ntp_svm import solve_ntp_svm as solve_ntp_svm
    from tokengeom.solvers.nuclear_admm import NuclearADMM as NuclearADMM
    from tokengeom.statistics.completeness import estimate_completeness as estimate_completeness
    from tokengeom.statistics.supports import canonical as canonical
    from tokengeom.theory.at_loss import NORMS as NORMS
    from tokengeom.theory.at_loss import LossSettings as LossSettings
    from tokengeom.theory.concepts import Concepts as Concepts
    from tokengeom.theory.features import project_on_F as project_on_F
    from tokengeom.theory.linear import predict_linear as predict_linear
    from tokengeom.theory.linear_path import RegularisationPath as RegularisationPath
    from tokengeom.theory.linear_path import norm_path as norm_path
    from tokengeom.theory.logit_path import LogitPath as LogitPath
    from tokengeom.theory.logit_path import PathPoint as PathPoint
    from tokengeom.theory.logit_path import regularisation_path as regularisation_path
    from tokengeom.theory.loss_path import LossPath as LossPath
    from tokengeom.theory.proxy import proxy as proxy
    from tokengeom.theory.proxy import proxy_exactness as proxy_exactness
    from tokengeom.theory.proxy import proxy_factors as proxy_factors
    from tokengeom.theory.uniqueness import PATH_TOLERANCE as PATH_TOLERANCE
    from tokengeom.training.loop import Probe as Probe
    from tokengeom.training.loop import State as State
    from tokengeom.training.network_engine import NetworkEngine as NetworkEngine
    from tokengeom.training.objective import SoftLabels as SoftLabels
    from tokengeom.training.objective import WindowSampler as WindowSampler
    from tokengeom.training.optimizers.adam import Adam as Adam
    from tokengeom.training.optimizers.base import AbstractOptimizer as AbstractOptimizer
    from tokengeom.training.optimizers.base import AbstractSchedule as AbstractSchedule
    from tokengeom.training.optimizers.base import Constant as Constant
    from tokengeom.training.optimizers.base import Cosine as Cosine
    from tokengeom.training.optimizers.base import Steps as Steps
    from tokengeom.training.optimizers.base import paper_steps as paper_steps
    from tokengeom.training.optimizers.gd import GD as GD
    from tokengeom.training.optimizers.spectral import Spectral as Spectral
    from tokengeom.training.start import PredictedStart as PredictedStart
    from tokengeom.training.torch_engine import TorchEngine as TorchEngine
    from tokengeom.training.train import build_network as build_network
    from tokengeom.training.train import estimate_training as estimate_training
    from tokengeom.training.train import train_many as train_many

_MODULES = {
    "cli.app": ("EXIT_CHECK_FAILED", "EstimateOnly", "Json", "Quiet", "app", "guarded"),
    "cli.options": ("starting_with",),
    "cli.output": ("TerminalConsole", "hash_of_saved", "print_estimate", "print_result", "progress_shown"),
    "comparison.agreement": ("Agreement", "TIE", "assess", "with_reference"),
    "comparison.collapse": ("NeuralCollapse", "neural_collapse", "subspace_collapse"),
    "comparison.compare": ("support_groups",),
    "comparison.explanations.base": ("AbstractLogitRival", "AbstractRival", "Contexts", "Known", "explanation_classes"),
    "comparison.explanations.proxy": ("Proxy",),
    "comparison.probes": ("feature_probes", "linear_probes"),
    "comparison.similarity": ("centred_tokens", "cosine", "directional_agreement", "directional_similarity"),
    "comparison.similarity_numbers": ("SimilarityNumbers",),
    "comparison.verdict": ("AGREES", "level_of"),
    "core.checks": ("Entries", "is_plain_name"),
    "core.errors": ("InputError", "ProblemError", "ResourceError", "missing_extra"),
    "core.factors": ("HasFactors",),
    "core.numerics": (
        "Bool",
        "Float",
        "Int",
        "blas_threads_for",
        "centre_columns",
        "cosines",
        "dense",
        "log_sum_exp",
        "unit_columns",
        "x_log_x",
    ),
    "core.progress": ("AbstractProgress", "AbstractStage", "SilentProgress", "WithoutSentences"),
    "core.resources": ("Estimate",),
    "core.settings": ("did_you_mean", "member", "member_names"),
    "corpus.documents": ("AbstractTextSource",),
    "corpus.locate": ("open_corpus",),
    "corpus.stories": ("stories",),
    "corpus.tokenizers": ("WordTokenizer",),
    "figures.angles": ("context_token_angles", "context_token_cosines"),
    "figures.base": ("Curve", "Figure", "HeatmapPanel", "LinePanel", "Panel", "Points", "Scale", "ScatterPanel"),
    "figures.concepts": ("LearnedConcepts", "concepts"),
    "figures.data": ("load_data", "save_data"),
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
    "figures.interactive": ("save_interactive",),
    "figures.linear_plane": ("linear_plane",),
    "figures.path": ("path",),
    "figures.static": ("draw", "save_static"),
    "figures.sweeps": ("PhaseGrid", "phase_diagram", "small_d"),
    "figures.training_curves": ("feature_training", "linear_training"),
    "models.devices": ("checked_device", "threads_for"),
    "models.factored": ("Init", "UFM"),
    "models.network": ("Network",),
    "models.networks.base": ("NetworkShape", "architecture_named", "import_torch"),
    "models.networks.mlp": ("MLP",),
    "problems.backend": ("Array", "Backend", "blocks_of"),
    "problems.instances": ("KnownInstance", "all_subsets", "catalogue", "embeddings_at", "one_hot"),
    "problems.merging": ("Merging",),
    "problems.ntp_svm": ("MarginProblem", "norm_named"),
    "problems.nuclear_svm": ("NuclearSVM",),
    "problems.supports": ("cone_levels", "reduce_support"),
    "results.contract": ("ALONE", "AbstractResult", "NearbyResults", "data_frame", "html_table"),
    "results.manifests": ("MANIFEST", "read_json"),
    "solvers.logit_admm": ("RegularisedLoss",),
    "solvers.margin": ("solve_margin",),
    "solvers.ntp_svm": ("separating_decoder", "solve_ntp_svm"),
    "solvers.nuclear_admm": ("NuclearADMM",),
    "statistics.completeness": ("estimate_completeness",),
    "statistics.supports": ("canonical",),
    "theory.at_loss": ("LossSettings", "NORMS"),
    "theory.concepts": ("Concepts",),
    "theory.features": ("project_on_F",),
    "theory.linear": ("predict_linear",),
    "theory.linear_path": ("RegularisationPath", "norm_path"),
    "theory.logit_path": ("LogitPath", "PathPoint", "regularisation_path"),
    "theory.loss_path": ("LossPath",),
    "theory.proxy": ("proxy", "proxy_exactness", "proxy_factors"),
    "theory.uniqueness": ("PATH_TOLERANCE",),
    "training.loop": ("Probe", "State"),
    "training.network_engine": ("NetworkEngine",),
    "training.objective": ("SoftLabels", "WindowSampler"),
    "training.optimizers.adam": ("Adam",),
    "training.optimizers.base": ("AbstractOptimizer", "AbstractSchedule", "Constant", "Cosine", "Steps", "paper_steps"),
    "training.optimizers.gd": ("GD",),
    "training.optimizers.spectral": ("Spectral",),
    "training.start": ("PredictedStart",),
    "training.torch_engine": ("TorchEngine",),
    "training.train": ("build_network", "estimate_training", "train_many"),
}
"""Module -> names that are taken from it."""
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tokengeom.extending' has no attribute '{name}'")
    return getattr(import_module(f"tokengeom.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
