"""Agreement of many geometries of one text, computed on a torch device.

Agreement is that of `compare`: the correlation of cosines over pairs of contexts with different supports, and over
pairs of different tokens. A geometry keeps its cosines over these pairs with mean 0 and length 1, so that the agreement
of two of them is a sum of products. There are neither intervals nor floors.

`BestRivals` are rivals with the free parameters that suit given runs best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokengeom import NextTokenStatistics
from tokengeom.extending import (
    AbstractMatrixRival,
    AbstractRival,
    ContextStatistics,
    FitInputs,
    Float,
    explanation_classes,
    import_torch,
    split_exponent,
)

ITEMS = ("contexts", "tokens")
MOST_CONTEXTS = 4_000
"""Contexts whose pairs are compared; of more, this many are drawn with a fixed seed."""
WIDENED = 24
"""How often a grid is widened at most for one choice: by a factor of 10^12."""
WORTH_WIDENING = 1e-4
"""Gain in agreement from the values inside a grid to its edge from which on it is widened."""


@dataclass(frozen=True, eq=False)
class PairGeometry:
    """Cosines over the pairs that count, with mean 0 and length 1; tensors."""

    contexts: Any
    tokens: Any

    def agreement(self, other: PairGeometry) -> dict[str, float]:
        """Correlation of the cosines of two geometries of the same text, for contexts and for tokens."""
        return {item: float((getattr(self, item) * getattr(other, item)).sum()) for item in ITEMS}

    @staticmethod
    def mean(runs: Sequence[PairGeometry]) -> PairGeometry:
        """Mean cosines over runs."""
        return PairGeometry(*(standardised(sum(getattr(run, item) for run in runs)) for item in ITEMS))


class TextOnDevice:
    """Statistics of a text on a torch device.

    where
        P       next-token probabilities, V x m, float32
        pi      shares of the contexts, m
        kept    the contexts whose pairs are compared
    """

    def __init__(self, stats: NextTokenStatistics, device: str = "cpu") -> None:
        self.torch = import_torch()
        self.stats, self.device = stats, device
        self.P = self._placed(stats.P.toarray())
        self.pi = self._placed(stats.pi)
        self.entropy = float(stats.entropy)
        kept = np.arange(stats.m)
        if stats.m > MOST_CONTEXTS:
            kept = np.sort(np.random.default_rng(0).choice(stats.m, MOST_CONTEXTS, replace=False))
        self.kept = self.torch.as_tensor(kept, device=device)
        group = self.torch.as_tensor(np.asarray(stats.groups.label)[kept].astype(np.int64), device=device)
        self._apart = self.torch.triu(group[:, None] != group[None, :], 1)
        self._different = self.torch.ones(stats.V, stats.V, dtype=self.torch.bool, device=device).triu(1)

    def _placed(self, array: Any) -> Any:
        return self.torch.tensor(np.asarray(array), dtype=self.torch.float32, device=self.device)

    def loss_gap(self, W: Any, H: Any) -> float:
        """Loss above the entropy floor in nats, accumulated in double precision."""
        L = W @ H
        loss = self.torch.logsumexp(L, 0).double() - (self.P * L).sum(0, dtype=self.torch.float64)
        return float((self.pi.double() * loss).sum() / self.pi.double().sum()) - self.entropy

    def geometry(self, W: Any, H: Any) -> PairGeometry:
        """Cosines of tokens (rows of W, mean removed) and of contexts (columns of H); arrays or tensors."""
        W, H = (given if self.torch.is_tensor(given) else self._placed(given) for given in (W, H))
        return self._pairs(W, H[:, self.kept])

    def _pairs(self, W: Any, kept: Any) -> PairGeometry:
        return PairGeometry(
            standardised(cosines(kept.mT)[self._apart]), standardised(cosines(W - W.mean(0))[self._different])
        )

    def rival(self, rival: AbstractRival) -> PairGeometry:
        """The geometry of a rival with given free parameters."""
        if isinstance(rival, AbstractMatrixRival):
            M = rival.rule(self.stats)(ContextStatistics.of(self.stats))
            return self.matrix_geometry(M.toarray(), rival.power)
        fit, kept = rival.fit(self.stats), self.kept.cpu().numpy()
        return self._pairs(self._placed(fit.tokens(np.arange(self.stats.V)).T), self._placed(fit.contexts(kept)))

    def matrix_geometry(self, M: Any, power: float) -> PairGeometry:
        """Tokens ``U Sigma^p`` and contexts ``Sigma^p V^T`` of a matrix whose columns are centred first."""
        return self.geometry(*self.matrix_factors(M, power))

    def matrix_factors(self, M: Any, power: float) -> tuple[Any, Any]:
        """``U Sigma^p`` (V x r) and ``Sigma^p V^T`` (r x m) of a matrix whose columns are centred first, on the device.

        At power 1 their Gram matrices are those of M and of its transpose, so it is returned as it is.
        """
        M = self.torch.as_tensor(np.asarray(M), dtype=self.torch.float64, device=self.device)
        M = M - M.mean(0)
        if power == 1.0:
            return M.float(), M.float()
        values, U = self.torch.linalg.eigh(M @ M.mT)
        s = values.clamp_min(0.0).sqrt()
        kept = s > 1e-6 * s[-1]
        U, s = U[:, kept], s[kept]
        return (U * s**power).float(), ((U.mT @ M) * s[:, None] ** (power - 1.0)).float()


def cosines(rows: Any) -> Any:
    """Cosines of all pairs of rows; 0 with a row of zeros."""
    unit = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-30)
    return unit @ unit.mT


def standardised(values: Any) -> Any:
    """Values with mean 0 and length 1."""
    values = values - values.double().mean().float()
    return values / values.double().norm().float().clamp_min(1e-30)


class BestRivals:
    """Every rival that needs no solver; its free parameters are chosen for given runs, on grids that widen."""

    def __init__(self, text: TextOnDevice, names: Sequence[str] | None = None) -> None:
        known = FitInputs().on(text.stats)
        kinds = [kind for kind in explanation_classes(names) if kind.quick and not kind.ours]
        self.text, self._made = text, dict[AbstractRival, PairGeometry]()
        self.tried = {kind.name: tried for kind in kinds if (tried := list(kind.candidates(known)))}

    def best(self, runs: Sequence[PairGeometry]) -> dict[str, dict[str, Any]]:
        """Each rival's agreement with every run, at the parameters with the best mean, for contexts and tokens."""
        return {name: self._best(tried, runs) for name, tried in self.tried.items()}

    def _best(self, tried: list[AbstractRival], runs: Sequence[PairGeometry]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for item in ITEMS:
            mean = sum(getattr(run, item) for run in runs) / len(runs)
            rival, edge = self._chosen(tried, item, mean)
            found[item] = [self._made[rival].agreement(run)[item] for run in runs]
            if rival.chosen:
                found.setdefault("chosen", {})[item] = rival.chosen
                found.setdefault("edge", {})[item] = edge
        return found

    def _chosen(self, tried: list[AbstractRival], item: str, mean: Any) -> tuple[AbstractRival, str]:
        """The best candidate, and the edge of the grid it lies on: empty where it lies inside.

        A grid is widened while its best value lies on an edge, until that gains next to nothing.
        """
        for _ in range(WIDENED):
            scores = {rival: self._score(rival, item, mean) for rival in tried}
            best = max(tried, key=scores.__getitem__)
            new = [rival for rival in best.beyond(tried) if rival not in scores]
            inside = [score for rival, score in scores.items() if not rival.beyond(tried)]
            if not new or scores[best] <= max(inside, default=-2.0) + WORTH_WIDENING:
                break
            tried += new
        return best, best.chosen if new else ""

    def _score(self, rival: AbstractRival, item: str, mean: Any) -> float:
        if rival not in self._made:
            self._made[rival] = self.text.rival(rival)
        return float((getattr(self._made[rival], item) * mean).sum())


@dataclass(frozen=True, eq=False)
class LogitSpectrum:
    """Singular values of the logits ``W H`` with the mean over tokens removed, and how W carries them.

    where
        s         singular values, falling, r
        carried   ``||W^T u_k||``, r
    """

    s: Float
    carried: Float

    @staticmethod
    def of(W: Any, H: Any) -> LogitSpectrum:
        """From factors on a device, by two small decompositions in double precision."""
        torch = import_torch()
        W = (W - W.mean(0)).double()
        Q, R = torch.linalg.qr(W)
        _, T = torch.linalg.qr(H.double().mT)
        U, s, _ = torch.linalg.svd(R @ T.mT)
        carried = (W.mT @ (Q @ U[:, : s.numel()])).norm(dim=0)
        return LogitSpectrum(s.cpu().numpy(), carried.cpu().numpy())

    @property
    def nuclear_norm(self) -> float:
        """Sum of the singular values."""
        return float(self.s.sum())

    @property
    def split_exponent(self) -> float:
        """Slope of ``log ||W^T u_k||`` against ``log sigma_k``: 1/2 where W and H share them."""
        return split_exponent(self.carried, self.s)
