"""A model whose hidden states are sums of vectors of its context's tokens, fitted by another library."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiny_models import ROWS, save_tokenizer, sentences
from tokengeom.core.numerics import Float
from tokengeom.models.language_model import AbstractLanguageModel, language_model
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics

L = 3
STRENGTH = 2e-3
"""Weight of the squared norms: the sum of both is smallest at the smallest nuclear norm of their product."""


@dataclass(frozen=True, eq=False)
class AdditiveModel:
    """``h(x) = sum_i A[i, x_i]`` and logits ``W h``: one vector per token and place, V rows of W."""

    stats: NextTokenStatistics
    W: Float
    A: Float
    tokenizer: Path

    @property
    def H(self) -> Float:
        """States of the contexts, d x m."""
        assert self.stats.contexts is not None
        return np.asarray(self.states(np.asarray(self.stats.contexts)).T)

    def states(self, rows: Any) -> Float:
        """One state per row of tokens."""
        return np.asarray(sum(self.A[place, np.asarray(rows)[:, place]] for place in range(L)))

    def language_model(self) -> AbstractLanguageModel:
        """The model as one in memory."""
        return language_model(self.states, head=self.W, tokenizer=self.tokenizer, name="additive")


def additive_model(folder: Path, documents: list[str] | None = None) -> AdditiveModel:
    """Tokens and places fitted with weight decay by PyTorch's L-BFGS."""
    import torch

    save_tokenizer(folder)
    tokenizer = folder / "tokenizer.json"
    stats = count(documents or sentences(), context=L, tokenizer=tokenizer, vocabulary_size=ROWS)
    rows, P, pi = (torch.tensor(np.asarray(x)) for x in (stats.contexts, stats.P.toarray(), stats.pi))
    rows, generator = rows.long(), torch.Generator().manual_seed(0)
    W, A = (
        (0.3 * torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()
        for shape in ((ROWS, 20), (L, ROWS, 20))
    )
    optimizer = torch.optim.LBFGS(
        [W, A], max_iter=400, tolerance_grad=1e-9, tolerance_change=0, history_size=30, line_search_fn="strong_wolfe"
    )

    def closure() -> Any:
        optimizer.zero_grad()
        logits = sum(A[place, rows[:, place]] for place in range(L)) @ W.T
        loss = -(pi * (P.T * torch.log_softmax(logits, dim=1)).sum(dim=1)).sum()
        loss = loss + STRENGTH / 2 * ((W**2).sum() + (A**2).sum())
        loss.backward()
        return loss

    optimizer.step(closure)
    return AdditiveModel(stats, W.detach().numpy(), A.detach().numpy(), tokenizer)
