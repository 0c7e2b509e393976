"""Equal lengths: what made-up agreements decide, and that vectors have equal lengths where they should."""

from __future__ import annotations

import pytest
import torch

from pair_cases import pair_rows
from study_cases import counted_text
from tokengeom import TrainingSettings
from tokengeom_studies.equal_lengths import NORMS, SPHERES, EqualLengths, OnSpheres


def decisions(leads: dict[str, float], best: str = "", text: str = "t") -> dict[str, str]:
    """Leads of gamma_2 by training; ``best`` is ahead of all norms under gradient descent."""
    pairs: dict[tuple[str, str], float] = {}
    for training, lead in leads.items():
        values = {"nuclear": 0.8, "gamma_2": 0.8 + lead, "longest context": 0.7, "longest token": 0.7}
        if best and training.startswith("gd"):
            values[NORMS[training.split(", ")[1]] if best == "own" else best] = 0.99
        pairs |= {(norm, training): value for norm, value in values.items()}
    run = {"kind": "run", "text": text, "seed": 0, "loss_gap": 0.05, "target": 0.05, "step": 9}
    spread = {"spread of tokens": 0.1, "spread of contexts": 0.1}
    rows = [{"kind": "text", "text": text}, *pair_rows(pairs, {"text": text}, single=tuple(NORMS.values()))]
    for training in leads:
        optimizer, spheres = training.split(", ")
        rows.append({**run, **spread, "optimizer": optimizer, "spheres": spheres})
    facts = {"loss_gap": 0.05, "norm_value": 1.0, "relative_gap": 1e-3, "rank": 3}
    rows += [{"kind": "prediction", "text": text, "norm": norm, **facts} for norm in NORMS.values()]
    study = EqualLengths()
    found = study.judge(study.recipe(), rows)
    return dict(zip(study.hypotheses, found.tables["hypotheses"]["answer"], strict=True))


LEADS = {"gd, free": -0.02, "gd, contexts": 0.0, "gd, tokens": 0.0, "gd, both": 0.02, "adam, free": 0.03,
         "adam, both": 0.04}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {"free": "yes", "lengths": "yes", "more than half": "yes", "every optimizer": "yes"}),
        ({"gd, free": 0.01}, {"free": "no"}),
        ({"gd, both": -0.01}, {"lengths": "no", "more than half": "no"}),
        ({"gd, both": -0.03, "adam, both": 0.02}, {"every optimizer": "no"}),
    ],
)
def test_each_lead_decides(changed: dict[str, float], expected: dict[str, str]) -> None:
    found = decisions(LEADS | changed)
    assert {name: found[name] for name in expected} == expected


def test_the_best_norm_decides() -> None:
    assert decisions(LEADS, best="own")["one side"] == "yes"
    assert decisions(LEADS, best="longest context")["one side"] == "no"


@pytest.mark.parametrize(("lead", "answer"), [(0.02, "yes"), (-0.01, "no")])
def test_more_dimensions_decide_their_own_hypothesis_alone(lead: float, answer: str) -> None:
    found = decisions(LEADS | {"gd, both": lead}, text="t, d = 256")
    assert found["more dimensions"] == answer
    assert found["more than half"] == "undecided"


@pytest.mark.parametrize("spheres", SPHERES)
def test_vectors_of_a_sphere_have_equal_lengths(spheres: str) -> None:
    run = OnSpheres(counted_text(), TrainingSettings(model="ufm", dim=6, optimizer="adam", learning_rate=0.1))
    run.equal = SPHERES[spheres]
    run.advance(3)
    W, H = run.factors()
    for side, lengths in (("tokens", W.norm(dim=1)), ("contexts", H.norm(dim=0))):
        assert (float(lengths.std() / lengths.mean()) < 1e-6) == (side in SPHERES[spheres])
    assert torch.isfinite(W @ H).all()
