"""Predictors of the held-out loss: what made-up rows decide, and the margin of given logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from pair_cases import pair_rows
from study_cases import counted_text
from tokengeom_studies.base import Findings
from tokengeom_studies.common.held_out_text import ITEMS, HeldOutText
from tokengeom_studies.common.torch_runs import Reached
from tokengeom_studies.generalisation import CERTIFIED, PREDICTORS, SIMULATED, Generalisation, numbers_of

TRAININGS = [f"training {k}" for k in range(12)]


def judged(sign: float, same_top: float = 0.7, more: Sequence[dict[str, Any]] = ()) -> Findings:
    """Predictors that rise or fall with the held-out loss, or have nothing to do with it."""
    rows: list[dict[str, Any]] = [*more]
    for target in (0.4, 0.2):
        cell = {"text": "t", "target": target}
        noise = np.random.default_rng(3).permutation(12)
        explained = {}
        for k, name in enumerate(TRAININGS):
            x = sign * k if sign else float(noise[k])
            explained[SIMULATED, name] = 0.5 + 0.01 * x
            values = {"held_out": 2.0 + 0.1 * k, "margin": x, "efficiency": x, "right": 0.4, "same_top": same_top}
            rows.append({"kind": "run", **cell, "training": name, "seed": 0, "loss_gap": target, "step": 5, **values})
        rows += pair_rows(explained, cell, items=ITEMS)
        rows.append({"kind": "prediction", **cell, "relative_gap": 1e-3})
    return Generalisation().judge(Generalisation().recipe(), rows)


def decisions(sign: float, same_top: float = 0.7) -> dict[str, str]:
    found = judged(sign, same_top)
    return dict(zip(Generalisation.hypotheses, found.tables["hypotheses"]["answer"], strict=True))


@pytest.mark.parametrize(("sign", "answer"), [(-1.0, "yes"), (1.0, "no"), (0.0, "undecided")])
def test_the_sign_of_the_rank_correlation_decides(sign: float, answer: str) -> None:
    found = decisions(sign)
    assert {found[name] for name in PREDICTORS} == {answer}


def test_inefficient_trainings_are_left_out() -> None:
    table = judged(0.1).tables["predictors"]
    without = next(name for name in table if name.startswith("without"))
    assert without == "without training 0, training 1, training 2, training 3"
    assert table["predictor"] == [*PREDICTORS, "seeds agree", "steps"]
    assert table["all trainings"][:3] == table[without][:3] == ["1.000 [1.000, 1.000]"] * 3


@pytest.mark.parametrize(
    ("certified", "answers"), [(0.7, ["yes", "yes"]), (0.67, ["no", "no"]), (0.69, ["yes", "yes"])]
)
def test_top_tokens_of_proven_predictions_decide(certified: float, answers: list[str]) -> None:
    cell = {"kind": "top", "text": "t", "target": 0.2, "seed": 0, SIMULATED: 0.7}
    more = [{**cell, "training": name, CERTIFIED: certified} for name in TRAININGS]
    again = [{**row, CERTIFIED: 0.1} for row in more]
    table = judged(1.0, more=[*more, *again]).tables
    assert table["hypotheses"]["answer"][-2:] == answers
    assert table["top tokens"][CERTIFIED] == [pytest.approx(certified)]
    assert table["top tokens"]["as often"] == [f"{12 * (answers[1] == 'yes')} of 12"]


def test_top_tokens_decide() -> None:
    assert (decisions(1.0)["top token"], decisions(1.0, 0.5)["top token"]) == ("yes", "no")


def test_the_margin_is_that_of_the_worst_pair_of_each_context() -> None:
    text = HeldOutText.drawn(counted_text(), 0.2, "cpu")
    random = np.random.default_rng(0)
    W, H = random.normal(size=(text.stats.V, 4)), random.normal(size=(4, text.stats.m))
    read = Reached(0.2, 0.2, 1, 0.0, torch.tensor(W, dtype=torch.float32), torch.tensor(H, dtype=torch.float32))
    found = numbers_of(text, read, 2.0, {SIMULATED: torch.zeros(text.stats.m, dtype=torch.int64)})
    L, P = W @ H, text.stats.P.toarray()
    margins = [L[P[:, j] > 0, j].min() - L[P[:, j] == 0, j].max() for j in np.flatnonzero(text.kept)]
    C = W - W.mean(0)
    length = np.sqrt((C**2).sum(1).mean() * (H[:, text.kept] ** 2).sum(0).mean())
    assert found["margin"] == pytest.approx(np.mean(margins) / length, rel=1e-4)
    nuclear = np.linalg.norm(C @ H[:, text.kept], "nuc")
    assert found["efficiency"] == pytest.approx(2.0 / nuclear, rel=1e-4)
