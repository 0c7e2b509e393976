"""What a run is compared with: names of its numbers, and the norm that it is judged in."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.target import (
    AT_LOSS,
    LIMIT,
    MEANINGS,
    TARGETS,
    choose_norm,
    decays_in_gradient,
    flat_names,
    meaning,
    norm_of,
    norm_sentence,
    optimizer_of,
    predictions_at,
    split_name,
    tables_of,
)
from tokengeom.core.errors import ProblemError
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.loss_path import LossPath
from tokengeom.theory.predict import predict
from training_problems import random_statistics

BOTH = ["nuclear", "gamma2"]


def run(optimizer: object, decay: float = 0.0, **more: object) -> object:
    return SimpleNamespace(settings={"optimizer": optimizer, "weight_decay": decay, **more})


def test_names_of_numbers_are_taken_apart_as_they_were_made() -> None:
    for key, target in TARGETS.items():
        for number in MEANINGS:
            assert split_name(target.named(number)) == (key, number)
    for number in MEANINGS:
        assert split_name(number) == ("", number), "a number of the run alone"
    assert LIMIT.named("context_similarity") == "limit_context_similarity"


def test_numbers_are_flat_in_one_order_and_tables_have_them_back() -> None:
    names = [
        ("", "collapse"),
        ("limit", "logit_cosine"),
        ("gamma2", "logit_cosine"),
        ("limit", "context_agreement"),
    ]
    numbers = {name: Agreement(float(k)) for k, name in enumerate(names)}
    flat = flat_names(numbers)
    assert list(flat) == ["gamma2_logit_cosine", "limit_context_agreement", "limit_logit_cosine", "collapse"]
    tables = tables_of(flat)
    assert {(key, number): one for key, table in tables.items() for number, one in table.items()} == numbers


def test_a_meaning_says_what_the_run_is_compared_with() -> None:
    assert meaning("limit_context_agreement").startswith("in the limit of training: correlation")
    assert meaning("collapse") == MEANINGS["collapse"]
    assert {target.norm for target in AT_LOSS.values()} == {*BOTH}


@pytest.mark.parametrize(
    ("one", "norm"),
    [
        (run("gd"), "nuclear"),
        (run("gd", 1e-3), "nuclear"),
        (run({"name": "adamw", "beta1": 0.9}, 0.1), "gamma2"),
        (run("adam"), "gamma2"),
        (run("adam", 1e-3), None),
        (run("spectral"), None),
        (run("gd", model="ufm"), "nuclear"),
        (run("gd", model="transformer"), None),
        (run("ngd", 1e-3, model="mlp"), None),
        (run("adamw", model="transformer"), "gamma2"),
        (object(), None),
    ],
)
def test_the_norm_goes_with_optimizer_and_decay(one: object, norm: str | None) -> None:
    assert norm_of(one) == norm


def test_without_a_known_norm_half_of_the_supports_choose() -> None:
    run, noise = np.random.default_rng(0).standard_normal((2, 4, 60))
    groups, kept = np.repeat(np.arange(30), 2), np.arange(60)
    for norm, H in (("nuclear", {"nuclear": run, "gamma2": noise}), ("gamma2", {"nuclear": noise, "gamma2": run})):
        chosen, judged, said = choose_norm(None, H, run, groups, kept)
        assert (chosen, np.unique(groups[judged]).size, len(said)) == (norm, 15, 1)
    assert choose_norm(None, {"nuclear": noise, "gamma2": run}, run, groups, kept[:38])[0] == "nuclear", "too few"
    assert choose_norm("gamma2", H, run, groups, kept)[0] == "gamma2"
    assert choose_norm("gamma2", {"nuclear": run}, run, groups, kept)[0] == "nuclear"
    assert choose_norm("gamma2", {}, run, groups, kept)[0] is None


def test_the_sentence_says_why_and_gives_both() -> None:
    found = {key: {f"{item}_agreement": Agreement(0.5) for item in ("context", "token")} for key in BOTH}
    assert "goes with the optimizer gd" in norm_sentence("nuclear", run("gd"), found)[0]
    assert "is not known; the verdict is about the nuclear norm" in norm_sentence("nuclear", object(), found)[0]
    assert "adam with weight decay" in norm_sentence("nuclear", run("adam", 0.1), found)[0]
    assert "the spectral norm of unconstrained features" in norm_sentence("gamma2", run("spectral"), found)[0]
    assert "0.50 for contexts" in norm_sentence("nuclear", run("gd"), found)[0]
    by_support = {key: {**numbers, "support_agreement": Agreement(0.7)} for key, numbers in found.items()}
    assert "0.70 for contexts and 0.50 for tokens" in norm_sentence("nuclear", run("gd"), by_support)[0]
    assert norm_sentence(None, run("gd"), found) == []
    assert norm_sentence("nuclear", run("gd"), {"nuclear": {"context_agreement": Agreement(0.5)}}) == []


def test_settings_of_a_run_are_read_where_they_are_known() -> None:
    assert optimizer_of(SimpleNamespace(settings=None)) is None
    decays = {name: decays_in_gradient(run(name, 0.1)) for name in ("gd", "adam", "adamw", "spectral")}
    assert decays == {"gd": True, "adam": True, "adamw": False, "spectral": False}
    assert decays_in_gradient(run("an optimizer of another library", 0.1))
    assert decays_in_gradient(run("ngd", 0.1))


def test_a_norm_in_which_the_prediction_fails_is_missing_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    at = LossPath.at

    def fails(self: LossPath, gap: float, progress: AbstractProgress) -> LossPrediction:
        if self.settings.norm == "gamma2":
            raise ProblemError("The search ended early.")
        return at(self, gap, progress)

    monkeypatch.setattr(LossPath, "at", fails)
    prediction = predict(random_statistics(0), spread_solves=0)
    assert isinstance(prediction, FeaturePrediction)
    found, notes = predictions_at(0.1, prediction, None, 1e-3, SilentProgress())
    assert [one.norm for one in found] == ["nuclear"]
    assert notes == ["The prediction at the loss reached failed in the gamma_2 norm: The search ended early."]
