"""Agreement of a run's contexts, or tokens, with those of L_mm and of the proxy: SIM, Pearson, Spearman and CKA.

Every number depends on the items only through cosines or Gram matrices, so it does not change under the rotation that W
and H are known up to. Tokens come with their mean removed, so a softmax shift does not change it either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.geometry.agreement import AbstractNumbers, Better
from tokengeom.geometry.resampling import PairAgreement, RankAgreement
from tokengeom.geometry.similarity import directional_similarity, linear_cka, with_direction
from tokengeom.numerics import cosines, unit_columns

if TYPE_CHECKING:
    from tokengeom.numerics import Float, Int

PAIR_ITEMS = 1000
"""Items up to which all pairs are resampled; of more, this many are drawn at random (8 MB per matrix)."""
RANK_ITEMS = 500
"""The same for Spearman correlations, whose resampling cannot be batched: 125,000 pairs, a few ms per draw."""
KINDS = ("similarity", "cka", "pearson", "spearman")


@dataclass(frozen=True, eq=False)
class SimilarityNumbers(AbstractNumbers):
    """Numbers ``{prefix}{item}_{kind}``, such as ``context_similarity`` and ``proxy_token_pearson``.

    where
        items     "contexts" or "tokens"
        run       d x n, the run's items as columns
        targets   prefix -> r x n, the predicted items; those without a direction in some target are left out
    """

    items: str
    run: Float
    targets: Mapping[str, Float]

    @cached_property
    def kept(self) -> Int:
        """Items that have a direction in every target."""
        has = [with_direction(unit_columns(target)) for target in self.targets.values()]
        return np.flatnonzero(np.logical_and.reduce(has))

    @cached_property
    def sample(self) -> Int:
        """Items whose pairs are resampled: all, or ``PAIR_ITEMS`` drawn with a fixed seed."""
        if self.kept.size <= PAIR_ITEMS:
            return self.kept
        return np.sort(np.random.default_rng(0).choice(self.kept, PAIR_ITEMS, replace=False))

    @property
    def size(self) -> int:
        """Number of items to draw from."""
        return int(self.sample.size)

    @property
    def better(self) -> Mapping[str, Better]:
        """Higher for all of them: 1 is best."""
        return {self._name(prefix, kind): "higher" for prefix in self.targets for kind in KINDS}

    def values(self) -> Mapping[str, float]:
        """SIM and CKA over all items; Pearson and Spearman over the sampled ones."""
        if self.size < 2:
            return dict.fromkeys(self.better, float("nan"))
        found = dict(super().values())
        for prefix, target in self.targets.items() if self.size < self.kept.size else ():
            mine, theirs = self.run[:, self.kept], target[:, self.kept]
            found[self._name(prefix, "similarity")] = directional_similarity(unit_columns(theirs), unit_columns(mine))
            found[self._name(prefix, "cka")] = linear_cka(mine, theirs)
        return found

    def resampled(self, draws: Float) -> Mapping[str, Float]:
        """Each number in each resample."""
        few = draws[:, : self._ranked.n]
        found = {self._name(prefix, "spearman"): x for prefix, x in self._ranked.resampled(few).items()}
        for prefix, numbers in self._pairs.resampled(draws).items():
            found |= {self._name(prefix, kind): x for kind, x in numbers.items()}
        return found

    def permuted(self, orders: Int) -> Mapping[str, Float]:
        """Each number under each permutation."""
        # The ranks of the first few entries are again a uniform permutation.
        few = np.argsort(np.argsort(orders[:, : self._ranked.n], axis=1), axis=1)
        found = {self._name(prefix, "spearman"): x for prefix, x in self._ranked.permuted(few).items()}
        for prefix, numbers in self._pairs.permuted(orders).items():
            found |= {self._name(prefix, kind): x for kind, x in numbers.items()}
        return found

    @cached_property
    def _pairs(self) -> PairAgreement:
        run = self.run[:, self.sample]
        chosen = {prefix: target[:, self.sample] for prefix, target in self.targets.items()}
        return PairAgreement(cosines(run), run.T @ run, {p: (cosines(t), t.T @ t) for p, t in chosen.items()})

    @cached_property
    def _ranked(self) -> RankAgreement:
        # Drawn at random, because contexts are sorted and the first ones may be alike. Draws are exchangeable, so these
        # items may use the first columns of the draws.
        few = self.sample
        if few.size > RANK_ITEMS:
            few = np.random.default_rng(1).choice(few, RANK_ITEMS, replace=False)
        return RankAgreement.of(
            cosines(self.run[:, few]), {prefix: cosines(t[:, few]) for prefix, t in self.targets.items()}
        )

    def _name(self, prefix: str, kind: str) -> str:
        return f"{prefix}{self.items.removesuffix('s')}_{kind}"
