"""Sparse attention: the rule against NumPy, what a state depends on, and every outcome on made-up rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pair_cases import pair_rows
from tokengeom import NextTokenStatistics
from tokengeom.extending import NetworkShape, architecture_named
from tokengeom_studies.sparse_attention import (
    ALL_FEATURES,
    ATTENTIONS,
    FULL,
    LAST,
    LAST_FEATURES,
    NARROW,
    NORM,
    WIDE,
    SparseAttention,
    SparseTransformer,
    with_last_tokens,
)

SHAPE = NetworkShape(tokens=9, length=5, dim=8, layers=2, heads=2)


@pytest.mark.parametrize(("window", "top"), [(0, 0), (2, 0), (0, 2), (3, 1)])
def test_attention_by_a_rule_is_that_of_a_loop(window: int, top: int) -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 4, generator=torch.Generator().manual_seed(0)).unbind()
    found, _ = SparseTransformer(window, top).attend(SimpleNamespace(), q, k, v, None, scaling=0.5)
    for head in range(2):
        for i in range(5):
            seen = list(range(max(0, i - window + 1) if window else 0, i + 1))
            score = {j: 0.5 * float(q[0, head, i] @ k[0, head, j]) for j in seen}
            kept = sorted(seen, key=lambda j: -score[j])[: top or None]
            weight = np.exp([score[j] for j in kept])
            expected = sum(w * v[0, head, j] for w, j in zip(weight / weight.sum(), kept, strict=True))
            assert found[0, i, head].numpy() == pytest.approx(expected.numpy(), abs=1e-5)


def state(attention: SparseTransformer, tokens: list[int]) -> torch.Tensor:
    torch.manual_seed(0)
    body = attention.body(SHAPE)
    with torch.no_grad():
        return body(torch.tensor([tokens]))[0, -1]


def test_full_attention_is_that_of_the_transformer() -> None:
    torch.manual_seed(0)
    body = architecture_named("transformer").body(SHAPE)
    with torch.no_grad():
        expected = body(torch.tensor([[1, 2, 3, 4, 5]]))[0, -1]
    assert state(SparseTransformer(), [1, 2, 3, 4, 5]).numpy() == pytest.approx(expected.numpy(), abs=1e-5)


@pytest.mark.parametrize(
    ("rule", "reads"), [(SparseTransformer(window=2), 3), (SparseTransformer(window=3), 5), (SparseTransformer(), 5)]
)
def test_two_layers_read_one_token_less_than_twice_the_window(rule: SparseTransformer, reads: int) -> None:
    base = state(rule, [1, 2, 3, 4, 5])
    changed = [state(rule, [7 if i == place else i + 1 for i in range(5)]) for place in range(5)]
    assert [bool((x - base).abs().max() > 1e-6) for x in changed] == [place >= 5 - reads for place in range(5)]


def test_only_the_last_tokens_of_contexts_are_kept() -> None:
    stats = NextTokenStatistics.from_counts(np.eye(2, dtype=int), contexts=np.array([[1, 2, 3], [4, 2, 3]]))
    assert np.array_equal(np.array(with_last_tokens(stats, 2).contexts), [[2, 3], [2, 3]])
    assert (with_last_tokens(stats, 2).P - stats.P).nnz == 0


def decisions(wide: float, narrow: float, own: float, other: float, norm: float) -> dict[str, str]:
    pairs = {(FULL, name): wide for name in WIDE} | {(FULL, name): narrow for name in NARROW} | {NARROW: 0.9}
    for name in ATTENTIONS:
        mine, others = (LAST_FEATURES, ALL_FEATURES) if name in NARROW else (ALL_FEATURES, LAST_FEATURES)
        pairs |= {(name, mine): own if name != FULL else 0.9, (name, others): other}
        pairs |= {(name, NORM): norm if name in NARROW else 0.8}
    rows = [{"kind": "finished", "text": "t", "tokens": 5}, *pair_rows(pairs, {"text": "t"})]
    rows += [{"kind": "run", "text": "t", "training": x, "loss_gap": 0.15, "step": 9} for x in ATTENTIONS]
    rows.append({"kind": "prediction", "text": "t", "relative_gap": 1e-3})
    study = SparseAttention()
    found = study.judge(study.recipe("paper"), rows)
    return dict(zip(study.hypotheses, map(str, found.tables["hypotheses"]["answer"]), strict=True))


def test_every_outcome() -> None:
    assert set(decisions(0.97, 0.8, 0.9, 0.7, 0.7).values()) == {"yes"}
    assert set(decisions(0.9, 0.95, 0.6, 0.95, 0.85).values()) == {"no"}
    assert LAST in NARROW
