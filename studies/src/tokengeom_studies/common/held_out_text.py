"""A text of which some contexts are held out of training, on a torch device; and how alike two geometries of it are.

Agreement is the correlation of cosines over pairs of contexts with different supports, separately for contexts with
several next tokens, for those with one, and for those that were held out; and over pairs of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from tokengeom import NextTokenStatistics
from tokengeom.extending import Bool, Float, Int, SoftLabels, import_torch
from tokengeom_studies.common.corrected import reliability
from tokengeom_studies.common.on_device import cosines, standardised

SEVERAL, ONE, HELD_OUT, TOKENS = "several", "one", "held out", "tokens"
ITEMS = (SEVERAL, ONE, HELD_OUT, TOKENS)
"""What is compared: three kinds of contexts, and tokens."""
MOST = 2_000
"""Contexts of each kind whose pairs are compared; of more, this many are drawn with a fixed seed."""
Geometry = Mapping[str, Any]
"""Kind of item -> cosines over its pairs, with mean 0 and length 1, as a tensor; only kinds that are known."""


class HeldOutText:
    """Statistics on a device, of which only the ``kept`` contexts are trained on.

    where
        stats     all contexts
        kept      which contexts are trained on, m
        trained   statistics of these alone
        P, pi     probabilities (V x m) and weights (m, 0 where held out) on the device
    """

    @staticmethod
    def drawn(stats: NextTokenStatistics, share: float, device: str, seed: int = 0) -> HeldOutText:
        """With a share of the contexts held out, drawn at random."""
        kept = np.ones(stats.m, dtype=bool)
        kept[np.random.default_rng(seed).permutation(stats.m)[: round(share * stats.m)]] = False
        return HeldOutText(stats, kept, device)

    def __init__(self, stats: NextTokenStatistics, kept: Bool, device: str) -> None:
        self.torch, self.stats, self.kept, self.device = import_torch(), stats, kept, device
        contexts = np.asarray(stats.contexts)
        self.trained = NextTokenStatistics.from_counts(
            sparse.csc_array(stats.table[:, np.flatnonzero(self.kept)]), contexts=contexts[self.kept]
        )
        whole = SoftLabels.from_statistics(stats)
        weight = np.where(self.kept, whole.weight, 0.0)
        self.labels = replace(whole, weight=weight / weight.sum(), windows=int(self.trained.n))
        self.entropy = self.labels.entropy
        self.P, self.pi = self.placed(stats.P.toarray()), self.placed(self.labels.weight)
        out = np.where(self.kept, 0.0, whole.weight)
        self._out = self.placed(out / out.sum())

    def placed(self, array: Any) -> Any:
        """An array or tensor in float32 on the device."""
        given = array if self.torch.is_tensor(array) else self.torch.as_tensor(np.asarray(array))
        return given.to(device=self.device, dtype=self.torch.float32)

    def loss_gap(self, W: Any, H: Any) -> float:
        """Loss on the contexts that are trained on, above its floor, in nats."""
        return self._loss(W @ H, self.pi) - self.entropy

    def _loss(self, L: Any, weight: Any) -> float:
        loss = self.torch.logsumexp(L, 0).double() - (self.P * L).sum(0, dtype=self.torch.float64)
        return float((weight.double() * loss).sum())

    def unseen(self, L: Any, tops: Mapping[str, Any]) -> dict[str, Any]:
        """On windows of the contexts that were held out: loss, share of right top tokens, and of those of others.

        ``tops`` has the top tokens of others after every context, by name.
        """
        top = L.argmax(0)
        right = self.P.gather(0, top[None]).reshape(-1)
        same = {name: float((self._out * (other == top)).sum()) for name, other in tops.items()}
        return {"loss": self._loss(L, self._out), "right": float((self._out * right).sum()), "same_top": same}

    @cached_property
    def _sets(self) -> dict[str, tuple[Any, Any]]:
        """Kind of context -> some of them, and which of their pairs have different supports."""
        number = np.diff(sparse.csc_array(self.stats.table).indptr)
        kinds = {SEVERAL: self.kept & (number > 1), ONE: self.kept & (number == 1), HELD_OUT: ~self.kept}
        random, label = np.random.default_rng(1), np.asarray(self.stats.groups.label, np.int64)
        drawn: dict[str, Int] = {
            kind: np.sort(random.permutation(np.flatnonzero(which))[:MOST]) for kind, which in kinds.items()
        }
        return {kind: (self._index(some), self._apart(label[some])) for kind, some in drawn.items() if some.size > 1}

    def _index(self, some: Int) -> Any:
        return self.torch.as_tensor(some, device=self.device)

    def _apart(self, label: Int) -> Any:
        group = self.torch.as_tensor(label, device=self.device)
        return self.torch.triu(group[:, None] != group[None, :], 1)

    @cached_property
    def _seen(self) -> Any:
        """Tokens that follow a context that is trained on."""
        return self._index(np.flatnonzero(np.asarray(self.trained.table.sum(axis=1)).ravel() > 0))

    def geometry(self, W: Any, H: Any, kinds: Sequence[str] = ITEMS) -> Geometry:
        """Cosines of tokens (rows of W, mean removed) and of contexts (columns of H), over the pairs that count."""
        W, H = self.placed(W), self.placed(H)
        found = {kind: cosines(H[:, some].mT)[apart] for kind, (some, apart) in self._sets.items() if kind in kinds}
        if TOKENS in kinds:
            rows = W[self._seen]
            C = cosines(rows - rows.mean(0))
            found[TOKENS] = C[self.torch.ones_like(C, dtype=self.torch.bool).triu(1)]
        return {kind: standardised(values) for kind, values in found.items()}

    def everywhere(self, H: Float) -> Float:
        """Columns of contexts that are trained on, with zeros for those that are held out."""
        whole = np.zeros((H.shape[0], self.stats.m))
        whole[:, self.kept] = H
        return whole


def agreement(one: Geometry, other: Geometry) -> dict[str, float]:
    """Correlation of the cosines of two geometries, of each kind that both have."""
    return {kind: float((one[kind].double() * other[kind]).sum()) for kind in ITEMS if kind in one and kind in other}


def mean_geometry(replicates: Sequence[Geometry]) -> tuple[Geometry, dict[str, float]]:
    """Mean of replicates, and its reliability: the correlation with the mean of as many others [spearman1910]."""
    count, kinds = len(replicates), replicates[0].keys()
    mean = {kind: standardised(sum(one[kind] for one in replicates)) for kind in kinds}
    if count == 1:
        return mean, dict.fromkeys(kinds, float("nan"))
    pairs = [agreement(replicates[a], replicates[b]) for a in range(count) for b in range(a)]
    return mean, {kind: reliability([pair[kind] for pair in pairs], count) for kind in kinds}
