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

from tokengeom import imports_of

if TYPE_CHECKING:
    # isort: off
    # Errors, which a command turns into a sentence and an exit code.
    from tokengeom.core.errors import InputError as InputError, ProblemError as ProblemError
    from tokengeom.core.errors import ResourceError as ResourceError, missing_extra as missing_extra

    # Types of arrays, and the operations that define the geometry: centring, cosines, agreement; threads of small work.
    from tokengeom.core.numerics import Bool as Bool, Float as Float, Int as Int, blas_threads_for as blas_threads_for
    from tokengeom.core.numerics import centre_columns as centre_columns, cosines as cosines
    from tokengeom.core.numerics import unit_columns as unit_columns
    from tokengeom.comparison.similarity import cosine as cosine, directional_agreement as directional_agreement
    from tokengeom.comparison.similarity import directional_similarity as directional_similarity
    from tokengeom.comparison.similarity import group_means as group_means, subspace_collapse as subspace_collapse

    # Progress, which verbs and studies report to.
    from tokengeom.core.progress import AbstractProgress as AbstractProgress, AbstractStage as AbstractStage
    from tokengeom.core.progress import SilentProgress as SilentProgress

    # An interruption of one of several trainings.
    from tokengeom.core.system import interruption_ends_all as interruption_ends_all

    # Members of a package that are added as files and found by name.
    from tokengeom.core.settings import did_you_mean as did_you_mean, member as member, member_names as member_names

    # The contract of a result: save, load, describe; the converter between dataclasses and JSON; files that appear
    # complete or not at all, and replace nothing that is not ours.
    from tokengeom.results.contract import data_frame as data_frame, html_table as html_table
    from tokengeom.results.manifests import MANIFEST as MANIFEST, read_json as read_json
    from tokengeom.results.convert import Matches as Matches, Number as Number, Within as Within, damaged as damaged
    from tokengeom.results.convert import from_plain as from_plain, to_plain as to_plain
    from tokengeom.results.folders import only_writer as only_writer
    from tokengeom.results.folders import replace_file as replace_file, require_ours as require_ours

    # A command of the command line (entry points of the group ``tokengeom.commands``).
    from tokengeom.cli.app import EXIT_CHECK_FAILED as EXIT_CHECK_FAILED, app as app, guarded as guarded
    from tokengeom.cli.options import starting_with as starting_with
    from tokengeom.cli.output import TerminalConsole as TerminalConsole, hash_of_saved as hash_of_saved
    from tokengeom.cli.output import (
        is_quiet as is_quiet,
        print_result as print_result,
        progress_shown as progress_shown,
    )

    # Figures as data, what draws them, and the figures that need a prediction or runs.
    from tokengeom.figures.base import Curve as Curve, Figure as Figure, HeatmapPanel as HeatmapPanel
    from tokengeom.figures.base import LinePanel as LinePanel, Marker as Marker, Panel as Panel, Points as Points
    from tokengeom.figures.base import Scale as Scale, ScatterPanel as ScatterPanel
    from tokengeom.figures.prepare import all_names as all_names, slug as slug
    from tokengeom.figures.interactive import save_interactive as save_interactive
    from tokengeom.figures.static import draw as draw, save_static as save_static
    from tokengeom.figures.heatmaps import evolution as evolution, feature_heatmaps as feature_heatmaps
    from tokengeom.figures.heatmaps import labelled_contexts as labelled_contexts, labelled_tokens as labelled_tokens
    from tokengeom.figures.heatmaps import linear_plane as linear_plane, pattern_triple as pattern_triple
    from tokengeom.figures.ordering import feature_order as feature_order, names_of as names_of
    from tokengeom.figures.ordering import order_groups as order_groups
    from tokengeom.figures.training_curves import LearnedConcepts as LearnedConcepts, concepts as concepts
    from tokengeom.figures.training_curves import PathColumns as PathColumns, path as path
    from tokengeom.figures.training_curves import feature_training as feature_training, last_values as last_values
    from tokengeom.figures.training_curves import require_runs as require_runs, run_curves as run_curves
    from tokengeom.figures.training_curves import step_panel as step_panel

    # Texts: the built-in stories, a text document by document, and what a text does not show.
    from tokengeom.corpus.stories import stories as stories
    from tokengeom.corpus.documents import AbstractTextSource as AbstractTextSource
    from tokengeom.corpus.locate import open_corpus as open_corpus
    from tokengeom.corpus.tokenizers import WordTokenizer as WordTokenizer
    from tokengeom.statistics.completeness import estimate_completeness as estimate_completeness

    # The settings that a report chooses for a text.
    from tokengeom.page.chosen_settings import choose as choose
    from tokengeom.page.settings import ReportSettings as ReportSettings
    from tokengeom.page.source_text import find_text as find_text

    # Trainings: replicates in a batch, engines that their caller advances, what is measured meanwhile, optimizers.
    from tokengeom.training.train import build_network as build_network, train_many as train_many
    from tokengeom.training.network_engine import NetworkEngine as NetworkEngine
    from tokengeom.training.torch_engine import TorchEngine as TorchEngine
    from tokengeom.models.factored import UFM as UFM
    from tokengeom.training.loop import Probe as Probe, State as State
    from tokengeom.training.objective import SoftLabels as SoftLabels, WindowSampler as WindowSampler
    from tokengeom.training.start import PredictedStart as PredictedStart
    from tokengeom.training.optimizers.base import paper_steps as paper_steps
    from tokengeom.training.optimizers.adam import Adam as Adam
    from tokengeom.training.optimizers.gd import GD as GD
    from tokengeom.training.optimizers.spectral import Spectral as Spectral
    from tokengeom.comparison.monitor import feature_probes as feature_probes, linear_probes as linear_probes

    # Networks, and the device that they are on.
    from tokengeom.models.network import Network as Network
    from tokengeom.models.networks.base import NetworkShape as NetworkShape, architecture_named as architecture_named
    from tokengeom.models.networks.base import checked_device as checked_device, import_torch as import_torch
    from tokengeom.models.networks.base import threads_for as threads_for
    from tokengeom.models.networks.mlp import MLP as MLP
    from tokengeom.models.networks.transformer import Transformer as Transformer

    # Comparison: one number on its scale, collapse, the split of logits, and rival explanations.
    from tokengeom.comparison.agreement import assess as assess
    from tokengeom.comparison.similarity_numbers import SimilarityNumbers as SimilarityNumbers
    from tokengeom.comparison.logit_numbers import split_exponent as split_exponent
    from tokengeom.comparison.explanations.base import AbstractMatrixRival as AbstractMatrixRival
    from tokengeom.comparison.explanations.base import AbstractRival as AbstractRival, FitInputs as FitInputs
    from tokengeom.comparison.explanations.base import ContextStatistics as ContextStatistics
    from tokengeom.comparison.explanations.base import explanation_classes as explanation_classes

    # Paths of the theory: at many losses, over norms; and its parts.
    from tokengeom.theory.at_loss import LossSettings as LossSettings
    from tokengeom.theory.loss_path import LossPath as LossPath
    from tokengeom.theory.linear_path import RegularisationPath as RegularisationPath, norm_path as norm_path
    from tokengeom.theory.concepts import Concepts as Concepts
    from tokengeom.theory.features import finite_part as finite_part, project_on_F as project_on_F
    from tokengeom.theory.proxy import proxy as proxy

    # Problems as data, and their solvers.
    from tokengeom.problems.ntp_svm import MarginProblem as MarginProblem, norm_named as norm_named
    from tokengeom.problems.nuclear_svm import NuclearSVM as NuclearSVM
    from tokengeom.problems.supports import cone_levels as cone_levels
    from tokengeom.problems.backend import Backend as Backend, blocks_of as blocks_of
    from tokengeom.problems.columns import Computed as Computed
    from tokengeom.problems.gamma2 import Gamma2Logits as Gamma2Logits
    from tokengeom.problems.regularised_logits import Merging as Merging, RegularisedLogits as RegularisedLogits
    from tokengeom.solvers.gamma2_admm import Gamma2ADMM as Gamma2ADMM, largest_lam as largest_lam
    from tokengeom.solvers.logit_admm import LogitADMM as LogitADMM, RegularisedLoss as RegularisedLoss
    from tokengeom.solvers.logit_admm import WarmStart as WarmStart
    from tokengeom.solvers.margin import solve_margin as solve_margin
    from tokengeom.solvers.ntp_svm import separating_decoder as separating_decoder, solve_ntp_svm as solve_ntp_svm
    from tokengeom.solvers.nuclear_admm import NuclearADMM as NuclearADMM

_MODULE_OF = imports_of(__file__)
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tokengeom.extending' has no attribute '{name}'")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
