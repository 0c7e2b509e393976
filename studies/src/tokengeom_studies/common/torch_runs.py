"""Trainings and comparisons that stay on one torch device: many runs of a measured study in a few minutes.

`DeviceText` holds the statistics of a text on the device, and gives loss gaps, geometries, rivals and predictions.
`SteppedRun` trains with the engines of `tokengeom.train`, a few steps at a time. Agreement is that of `compare`: the
correlation of cosines over pairs of contexts with different supports, and of different tokens.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from tokengeom.comparison.explanations.base import AbstractLogitRival, Contexts, Known, explanation_classes
from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float
from tokengeom.core.progress import SilentProgress
from tokengeom.models.factored import UFM
from tokengeom.models.network import Network
from tokengeom.models.networks.base import import_torch, threads_for
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossSettings
from tokengeom.theory.loss_path import LossPath
from tokengeom.theory.predict import predict
from tokengeom.training.network_engine import NetworkEngine
from tokengeom.training.objective import SoftLabels, WindowSampler
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.torch_engine import TorchEngine
from tokengeom.training.train import build_network
from tokengeom_studies.base import Recipe
from tokengeom_studies.common.feature_runs import count_stories

MOST_CONTEXTS = 4_000
"""Contexts whose pairs are compared; of more, this many are drawn with a fixed seed."""
ITEMS = ("contexts", "tokens")
LIMIT_TOLERANCE = 1e-3
NUCLEAR_TOLERANCE = 1e-3
GAMMA2_TOLERANCE = 5e-3
"""Proven relative gaps of the predictions."""
NEARLY = 1.5
"""Multiple of a loss gap from which on a run is read after every step."""


def save_text(stats: NextTokenStatistics, path: str | Path) -> None:
    """Write counts and contexts to an .npz file, for machines that cannot count a text."""
    if stats.contexts is None or not stats.has_counts:
        raise InputError("Only statistics with counts and the tokens of their contexts can be written as a text.")
    table = sparse.csc_array(stats.table)
    np.savez_compressed(
        path,
        data=table.data,
        indices=table.indices,
        indptr=table.indptr,
        shape=np.array(table.shape),
        contexts=np.asarray(stats.contexts),
    )


def load_text(recipe: Recipe) -> NextTokenStatistics:
    """Statistics of the recipe's ``text``: the built-in stories, or an .npz file that `save_text` wrote."""
    if recipe["text"] == "stories":
        return count_stories(recipe, SilentProgress())
    path = Path(recipe["text"])
    if path.suffix != ".npz" or not path.is_file():
        raise InputError(f"text must be 'stories' or an .npz file of counts; got {recipe['text']!r}.")
    with np.load(path) as file:
        parts = (file["data"], file["indices"], file["indptr"])
        table = sparse.csc_array(parts, shape=tuple(file["shape"]))
        return NextTokenStatistics.from_counts(table, contexts=file["contexts"])


@dataclass(frozen=True, eq=False)
class Geometry:
    """Cosines over the pairs that count, with mean 0 and length 1, so that a correlation is a sum of products."""

    contexts: Any
    tokens: Any


def agreement(a: Geometry, b: Geometry) -> dict[str, float]:
    """Correlation of the cosines of two geometries on the same text, for contexts and for tokens."""
    return {item: float((getattr(a, item) * getattr(b, item)).sum()) for item in ITEMS}


