"""`Simulation`, the expected geometry of the tied model trained in some way, and how it is saved.

Several trainings of ``L = W f(A Phi)`` that differ in their random start alone, each ended at the same loss gap. What
is expected of such a training is the mean of its cosines. With unit vectors ``u_r`` of replicate r, the mean over R of
them is itself a cosine, of vectors that stand below each other::

    (1/R) sum_r <u_r(i), u_r(j)> = <u(i), u(j)>        u = (u_1, ..., u_R) / sqrt(R)

So no matrix of all pairs is kept. ``W`` and ``H`` are the replicates' own side by side, divided by ``sqrt(R)``: their
product is the mean of the logits, and their Gram matrices are the means of the replicates' Gram matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tokengeom.ask.explain import AnswersQuestions
from tokengeom.core.errors import InputError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, Int, centre_columns, unit_columns
from tokengeom.core.resources import require_memory
from tokengeom.models.networks.tied import tied_states
from tokengeom.results.contract import AbstractResult
from tokengeom.results.convert import Digest, Number, Within, damaged, from_manifest, to_plain
from tokengeom.statistics.arrays_file import SavedArrays
from tokengeom.statistics.context_features import ContextFeatures

_ARRAYS = "arrays.safetensors"
SAME_GAP = 0.1
"""Relative difference of loss gaps that counts as none: a training is looked at after each 3% of its steps."""
MOST_ITEMS = 400
"""Tokens and contexts, of each kind, whose cosines are compared between replicates."""
FLOW = "gradient-flow"
"""Name of gradient flow among the optimizers."""
_Whole = Annotated[int, Within(0)]
_Gap = Annotated[float, Within(0.0)]


@dataclass(frozen=True)
class Spread:
    """How alike replicates are.

    ``reliability``
        Correlation of the mean of cosines with that of as many other replicates: ``R rho / (1 + (R - 1) rho)``
        (Spearman and Brown 1910), where rho is the mean correlation of two replicates. NaN for one replicate.
    ``standard_error``
        Of the mean cosine of a pair: the root of its mean square over pairs.
    """

    reliability: Number
    standard_error: Number

    @staticmethod
    def of(replicates: Sequence[Float], groups: Int) -> Spread:
        """Of unit vectors as columns, over pairs of items in different groups; of many items, of some."""
        if len(replicates) < 2:
            return Spread(math.nan, math.nan)
        some = np.sort(np.random.default_rng(0).permutation(groups.size)[:MOST_ITEMS])
        pairs = np.triu(groups[some, None] != groups[None, some], 1)
        if not pairs.any():
            return Spread(math.nan, math.nan)
        cosines = np.stack([(units[:, some].T @ units[:, some])[pairs] for units in replicates])
        R = len(cosines)
        with np.errstate(invalid="ignore", divide="ignore"):
            rho = np.corrcoef(cosines)[np.triu_indices(R, 1)].mean()
        error = np.sqrt(cosines.var(axis=0, ddof=1).mean() / R)
        return Spread(float(R * rho / (1 + (R - 1) * rho)), float(error))


EXACT = {items: Spread(1.0, 0.0) for items in ("contexts", "tokens")}
"""Of gradient flow, which is not random."""


@dataclass(frozen=True, eq=False, repr=False)
class Simulation(AnswersQuestions, AbstractResult):
    """The expected geometry of a training; make it with `simulate`.

    where
        heads             W of the replicates side by side, V x (R d)
        A                 embeddings of features, (R d) x F, one replicate below the other
        gain              gains of the last norm, R d; None without one
        contexts, ties    token ids of the contexts, m x L, and which features they have
        replicates        R; 1 for gradient flow, which is not random
        wanted            the loss gap at which a training ends, in nats
        loss_gaps, steps  where each replicate ended
        spread            "contexts" and "tokens" -> how alike replicates are
        settings          those of the trainings, as plain data
    """

    kind: ClassVar[str] = "tokengeom-simulation"
    title: ClassVar[str] = "Simulation"

    heads: Float
    A: Float
    gain: Float | None
    contexts: Int
    ties: str
    replicates: int
    wanted: float
    loss_gaps: tuple[float, ...]
    steps: tuple[int, ...]
    spread: dict[str, Spread]
    settings: dict[str, Any]
    seconds: float
    statistics_hash: str | None = None

    @property
    def loss_gap(self) -> float:
        """``CE - H`` in nats, mean of the replicates."""
        return float(np.mean(self.loss_gaps))

    @property
    def reliability(self) -> dict[str, float]:
        """Correlation with as many other replicates, of contexts and of tokens."""
        return {items: spread.reliability for items, spread in self.spread.items()}

    @property
    def standard_error(self) -> dict[str, float]:
        """Standard error of the mean cosine of a pair, of contexts and of tokens."""
        return {items: spread.standard_error for items, spread in self.spread.items()}

    @property
    def W(self) -> Float:
        """Decoders side by side, V x (R d)."""
        return np.asarray(self.heads, np.float64) / math.sqrt(self.replicates)

    @cached_property
    def H(self) -> Float:
        """Contexts of one replicate below those of the other, (R d) x m."""
        return np.vstack(self._states(self.features.matrix)) / math.sqrt(self.replicates)

    @cached_property
    def features(self) -> ContextFeatures:
        """Features of the contexts."""
        return ContextFeatures.of_contexts(self.contexts, self.ties)

    def trainings(self) -> list[Factors]:
        """W and H of each replicate."""
        heads = np.split(np.asarray(self.heads, np.float64), self.replicates, axis=1)
        return [Factors(W, H) for W, H in zip(heads, self._states(self.features.matrix), strict=True)]

    def _states(self, Phi: Any) -> list[Float]:
        """``f(A Phi)`` of each replicate."""
        gains = [None] * self.replicates if self.gain is None else np.split(self.gain, self.replicates)
        parts = np.split(self.A, self.replicates)
        return [tied_states(np.asarray(A, np.float64), gain, Phi) for A, gain in zip(parts, gains, strict=True)]

    @cached_property
    def context_vectors(self) -> Float:
        """Contexts as columns, (R d) x m, whose inner products are the mean cosines."""
        return self._stacked(self._states(self.features.matrix))

    @cached_property
    def token_vectors(self) -> Float:
        """Tokens, with their mean removed, as columns, (R d) x V, whose inner products are the mean cosines."""
        return self._stacked([centre_columns(W).T for W in np.split(self.W, self.replicates, axis=1)])

    def place(self, contexts: ArrayLike) -> Float:
        """Any contexts, given as token ids (k x L, oldest first), in the space of ``context_vectors``, (R d) x k."""
        return self._stacked(self._states(self.features.of(contexts)))

    def _stacked(self, columns: Sequence[Float]) -> Float:
        return np.vstack([unit_columns(part) for part in columns]) / math.sqrt(self.replicates)

    @property
    def context_cosines(self) -> Float:
        """Mean cosine of each pair of contexts, m x m."""
        m = len(self.contexts)
        require_memory(8 * m * m, f"Cosines of all pairs of {m:,} contexts", "Use context_vectors, or some contexts.")
        return self.context_vectors.T @ self.context_vectors

    @property
    def token_cosines(self) -> Float:
        """Mean cosine of each pair of tokens, V x V."""
        return self.token_vectors.T @ self.token_vectors

    def to_dict(self) -> dict[str, Any]:
        """Everything except the arrays, as plain data."""
        numbers = {name: getattr(self, name) for name in ("loss_gap", "replicates", "reliability", "standard_error")}
        entries: dict[str, Any] = to_plain(_entries(self))
        del entries["spread"]
        return {**to_plain(numbers), **entries}

    def summary(self) -> str:
        """How it was trained, where it ended and how reliable the mean is."""
        lines = [f"{self._how} to a loss gap of {self.loss_gap:.3g} nats, {round(np.mean(self.steps)):,} steps each."]
        reliable = self.reliability
        if all(math.isfinite(value) for value in reliable.values()):
            lines.append(
                f"As many other replicates would agree to {reliable['contexts']:.3f} for contexts and "
                f"{reliable['tokens']:.3f} for tokens."
            )
        short = [gap for gap in self.loss_gaps if gap > (1 + SAME_GAP) * self.wanted]
        if short:
            lines.append(
                f"{len(short)} of {self.replicates} did not reach the loss gap of {self.wanted:.3g} nats: allow more "
                "steps, or a larger loss gap."
            )
        return "\n".join(lines)

    @property
    def is_flow(self) -> bool:
        """Whether it is gradient flow."""
        return bool(self.settings["optimizer"] == {"name": FLOW})

    @property
    def _how(self) -> str:
        name = self.settings["optimizer"]["name"]
        each = "" if self.replicates == 1 else f", mean of {self.replicates} random starts"
        return f"Tied features ({self.ties}) trained with {name}{each}"

    @property
    def _source(self) -> str:
        return f"simulated to a loss gap of {self.loss_gap:.3g} nats"

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("ties", self.ties),
            ("replicates", f"{self.replicates}"),
            ("d", f"{self.heads.shape[1] // self.replicates:,}"),
            ("loss gap", f"{self.loss_gap:.3g} nats"),
            ("features F", f"{self.A.shape[1]:,}"),
            ("tokens V", f"{self.heads.shape[0]:,}"),
            ("contexts m", f"{len(self.contexts):,}"),
            *((f"reliability of {items}", f"{value:.3f}") for items, value in self.reliability.items()),
            ("seconds", f"{self.seconds:.1f}"),
        ]

    def _write(self, folder: Path) -> dict[str, Any]:
        from safetensors.numpy import save_file

        arrays = {"heads": self.heads, "A": self.A, "gain": self.gain, "contexts": self.contexts}
        save_file({name: np.ascontiguousarray(x) for name, x in arrays.items() if x is not None}, folder / _ARRAYS)
        content: dict[str, Any] = to_plain(_entries(self))
        return content

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Simulation:
        entries, arrays = from_manifest(_Entries, manifest, folder), SavedArrays(folder / _ARRAYS)
        arrays.only("heads", "A", "gain", "contexts")
        heads = arrays.matrix("heads", (None, None))
        A = arrays.matrix("A", (heads.shape[1], None))
        gain = arrays.vector("gain", len(A)) if arrays.has("gain") else None
        contexts = arrays.array("contexts", np.int32, (None, None))
        made = cls(heads, A, gain, contexts, **vars(entries))
        try:
            fits = A.shape[1] == made.features.F and heads.shape[1] % entries.replicates == 0
        except InputError as error:
            raise damaged(folder, f"its contexts have no such features ({error})") from error
        if not fits or not len(entries.loss_gaps) == len(entries.steps) == entries.replicates:
            raise damaged(folder, "its arrays and its entries do not belong together")
        return made


@dataclass(frozen=True)
class _Entries:
    """Entries of the manifest of a `Simulation`."""

    ties: str
    replicates: Annotated[int, Within(1)]
    wanted: _Gap
    loss_gaps: tuple[_Gap, ...]
    steps: tuple[_Whole, ...]
    spread: dict[str, Spread]
    settings: dict[str, Any]
    seconds: float
    statistics_hash: Digest | None


def _entries(simulation: Simulation) -> _Entries:
    return _Entries(**{name: getattr(simulation, name) for name in _Entries.__annotations__})


def spread_of(simulation: Simulation, groups: Int, seen: Int) -> dict[str, Spread]:
    """How alike replicates are: contexts of different groups, and tokens that occur.

    ``groups``, ``seen``
        Support group of each context, m, and the tokens that follow some context.
    """
    trainings = simulation.trainings()
    units: dict[str, Callable[[Factors], Float]] = {
        "contexts": lambda training: training.context_directions,
        "tokens": lambda training: training.rows(seen).token_directions,
    }
    labels = {"contexts": groups, "tokens": np.arange(seen.size)}
    return {items: Spread.of([of(training) for training in trainings], labels[items]) for items, of in units.items()}
