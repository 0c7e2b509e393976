"""The verb `predict`: from statistics to the predicted limit of training, with a certificate of its optimality.

With embeddings the decoder alone is trained (``linear``). Without them both factors are, and the prediction is the
solution of NTP-SVM* on the supports (``features``): merge equal rows and columns, solve, test whether the proxy is
exact, and measure how unique the solution is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.numerics import Matrix, blas_threads_for
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.core.resources import Estimate, fewer_contexts, require_memory
from tokengeom.core.settings import check_seed, check_tolerance, default_of, make, option, options_of, takes
from tokengeom.problems.backend import Backend
from tokengeom.problems.base import LARGEST_GAP
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.problems.supports import reduce_support
from tokengeom.solvers.nuclear_admm import NuclearADMM
from tokengeom.statistics.context_features import ContextFeatures
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of
from tokengeom.statistics.supports import degenerate_support_warnings
from tokengeom.theory.at_loss import NORMS, LossPrediction, LossSettings, require_norm
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.loss_path import LossPath
from tokengeom.theory.proxy import proxy_exactness
from tokengeom.theory.solving_time import LIMIT, estimate_limit
from tokengeom.theory.tied import TiedPrediction
from tokengeom.theory.tied_path import TiedPath
from tokengeom.theory.uniqueness import measure_spread, solution_bounds

if TYPE_CHECKING:
    from tokengeom.keywords import PredictKeywords
    from tokengeom.theory.linear import LinearPrediction

    class Keywords(PredictKeywords, total=False):
        """Settings, and where to show the work."""

        progress: AbstractProgress | None


Given = NextTokenStatistics | str | Path
TOLERANCE = 1e-6
"""Proven relative gap of learned features, unless another is set."""
MOST_SPREAD_SOLVES = 1000
"""More solves from random starts than anybody needs: some ten say whether there is one solution."""
SPREAD_ENTRIES = 100_000
"""Merged entries up to which uniqueness is measured by default: it costs two more solves of about 0.1 s."""


@dataclass(frozen=True)
class PredictSettings:
    """Settings of `predict`. The linear model has a tolerance only."""

    tolerance: float | None = option(
        None,
        "Proven relative gap to reach. By default 1e-6 for learned features in the limit, 1e-4 at a loss, 5e-3 with "
        "ties, and 1e-9 for the linear model.",
    )
    norm: str = option(
        "nuclear",
        "Norm of the logits that is smallest at a loss gap: nuclear, which gradient descent favours, or gamma2, which "
        "is nearer to Adam. Without ties, the limit is that of the nuclear norm.",
        choices=lambda: tuple(NORMS),
    )
    max_iterations: int = option(5000, "Largest number of iterations of the solver for learned features.")
    device: str = option(
        "cpu", "Where to solve for learned features: cpu, or cuda for a GPU.", choices=lambda: ("cpu", "cuda")
    )
    spread_solves: int | None = option(
        None,
        "Number of solves from random starts that measure how unique L_mm is; 0 for none. By default 2 where that is "
        "fast.",
    )
    memory_limit: int | None = option(None, "Bytes that the solver may use. By default what is free.", python_only=True)
    seed: int = option(0, "Seed of the random starts.")

    def __post_init__(self) -> None:
        require_norm(self.norm)
        check_seed(self.seed)
        check_tolerance(self.tolerance)
        if self.spread_solves is not None and not 0 <= self.spread_solves <= MOST_SPREAD_SOLVES:
            raise ProblemError(
                f"spread_solves must be from 0 to {MOST_SPREAD_SOLVES:,}; got {self.spread_solves}. A few are enough."
            )

    def at_loss(self, tolerance: float) -> LossSettings:
        """Those of a prediction at a loss, with this tolerance where none is set."""
        wanted = tolerance if self.tolerance is None else self.tolerance
        return LossSettings(self.norm, wanted, self.max_iterations, self.device, self.memory_limit)

    @property
    def torch_device(self) -> str | None:
        """Device of PyTorch; None for NumPy."""
        return None if self.device == "cpu" else self.device


@overload
def predict(
    stats: Given, *, embeddings: Matrix, loss_gap: None = None, ties: None = None, **settings: Unpack[Keywords]
) -> LinearPrediction: ...
@overload
def predict(
    stats: Given, *, embeddings: None = None, loss_gap: None = None, ties: None = None, **settings: Unpack[Keywords]
) -> FeaturePrediction: ...
@overload
def predict(
    stats: Given, *, embeddings: None = None, loss_gap: float, ties: None = None, **settings: Unpack[Keywords]
) -> LossPrediction: ...
@overload
def predict(
    stats: Given,
    *,
    embeddings: None = None,
    loss_gap: float | None = None,
    ties: str | ContextFeatures,
    **settings: Unpack[Keywords],
) -> TiedPrediction: ...
@takes(PredictSettings)
def predict(
    stats: NextTokenStatistics | str | Path,
    *,
    embeddings: Matrix | None = None,
    loss_gap: float | None = None,
    ties: str | ContextFeatures | None = None,
    progress: AbstractProgress | None = None,
    **settings: Unpack[PredictKeywords],
) -> FeaturePrediction | LinearPrediction | LossPrediction | TiedPrediction:
    """Predict the geometry that next-token training tends to, or has at a given loss.

    In processes that ``torchrun`` has started, learned features are solved for by all of them together: each holds a
    part of the contexts, all must make the call, and each gets the whole prediction.

    Parameters
    ----------
    stats
        Next-token statistics, or the folder of saved ones.
    embeddings
        Fixed context embeddings H, d x m, with columns in the order of ``stats``: the prediction is then for the linear
        model, in which only the decoder is trained. Without them both factors are learned, and the geometry follows
        from the supports alone.
    loss_gap
        Loss above the entropy floor, in nats: the prediction is then for learned features at this loss, instead of in
        the limit of training.
    ties
        Features by which contexts are tied: a sum of positions, pairs, suffixes and self, such as
        ``"positions+suffixes+self"`` or ``"3*positions+self"``; ``"kernel"``, those of an MLP at its start; or
        `ContextFeatures` of a matrix of your own, such as `kernel_features` of another network. The
        prediction then has a place for contexts that the text does not have (a matrix does not). Without ties, two
        contexts have in common only the tokens that follow them.
    progress
        Where to show the work; by default nowhere.
    """
    chosen = make(PredictSettings, settings, "predict")
    given = statistics_of(stats, "predict")
    shown = progress or SilentProgress()
    with blas_threads_for(given.V, given.m):
        if embeddings is not None:
            for what, other in (("ties are", ties), ("loss_gap is", loss_gap)):
                if other is not None:
                    raise InputError(f"{what} for learned features and embeddings for the linear model: leave one out.")
            return _predict_linear(given, embeddings, chosen, shown)
        if ties is not None:
            return _predict_tied(given, ties, loss_gap, chosen, shown)
        if loss_gap is not None:
            return _predict_at_loss(given, loss_gap, chosen, shown)
        return _predict_features(given, chosen, shown)


def _predict_linear(
    stats: NextTokenStatistics, embeddings: Matrix, settings: PredictSettings, progress: AbstractProgress
) -> LinearPrediction:
    from tokengeom.theory.linear import predict_linear

    for name, field in options_of(PredictSettings).items():
        if name != "tolerance" and getattr(settings, name) != default_of(field):
            raise InputError(
                f"{name} is a setting of learned features; got {name}={getattr(settings, name)!r} together with "
                "embeddings, for the linear model. Leave it out."
            )
    with progress.stage("Predicting", None):
        if settings.tolerance is None:
            return predict_linear(stats, embeddings)
        return predict_linear(stats, embeddings, settings.tolerance)


@takes(PredictSettings)
def estimate_prediction(
    stats: NextTokenStatistics | str | Path,
    *,
    loss_gap: float | None = None,
    ties: str | ContextFeatures | None = None,
    **settings: Unpack[PredictKeywords],
) -> Estimate:
    """The time and memory that `predict` is expected to take for learned features, without solving.

    Parameters
    ----------
    stats
        Next-token statistics, or the folder of saved ones.
    loss_gap, ties
        As in `predict`.
    """
    chosen = make(PredictSettings, settings, "estimate")
    given = statistics_of(stats, "estimate")
    if ties is not None:
        return _tied_path(given, features_of(given, ties), chosen).estimate(loss_gap)
    if loss_gap is None:
        return estimate_limit(*_limit_work(given, chosen))
    return _loss_path(given, chosen).estimate(loss_gap)


def _predict_at_loss(
    stats: NextTokenStatistics, loss_gap: float, settings: PredictSettings, progress: AbstractProgress
) -> LossPrediction:
    path = _loss_path(stats, settings)
    path.estimate(loss_gap, only_if_long=True).announce(progress)
    return replace(path.at(loss_gap, progress), stats=stats)


def _predict_tied(
    stats: NextTokenStatistics,
    ties: str | ContextFeatures,
    loss_gap: float | None,
    settings: PredictSettings,
    progress: AbstractProgress,
) -> TiedPrediction:
    features = features_of(stats, ties)
    path = _tied_path(stats, features, settings)
    if loss_gap is None:
        with progress.stage("Predicting", None):
            point = path.limit(stats.S, features.matrix)
    else:
        path.estimate(loss_gap).announce(progress)
        point = path.at(loss_gap, progress)
    return TiedPrediction(
        features=features,
        P=stats.P,
        pi=stats.pi,
        entropy=float(stats.entropy),
        statistics_hash=stats.hash,
        stats=stats,
        norm=settings.norm,
        **vars(point),
    )


def _tied_path(stats: NextTokenStatistics, features: ContextFeatures, settings: PredictSettings) -> TiedPath:
    at_loss, backend = settings.at_loss(LARGEST_GAP), Backend.on(settings.torch_device)
    return TiedPath(stats.P, stats.pi, features.matrix, at_loss, backend)


def features_of(stats: NextTokenStatistics, ties: str | ContextFeatures) -> ContextFeatures:
    """Features of the contexts of statistics, from their name or as they were given."""
    if isinstance(ties, str):
        if stats.contexts is None:
            raise InputError(
                "Ties are made of the tokens of contexts, and these statistics have none. Count them from a text, or "
                "give the features as a matrix: ties=tg.ContextFeatures.from_matrix(Phi)."
            )
        return ContextFeatures.of_contexts(stats.contexts, ties)
    if getattr(ties, "m", None) != stats.m:
        raise InputError(
            f"ties must be a sum such as 'positions+self', or features of these {stats.m:,} contexts; got {ties!r}."
        )
    return ties


def _loss_path(stats: NextTokenStatistics, settings: PredictSettings) -> LossPath:
    return LossPath(
        stats.P,
        stats.pi,
        entropy=float(stats.entropy),
        statistics_hash=stats.hash,
        settings=settings.at_loss(LossSettings.tolerance),
        backend=Backend.over_processes(settings.torch_device),
    )


def _limit_work(stats: NextTokenStatistics, settings: PredictSettings) -> tuple[NuclearSVM, NuclearADMM, int]:
    """The problem, which must fit in memory, its solver, and the number of solves from random starts."""
    tolerance = TOLERANCE if settings.tolerance is None else settings.tolerance
    reduction = reduce_support(stats.S, memory_limit=settings.memory_limit)
    problem = NuclearSVM(reduction, Backend.over_processes(settings.torch_device))
    _require_solvable(problem, settings.memory_limit)
    solves = settings.spread_solves
    if solves is None:
        solves = 2 if problem.shape[0] * problem.shape[1] <= SPREAD_ENTRIES else 0
    return problem, NuclearADMM(tolerance=tolerance, max_iterations=settings.max_iterations), solves


def _predict_features(
    stats: NextTokenStatistics, settings: PredictSettings, progress: AbstractProgress
) -> FeaturePrediction:
    if settings.norm != "nuclear":
        raise InputError(
            f"norm={settings.norm!r} is for predictions at a loss: give loss_gap too. In the limit of no loss, "
            "predict(stats).gamma2_limit() has the smallest gamma_2 norm."
        )
    problem, solver, solves = _limit_work(stats, settings)
    tolerance = solver.tolerance
    estimate_limit(problem, solver, solves, only_if_long=True).announce(progress)
    with progress.stage("Predicting", None) as stage:
        solution = solver(
            problem, observer=lambda _, __, gap: stage.advance(0, f"estimated gap {gap:.1e}, to reach {tolerance:.0e}")
        )
        spread = measure_spread(problem, solver, solution, solves=solves, seed=settings.seed) if solves else None
    exactness = proxy_exactness(problem)
    exact, sentence = exactness.verdict(solution.certificate, tolerance)
    return FeaturePrediction(
        reduction=problem.reduction,
        L_merged=problem.backend.whole(solution.x),
        dual_merged=problem.backend.whole(solution.dual),
        certificate=solution.certificate,
        P=stats.P,
        pi=stats.pi,
        entropy=float(stats.entropy),
        proxy_nuclear_norm=exactness.nuclear_norm,
        proxy_is_exact=exact,
        proxy_sentence=sentence,
        solution_bounds=solution_bounds(problem, solution),
        spread=spread,
        warnings=tuple(degenerate_support_warnings(stats.support_sizes, stats.V, stats.groups.count)),
        status=solution.status,
        seconds=solution.seconds,
        tolerance=tolerance,
        statistics_hash=stats.hash,
        windows=stats.n if stats.has_counts else None,
        coverage=stats.coverage,
        stats=stats,
    )


def _require_solvable(problem: NuclearSVM, limit: int | None) -> None:
    rows, columns = problem.shape
    if problem.reduction.V < 2:
        raise ProblemError(
            f"A vocabulary needs at least 2 tokens; got V={problem.reduction.V}. Likely a tokenizer that "
            "maps everything to one token. Choose another tokenizer."
        )
    for needed, device in LIMIT.needed(rows, columns, problem.backend):
        require_memory(
            needed,
            f"Solving for L_mm on {rows} merged tokens x {columns} support groups",
            lambda share: (
                f"{fewer_contexts(share, problem.reduction.m)}, or use predict_proxy(stats) (--proxy), which never "
                "makes a dense matrix."
            ),
            limit,
            device,
        )