class DeviceText:
    """Statistics of a text on a torch device.

    where
        P       next-token probabilities, V x m, float32
        pi      shares of the contexts, m
        kept    the contexts whose pairs are compared
        cache   folder in which processes on the same text share their predictions; None without one
    """

    def __init__(self, stats: NextTokenStatistics, device: str = "cpu", cache: Path | None = None) -> None:
        self.torch = import_torch()
        self.stats, self.device, self.cache = stats, device, cache
        self.labels = SoftLabels.from_statistics(stats)
        self.P = self._placed(stats.P.toarray())
        self.pi = self._placed(stats.pi)
        self.entropy = float(stats.entropy)
        generator = np.random.default_rng(0)
        few = stats.m <= MOST_CONTEXTS
        kept = np.arange(stats.m) if few else np.sort(generator.choice(stats.m, MOST_CONTEXTS, replace=False))
        self.kept = self.torch.as_tensor(kept, device=device)
        group = self.torch.as_tensor(np.asarray(stats.groups.label)[kept].astype(np.int64), device=device)
        self._apart = group[:, None] != group[None, :]
        self._different = ~self.torch.eye(stats.V, dtype=self.torch.bool, device=device)
        self._paths: dict[str, LossPath] = {}

    def _placed(self, array: Any) -> Any:
        return self.torch.tensor(np.asarray(array), dtype=self.torch.float32, device=self.device)

    def loss_gap(self, W: Any, H: Any) -> float:
        """Loss above the entropy floor in nats, accumulated in double precision."""
        L = W @ H
        loss = self.torch.logsumexp(L, 0).double() - (self.P * L).sum(0, dtype=self.torch.float64)
        return float((self.pi.double() * loss).sum() / self.pi.double().sum()) - self.entropy

    def geometry(self, W: Any, H: Any) -> Geometry:
        """Cosines of tokens (rows of W, mean removed) and of contexts (columns of H)."""
        W, H = self._placed_like(W), self._placed_like(H)
        return Geometry(
            self._standardised(_cosines(self.torch, H[:, self.kept].mT), self._apart),
            self._standardised(_cosines(self.torch, W - W.mean(0)), self._different),
        )

    def _placed_like(self, given: Any) -> Any:
        return given if self.torch.is_tensor(given) else self._placed(given)

    def _standardised(self, C: Any, counted: Any) -> Any:
        C = C * counted
        C = (C - C.sum(dtype=self.torch.float64).float() / counted.sum()) * counted
        return C / C.double().square().sum().sqrt().float().clamp_min(1e-30)

    def rivals(self, names: Sequence[str] | None = None) -> dict[str, list[tuple[str, Geometry]]]:
        """Name of each rival explanation that needs no solver -> its candidates, with their free parameters."""
        return dict(self._rivals(names))

    def _rivals(self, names: Sequence[str] | None) -> Iterator[tuple[str, list[tuple[str, Geometry]]]]:
        known = Known(has_counts=self.stats.has_counts)
        for kind in explanation_classes(names):
            if not kind.quick or kind.ours:
                continue
            found = [(one.chosen, self._rival(one)) for one in kind.candidates(known)]
            if found:
                yield kind.name, found

    def _rival(self, one: Any) -> Geometry:
        if isinstance(one, AbstractLogitRival):
            contexts = Contexts.of(self.stats)
            M = contexts.P.copy()
            M.data = one.values(contexts, np.asarray(self.stats.P @ self.stats.pi))
            return self.matrix_geometry(M.toarray(), one.power)
        everything = np.arange(self.stats.m)
        fit = one.fit(self.stats)
        return self.geometry(fit.tokens(np.arange(self.stats.V)).T, fit.contexts(everything))

    def matrix_geometry(self, M: Any, power: float) -> Geometry:
        """Tokens ``U Sigma^p`` and contexts ``Sigma^p V^T`` of a matrix whose columns are centred first."""
        M = self.torch.as_tensor(np.asarray(M), dtype=self.torch.float64, device=self.device)
        M = M - M.mean(0)
        if power == 1.0:
            return self.geometry(M.float(), M.float())
        values, U = self.torch.linalg.eigh(M @ M.mT)
        s = values.clamp_min(0.0).sqrt()
        kept = s > 1e-6 * s[-1]
        U, s = U[:, kept], s[kept]
        return self.geometry((U * s**power).float(), ((U.mT @ M) * s[:, None] ** (power - 1.0)).float())

    def prediction(self, loss_gap: float, norm: str) -> Predicted:
        """The prediction at a loss gap, each solve started from earlier ones of the same norm."""

        def solve() -> Predicted:
            if norm not in self._paths:
                tolerance = NUCLEAR_TOLERANCE if norm == "nuclear" else GAMMA2_TOLERANCE
                settings = LossSettings(norm=norm, device=self.device, tolerance=tolerance)
                P, pi = self.stats.P, self.stats.pi
                self._paths[norm] = LossPath(P, pi, entropy=self.entropy, settings=settings)
            at = self._paths[norm].at(loss_gap)
            return Predicted(at.W, at.H, at.loss_gap, at.norm_value, at.relative_gap, at.rank)

        return self.kept_prediction(f"{norm}-{loss_gap:g}", solve)

    @cached_property
    def limit(self) -> Predicted:
        """The prediction in the limit of training, L_mm."""

        def solve() -> Predicted:
            found = predict(self.stats, tolerance=LIMIT_TOLERANCE, device=self.device, spread_solves=0)
            proof = found.certificate
            return Predicted(found.W, found.H, 0.0, proof.value, 1.0 - proof.bound / proof.value, found.rank)

        return self.kept_prediction("limit", solve)

    def kept_prediction(self, name: str, solve: Callable[[], Predicted]) -> Predicted:
        """A prediction from the cache, or solved for and kept there."""
        path = None if self.cache is None else self.cache / f"{self.stats.hash[:16]}-{name}.npz"
        if path is not None and path.exists():
            with np.load(path) as file:
                facts = {key: float(file[key]) for key in ("loss_gap", "norm_value", "relative_gap")}
                return Predicted(file["W"], file["H"], **facts, rank=int(file["rank"]))
        found = solve()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}.npz")
            np.savez(part, **vars(found))
            part.replace(path)
        return found


