"""Which norm a run is judged in."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tokengeom.geometry.agreement import Agreement
from tokengeom.geometry.inputs import decays_in_gradient, optimizer_of
from tokengeom.geometry.norms import choose_norm, norm_of, norm_sentence

BOTH = ["nuclear", "gamma2"]


def run(optimizer: object, decay: float = 0.0) -> object:
    return SimpleNamespace(settings={"optimizer": optimizer, "weight_decay": decay})


@pytest.mark.parametrize(
    ("one", "norm"),
    [
        (run("gd"), "nuclear"),
        (run("gd", 1e-3), "nuclear"),
        (run({"name": "adamw", "beta1": 0.9}, 0.1), "gamma2"),
        (run("adam"), "gamma2"),
        (run("adam", 1e-3), None),
        (run("spectral"), None),
        (object(), None),
    ],
)
def test_the_norm_goes_with_optimizer_and_decay(one: object, norm: str | None) -> None:
    assert norm_of(one) == norm


def test_without_a_known_norm_the_one_that_agrees_better_is_taken() -> None:
    assert choose_norm("gamma2", BOTH, dict) == "gamma2"
    assert choose_norm(None, BOTH, lambda: {"nuclear": 0.5, "gamma2": 0.6}) == "gamma2"
    assert choose_norm(None, BOTH, lambda: {"nuclear": float("nan"), "gamma2": -0.6}) == "gamma2"
    assert choose_norm("gamma2", ["nuclear"], dict) == "nuclear"
    assert choose_norm("gamma2", [], dict) is None


def test_the_sentence_says_why_and_gives_both() -> None:
    found = {f"{p}{i}_agreement": Agreement(0.5) for p in ("nuclear_", "gamma2_") for i in ("context", "token")}
    assert "goes with the optimizer gd" in norm_sentence("nuclear", run("gd"), found)[0]
    assert "is not known; of both" in norm_sentence("nuclear", object(), found)[0]
    assert "adam with weight decay" in norm_sentence("nuclear", run("adam", 0.1), found)[0]
    assert "the spectral norm of unconstrained features" in norm_sentence("gamma2", run("spectral"), found)[0]
    assert norm_sentence(None, run("gd"), found) == []
    assert norm_sentence("nuclear", run("gd"), {"nuclear_context_agreement": Agreement(0.5)}) == []


def test_settings_of_a_run_are_read_where_they_are_known() -> None:
    assert optimizer_of(SimpleNamespace(settings=None)) is None
    assert not decays_in_gradient(run("adamw", 0.1))
    assert decays_in_gradient(run("ngd", 0.1))
