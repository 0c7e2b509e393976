"""A run compared with predictions with and without ties: frequent contexts, rare ones, and tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from tied_models import AdditiveModel
from tokengeom.comparison.agreement import BY_FREQUENCY
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.inputs import gather
from tokengeom.comparison.model_states import ModelStates
from tokengeom.comparison.target import TIED, ties_change, ties_sentences
from tokengeom.core.numerics import Float, cosines
from tokengeom.theory.tied import TiedPrediction

PARTS = ("frequent_context_agreement", "rare_context_agreement", "token_agreement")


@pytest.fixture(scope="module")
def compared(additive: AdditiveModel) -> Comparison:
    states = additive.language_model()
    gap = tg.compare(tg.predict(additive.stats), states, permutations=20, at_loss=False).loss_gap
    tied = tg.predict(additive.stats, loss_gap=gap, ties="positions", tolerance=1e-4)
    return tg.compare(tied, states, permutations=20)


def test_states_that_are_sums_over_tokens_are_explained_by_ties_and_not_without(compared: Comparison) -> None:
    with_ties, without = compared.targets["tied"], compared.targets["nuclear"]
    assert compared.target is TIED
    assert [with_ties[name].value for name in PARTS] == pytest.approx([1.0, 1.0, 1.0], abs=0.01)
    assert without["frequent_context_agreement"].value < 0.9
    assert without["rare_context_agreement"].value < 0.8
    said = [reason for reason in compared.reasons if "with ties and" in reason]
    assert [sentence.partition(":")[0] for sentence in said] == ["Frequent contexts", "Rare contexts", "Tokens"]
    assert all("clearly better with ties" in sentence for sentence in said[:2])


def test_numbers_are_correlations_of_cosines_on_these_contexts(additive: AdditiveModel, compared: Comparison) -> None:
    assert compared.compared is not None
    prediction, run = compared.compared
    assert isinstance(prediction, TiedPrediction)
    assert isinstance(run, ModelStates)
    inputs = gather([run], prediction, compared.at, None)
    parts, (said,) = inputs.by_frequency()
    counts = additive.stats.context_counts
    frequent, rare = (parts[items] for items in BY_FREQUENCY)
    assert not set(frequent) & set(rare)
    assert frequent.size == rare.size == additive.stats.m // 2
    assert counts[frequent].min() >= counts[rare].max()
    assert f"at least {counts[frequent].min()} each" in said
    assert said in compared.limitations

    support = [tuple(np.flatnonzero(column)) for column in additive.stats.P.toarray().T]

    def correlation(contexts: Any, H: Float) -> float:
        x, y = cosines(additive.H[:, contexts]), cosines(H[:, contexts])
        pairs = [(i, j) for i in range(len(contexts)) for j in range(i)]
        apart = [(i, j) for i, j in pairs if support[contexts[i]] != support[contexts[j]]]
        return float(np.corrcoef([x[pair] for pair in apart], [y[pair] for pair in apart])[0, 1])

    (untied,) = compared.at
    for key, H in (("tied", prediction.H), ("nuclear", untied.H)):
        for name, contexts in zip(PARTS, (frequent, rare), strict=False):
            assert compared.targets[key][name].value == pytest.approx(correlation(contexts, H), abs=1e-6)


def test_with_a_feature_per_context_ties_change_nothing(additive: AdditiveModel) -> None:
    tied = tg.predict(additive.stats, loss_gap=0.3, ties="self", tolerance=1e-5)
    found = tg.compare(tied, additive.language_model(), permutations=20, tolerance=1e-5)
    for name in PARTS:
        assert found.targets["tied"][name].value == pytest.approx(found.targets["nuclear"][name].value, abs=2e-3)
    assert not any("clearly" in sentence for sentence in ties_sentences(found.rows))


def test_the_untied_prediction_is_left_out_as_asked_and_where_it_would_take_long(
    additive: AdditiveModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tied = tg.predict(additive.stats, loss_gap=0.5, ties="positions")
    alone = tg.compare(tied, additive.language_model(), permutations=0, at_loss=False)
    assert set(alone.targets) == {"tied", "counts"}
    assert ties_sentences(alone.rows) == []
    for limit in ("AT_LOSS_ENTRIES", "AT_HIGH_LOSS_ENTRIES"):
        monkeypatch.setattr(f"tokengeom.comparison.target.{limit}", {"nuclear": 10, "gamma2": 10})
    large = tg.compare(tied, additive.language_model(), permutations=0)
    assert any(sentence.startswith("What ties change is not known") for sentence in large.limitations)
    assert any("and the run at" in sentence for sentence in large.limitations), "another loss than the run's"


def test_a_simulation_beside_the_untied_prediction_is_judged_on_frequent_and_rare_contexts(
    additive: AdditiveModel,
) -> None:
    run = tg.train(additive.stats, "ufm", dim=16, steps=300, optimizer="adamw", learning_rate=0.02)
    simulated = tg.simulate(additive.stats, like=run, ties="positions+self", replicates=2)
    untied = tg.predict(additive.stats, loss_gap=run.loss_gap)
    compared = tg.compare(simulated, run, at=untied, permutations=0)
    for target in ("simulated", "nuclear"):
        assert set(PARTS) <= set(compared.targets[target])


def test_it_is_saved_and_computed_again(additive: AdditiveModel, tmp_path: Path) -> None:
    run = tg.train(additive.stats, "ufm", dim=16, steps=300, optimizer="adamw", learning_rate=0.02)
    for name, result in (("stats", additive.stats), ("run", run)):
        result.save(tmp_path / name)
    tg.predict(additive.stats, loss_gap=run.loss_gap, ties="positions+pairs+self").save(tmp_path / "tied")
    tg.compare(tmp_path / "tied", tmp_path / "run", permutations=20).save(tmp_path / "comparison")
    again = tg.load(tmp_path / "comparison")
    assert isinstance(again, Comparison)
    assert again.target is TIED
    checked = tg.verify(tmp_path / "comparison")
    assert checked.ok, checked.failed
    assert "computed again, the sentences on norm and ties are the same" in checked.checked
    forged = tuple(replace(row, items="tokens") if row.items == "rare contexts" else row for row in again.rows)
    replace(again, rows=forged).save(tmp_path / "forged")
    assert not tg.verify(tmp_path / "forged").ok


def test_a_change_is_clear_where_its_interval_is_beyond_the_accuracy_of_solvers() -> None:
    from tokengeom.comparison.explained import Lead

    assert ties_change(Lead(0.2, 0.1, 0.3)).startswith("clearly better")
    assert ties_change(Lead(-0.2, -0.3, -0.1)).startswith("clearly worse")
    assert ties_change(Lead(0.2, -0.1, 0.3)).startswith("no clear difference")
    assert ties_change(Lead(5e-4, 4e-4, 6e-4)).startswith("no clear difference")