@dataclass(frozen=True, eq=False)
class Predicted:
    """A prediction at a loss or in the limit.

    where
        W, H           balanced factors, V x r and r x m
        loss_gap       its loss gap, 0 in the limit
        norm_value     its norm, proven to be within ``relative_gap`` of the smallest
    """

    W: Float
    H: Float
    loss_gap: float
    norm_value: float
    relative_gap: float
    rank: int

    def facts(self) -> dict[str, float]:
        """Everything but the factors."""
        return {name: value for name, value in vars(self).items() if name not in ("W", "H")}


def _cosines(torch: Any, rows: Any) -> Any:
    unit = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-30)
    return unit @ unit.mT


def nuclear_norm(W: Any, H: Any) -> float:
    """Nuclear norm of the logits ``W H`` with the mean over tokens removed, from the factors."""
    W = (W - W.mean(0)).double()
    return float(_small_core(W, H.double())[1].sum())


def split_exponent(W: Any, H: Any) -> float:
    """Slope of ``log ||W^T u_k||`` against ``log sigma_k`` of the centred logits: 1/2 where W and H share them."""
    import torch

    W = (W - W.mean(0)).double()
    U, s = _small_core(W, H.double())
    kept = s > 1e-3 * s[0]
    if int(kept.sum()) < 3:
        return float("nan")
    x, y = s[kept].log(), (W.mT @ U[:, kept]).norm(dim=0).log()
    x, y = x - x.mean(), y - y.mean()
    return float(torch.dot(x, y) / torch.dot(x, x))


def _small_core(W: Any, H: Any) -> tuple[Any, Any]:
    """Left singular vectors and singular values of ``W H``, by two small decompositions."""
    import torch

    Q, R = torch.linalg.qr(W)
    _, T = torch.linalg.qr(H.mT)
    U, s, _ = torch.linalg.svd(R @ T.mT)
    return Q @ U[:, : s.numel()], s


