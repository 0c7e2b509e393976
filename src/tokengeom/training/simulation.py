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
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tokengeom.ask.place import PlacesContexts
from tokengeom.core.errors import InputError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, Int, cosines, log_sum_exp, reliability_of_mean, unit_columns
from tokengeom.core.resources import require_memory
from tokengeom.models.networks.tied import tied_states
from tokengeom.results.contract import AbstractResult
from tokengeom.results.convert import Added, Digest, Number, Within, damaged, from_manifest, to_plain
from tokengeom.statistics.arrays_file import SavedArrays
from tokengeom.statistics.context_features import OWN, ContextFeatures
from tokengeom.training.objective import SoftLabels

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from tokengeom.ask.named_vectors import Items
    from tokengeom.statistics.next_token import NextTokenStatistics

_ARRAYS = "arrays.safetensors"
_PHI, _NAMES = ("Phi_data", "Phi_indices", "Phi_indptr"), "given_names"
"""Arrays and names of features that were given as a matrix."""
FLOW = "gradient-flow"
"""Name of gradient flow among the optimizers."""
SAME_GAP = 0.1
"""Relative difference of loss gaps that counts as none."""
MOST_ITEMS = 400
"""Tokens, and contexts, whose cosines are compared between replicates."""


@dataclass(frozen=True, eq=False, repr=False)
class Simulation(PlacesContexts, AbstractResult):
    """The expected geometry of a training; make it with `simulate`.

    where
        heads             W of the replicates side by side, V x (R d)
        A, gain           embeddings of features, (R d) x F, and gains of the last norm, R d; None without one
        contexts, ties    token ids of the contexts, m x L, and which features they have
        own               features that were given as a matrix; None where ``ties`` names them
        replicates        R; 1 for gradient flow, which is not random
        wanted            the loss gap at which a training ends, in nats
        steps, loss_gaps  where each replicate ended
        reliability       of contexts and of tokens: the correlation with mean cosines of as many other replicates
        standard_error    of the mean cosine of a pair: the root of its mean square over pairs
        settings          those of the trainings, as plain data
        stats             the statistics; None in a simulation that was loaded
    """

    kind: ClassVar[str] = "tokengeom-simulation"
    title: ClassVar[str] = "Simulation"

    heads: Float
    A: Float
    gain: Float | None
    contexts: NDArray[np.int32]
    ties: str
    replicates: int
    wanted: float
    steps: tuple[int, ...]
    settings: dict[str, Any]
    loss_gaps: tuple[float, ...] = ()
    reliability: dict[str, float] = field(default_factory=dict)
    standard_error: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    statistics_hash: str | None = None
    stats: NextTokenStatistics | None = None
    own: ContextFeatures | None = None

    @property
    def loss_gap(self) -> float:
        """``CE - H`` in nats, mean of the replicates."""
        return float(np.mean(self.loss_gaps))

    @property
    def is_flow(self) -> bool:
        """Whether it is gradient flow."""
        return bool(self.settings["optimizer"] == {"name": FLOW})

    @property
    def W(self) -> Float:
        """Decoders side by side, V x (R d)."""
        return np.asarray(self.heads, np.float64) / math.sqrt(self.replicates)

    @property
    def H(self) -> Float:
        """Contexts of one replicate below those of the other, (R d) x m."""
        return self.embeddings_of(self.features.matrix)

    def embeddings_of(self, Phi: csc_array) -> Float:
        """Any contexts with the features Phi, as those in H, (R d) x k."""
        return np.vstack(self._states(Phi)) / math.sqrt(self.replicates)

    @cached_property
    def _weights(self) -> list[tuple[Float, Float, Float | None]]:
        """W (V x d), A (d x F) and the gain of the last norm (d) of each replicate."""
        R = self.replicates
        gains = [None] * R if self.gain is None else np.split(self.gain, R)
        heads = np.split(np.asarray(self.heads, np.float64), R, axis=1)
        return list(zip(heads, np.split(np.asarray(self.A, np.float64), R), gains, strict=True))

    @cached_property
    def states(self) -> list[Float]:
        """Contexts of each replicate, d x m."""
        return self._states(self.features.matrix)

    @property
    def context_groups(self) -> Int:
        """Support group of each context, m."""
        if self.stats is None:
            raise InputError("A simulation that was loaded needs the statistics that it is for: give stats.")
        return np.asarray(self.stats.groups.label, np.int64)

    @cached_property
    def features(self) -> ContextFeatures:
        """Features of the contexts."""
        return self.own or ContextFeatures.of_contexts(self.contexts, self.ties)

    def trainings(self) -> list[Factors]:
        """W and H of each replicate."""
        return [Factors(W, H) for (W, _, _), H in zip(self._weights, self.states, strict=True)]

    def _states(self, Phi: Any) -> list[Float]:
        """``f(A Phi)`` of each replicate."""
        return [tied_states(A, gain, Phi) for _, A, gain in self._weights]

    @cached_property
    def context_vectors(self) -> Float:
        """Contexts as columns, (R d) x m, whose inner products are the mean cosines."""
        return np.vstack([unit_columns(H) for H in self.states]) / math.sqrt(self.replicates)

    def logits_of(self, Phi: csc_array) -> Float:
        """The logarithm of the mean probabilities of the replicates, V x k, for contexts with the features Phi."""
        logits = [W @ tied_states(A, gain, Phi) for W, A, gain in self._weights]
        mean = np.mean([np.exp(L - log_sum_exp(L)[None, :]) for L in logits], axis=0)
        return np.asarray(np.log(np.maximum(mean, np.finfo(np.float64).tiny)))

    def parts_of(self, phi: csc_array) -> Float:
        """What each feature of a context adds to its vector: its own, times the norm's factor, over the length."""
        parts = list[Float]()
        for _, A, gain in self._weights:
            own = A[:, phi.indices] * phi.data
            scaled = own if gain is None else own * gain[:, None]
            # The root mean square is one number per context, which the length divides out.
            parts.append(scaled / max(float(np.linalg.norm(scaled.sum(axis=1))), 1e-300))
        return np.vstack(parts) / math.sqrt(self.replicates)

    def directions(self, items: Items, seen: Int) -> Float:
        """Rows whose inner products are the mean cosines of tokens, less the mean over those seen, or of contexts."""
        if items == "contexts":
            return self.context_vectors.T
        rows = [unit_columns((W - W[seen].mean(axis=0)).T) for W, _, _ in self._weights]
        return np.vstack(rows).T / math.sqrt(self.replicates)

    def _logits_after(self, j: int) -> dict[str, Float]:
        return {"logit": self.logits_of(self.features.matrix[:, [j]])[:, 0]}

    @property
    def context_cosines(self) -> Float:
        """Mean cosine of each pair of contexts, m x m; where these are too many, ``context_vectors`` has them."""
        require_memory(8 * len(self.contexts) ** 2, "The context cosines (m x m)", "Use context_vectors instead.")
        return self.context_vectors.T @ self.context_vectors

    @property
    def token_cosines(self) -> Float:
        """Mean cosine of each pair of tokens, with their mean removed, V x V."""
        return np.asarray(np.mean([cosines(training.tokens) for training in self.trainings()], axis=0))

    def measured(self, stats: NextTokenStatistics) -> dict[str, Any]:
        """Loss gaps, reliability and standard error, over contexts with different supports and tokens that occur."""
        trainings, labels, seen = self.trainings(), SoftLabels.from_statistics(stats), np.unique(stats.P.indices)
        contexts = _spread([each.context_directions for each in trainings], np.asarray(stats.groups.label))
        tokens = _spread([each.rows(seen).token_directions for each in trainings], seen)
        both = {items: (1.0, 0.0) if self.is_flow else x for items, x in (("contexts", contexts), ("tokens", tokens))}
        return {
            "loss_gaps": tuple(labels.loss_gap_of(training) for training in trainings),
            "reliability": {items: found for items, (found, _) in both.items()},
            "standard_error": {items: found for items, (_, found) in both.items()},
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything except the arrays, as plain data."""
        return {"loss_gap": self.loss_gap, **self._entries()}

    def _entries(self) -> dict[str, Any]:
        named = [name for name in _Entries.__annotations__ if name != _NAMES]
        plain: dict[str, Any] = to_plain({name: getattr(self, name) for name in named})
        return plain

    def summary(self) -> str:
        """How it was trained, where it ended and how reliable the mean is."""
        each = "" if self.replicates == 1 else f", mean of {self.replicates} random starts"
        how = f"Tied features ({self.ties}) trained with {self.settings['optimizer']['name']}{each}"
        reached = f"a loss gap of {self.loss_gap:.3g} nats after {round(np.mean(self.steps)):,} steps."
        agree = " and ".join(f"{value:.3f} for {items}" for items, value in self._known_reliability.items())
        said = f"As many other replicates would agree to {agree}." if agree else ""
        lines = [f"{how}: {reached}", said, self.shortfall]
        return "\n".join(line for line in lines if line)

    @property
    def _known_reliability(self) -> dict[str, float]:
        """That of a mean of several replicates; one alone does not say how alike others are."""
        return {items: value for items, value in self.reliability.items() if not math.isnan(value)}

    @property
    def shortfall(self) -> str:
        """How many replicates did not reach the loss gap, as a sentence; empty where all did."""
        short = sum(gap > (1 + SAME_GAP) * self.wanted for gap in self.loss_gaps)
        said = f"Of {self.replicates} trainings of tied features, {short} did not reach the loss gap of "
        return f"{said}{self.wanted:.3g} nats: allow more steps, or a larger loss gap." if short else ""

    @property
    def _source(self) -> str:
        return f"simulated to a loss gap of {self.loss_gap:.3g} nats"

    def _facts(self) -> list[tuple[str, str]]:
        (V, width), F, m = self.heads.shape, self.A.shape[1], len(self.contexts)
        sizes = {"d": width // self.replicates, "features F": F, "tokens V": V, "contexts m": m}
        return [
            ("ties", self.ties),
            ("replicates", f"{self.replicates}"),
            ("loss gap", f"{self.loss_gap:.3g} nats"),
            *((name, f"{size:,}") for name, size in sizes.items()),
            *((f"reliability of {items}", f"{value:.3f}") for items, value in self._known_reliability.items()),
        ]

    def _write(self, folder: Path) -> dict[str, Any]:
        from safetensors.numpy import save_file

        arrays = {"heads": self.heads, "A": self.A, "gain": self.gain, "contexts": self.contexts}
        if self.own is not None:
            arrays |= {f"Phi_{part}": getattr(self.own.matrix, part).astype(np.int64) for part in ("indices", "indptr")}
            arrays["Phi_data"] = self.own.matrix.data
        save_file({name: np.ascontiguousarray(x) for name, x in arrays.items() if x is not None}, folder / _ARRAYS)
        return self._entries() | ({} if self.own is None else {_NAMES: to_plain(self.own.given_names)})

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Simulation:
        entries, arrays = from_manifest(_Entries, manifest, folder), SavedArrays(folder / _ARRAYS)
        arrays.only("heads", "A", "gain", "contexts", *_PHI)
        heads, contexts = arrays.matrix("heads", (None, None)), arrays.array("contexts", np.int32, (None, None))
        A = arrays.matrix("A", (heads.shape[1], None))
        gain = arrays.vector("gain", len(A)) if arrays.has("gain") else None
        saved, own = vars(entries) | {}, None
        names = saved.pop(_NAMES)
        if entries.ties == OWN:
            if names is not None and len(names) != A.shape[1]:
                raise damaged(folder, "it has not one name per feature")
            own = ContextFeatures.from_matrix(
                arrays.table("Phi_", np.float64, (A.shape[1], len(contexts)), signed=True), names
            )
        made = cls(heads, A, gain, contexts, **saved, own=own)
        each = {len(entries.steps), len(entries.loss_gaps), math.gcd(heads.shape[1], entries.replicates)}
        if each != {entries.replicates} or A.shape[1] != made.features.F:
            raise damaged(folder, "its arrays and its entries do not belong together")
        return made


@dataclass(frozen=True)
class _Entries:
    """Entries of the manifest of a `Simulation`."""

    replicates: Annotated[int, Within(1)]
    reliability: dict[str, Number]
    standard_error: dict[str, Number]
    seconds: float
    ties: str
    wanted: Annotated[float, Within(0.0)]
    loss_gaps: tuple[Annotated[float, Within(0.0)], ...]
    steps: tuple[Annotated[int, Within(0)], ...]
    settings: dict[str, Any]
    statistics_hash: Digest | None
    given_names: Annotated[tuple[str, ...] | None, Added(None)] = None


def _spread(replicates: Sequence[Float], groups: Int) -> tuple[float, float]:
    """Reliability and standard error of mean cosines of unit vectors, over pairs of some items in different groups."""
    some = np.sort(np.random.default_rng(0).permutation(groups.size)[:MOST_ITEMS])
    pairs = np.triu(groups[some, None] != groups[None, some], 1)
    return reliability_of_mean(np.stack([(units[:, some].T @ units[:, some])[pairs] for units in replicates]))