class SteppedRun:
    """A training that the caller advances, with the engines of `tokengeom.train`.

    ``settings``
        Settings of `train`; the device is that of the text.
    ``network``
        A network of the caller's own; by default that of the settings.
    ``start_scale``
        Factor on the random start of unconstrained features.
    """

    def __init__(
        self,
        text: DeviceText,
        settings: TrainingSettings,
        *,
        network: Network | None = None,
        start_scale: float = 1.0,
    ) -> None:
        self.text, self.settings, self.step = text, settings, 0
        self.network = network
        labels, self.optimization = text.labels, settings.optimization()
        optimizer = self.optimization.optimizer
        scale = float(labels.windows) if settings.reduction == "sum" else 1.0
        streams = [np.random.default_rng(one) for one in np.random.SeedSequence(settings.seed).spawn(2)]
        self._sampler = WindowSampler(labels, streams[1]) if settings.batch else None
        if settings.is_network and self.network is None:
            self.network = build_network(text.stats, settings)
        if self.network is not None:
            precision = settings.precision or "float32"
            self.engine: NetworkEngine | TorchEngine = NetworkEngine(
                self.network,
                labels,
                optimizer,
                scale=scale,
                precision=precision,
                device=text.device,
                seed=settings.seed,
            )
            return
        model = UFM(labels.V, labels.m, settings.dim or 0, init=settings.init, generator=streams[0])
        model.W, model.H = start_scale * model.W, start_scale * model.H
        self.engine = TorchEngine(
            [model], labels, optimizer, scale=scale, batch=settings.batch, dtype=np.float32, device=text.device
        )

    def advance(self, steps: int, *, rate: float = 1.0, windows: Any = None) -> None:
        """Make steps; ``rate`` multiplies the learning rate, ``windows`` (steps x batch) replaces sampled ones."""
        table = np.array(self.optimization.coefficients(self.step, self.step + steps))
        if rate != 1.0:
            done = np.arange(self.step, self.step + steps, dtype=np.float64)
            rates = rate * self.optimization.learning_rate * np.ones(steps)
            table = self.optimization.optimizer.coefficients(done + 1.0, rates, 0.0 * rates)
        if windows is None and self._sampler is not None:
            windows = self._sampler.draw(steps, self.settings.batch or 0)
        torch, work = self.text.torch, 3.0 * self.text.P.numel() * (self.settings.dim or 0)
        with _fast_products(torch, self.network is not None), threads_for(torch, work):
            self.engine.advance(table, None if windows is None else [windows])
        self.step += steps

    def factors(self) -> tuple[Any, Any]:
        """W (V x d) and H (d x m) on the device; views of the parameters where they are parameters."""
        if self.network is None:
            assert isinstance(self.engine, TorchEngine), "only networks have another engine"
            return self.engine.tensors(0)
        decoder = self.network.decoder
        decoder.eval()
        with self.text.torch.no_grad():
            K = self.text.torch.cat([decoder.states(which) for which in self.network.portions()])
        decoder.train()
        return decoder.W.detach().float(), K.float().mT


@contextmanager
def _fast_products(torch: Any, wanted: bool) -> Iterator[None]:
    """Products with 10 bits of mantissa (TF32) on a GPU, where wanted; measurements are made without them."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = wanted
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@dataclass(frozen=True, eq=False)
class Reached:
    """A run when its loss gap first fell below a target; W and H are copies."""

    target: float
    loss_gap: float
    step: int
    seconds: float
    W: Any
    H: Any


def first_below(
    run: SteppedRun, targets: Sequence[float], *, every: int = 5, most_steps: int = 20_000, seconds: float = 60.0
) -> Iterator[Reached]:
    """The run at each target, largest first, until one is not reached in the steps or the time given."""
    began, gap = time.monotonic(), np.inf
    remaining = sorted(targets, reverse=True)
    while remaining and run.step < most_steps and time.monotonic() - began < seconds:
        # Near a target the loss is computed after every step, so that all runs are read at nearly the same loss.
        run.advance(every if gap > NEARLY * remaining[0] else 1)
        W, H = run.factors()
        gap = run.text.loss_gap(W, H)
        if not np.isfinite(gap):
            return
        while remaining and gap <= remaining[0]:
            yield Reached(remaining.pop(0), gap, run.step, time.monotonic() - began, W.clone(), H.clone())


def best_candidates(
    rivals: Mapping[str, Sequence[tuple[str, Geometry]]], run: Geometry
) -> dict[str, dict[str, float | str]]:
    """Agreement of each rival with a run; of several candidates, that which agrees best with the contexts."""
    found: dict[str, dict[str, float | str]] = {}
    for name, candidates in rivals.items():
        scored = [(agreement(one, run), chosen) for chosen, one in candidates]
        best, chosen = max(scored, key=lambda pair: pair[0]["contexts"])
        found[name] = {**best, "chosen": chosen} if chosen else dict(best)
    return found
