"""Corrected agreement of two kinds of training, and their intervals, against closed forms and made-up geometries."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from study_cases import counted_text
from tokengeom import NextTokenStatistics
from tokengeom.extending import InputError, Network
from tokengeom_studies.common.measured import Rows
from tokengeom_studies.common.variants import (
    Agreements,
    Variant,
    add_pairs,
    silence_unknown,
    text_named,
)

RECIPE = {"dim": 8, "learning_rate": 1e-2, "gaps": [0.5], "seconds": 60}


def geometries(seeds: int, signal: float, seed: int, pairs: int = 20_000) -> list[dict[str, torch.Tensor]]:
    """Replicates with a common part of the given share of their variance, the same for every kind."""
    common = np.random.default_rng(0).normal(size=pairs)
    random = np.random.default_rng(seed)
    found = []
    for _ in range(seeds):
        x = math.sqrt(signal) * common + math.sqrt(1 - signal) * random.normal(size=pairs)
        x -= x.mean()
        found.append({item: torch.as_tensor(x / np.linalg.norm(x)) for item in ("contexts", "tokens")})
    return found


def agreements(**kinds: list[dict[str, torch.Tensor]]) -> Agreements:
    rows = Rows()
    add_pairs(rows, {"text": "t"}, kinds)
    return Agreements(rows.rows, text="t")


def test_noise_is_corrected_for() -> None:
    of = agreements(a=geometries(5, 0.6, 1), b=geometries(4, 0.3, 2), c=geometries(1, 0.5, 3))
    assert of.reproducible("a", "contexts") == pytest.approx(0.6, abs=0.02)
    assert of.reproducible("c", "contexts") == 1.0
    for pair in (("a", "b"), ("b", "a")):
        assert of.value(*pair, "contexts") == pytest.approx(1.0, abs=0.03)
    # An explanation with one replicate keeps its own noise.
    assert of.value("c", "a", "tokens") == pytest.approx(math.sqrt(0.5), abs=0.03)
    assert of.value("a", "a", "contexts") == pytest.approx(1.0)
    assert of.lead("b", "c", "a", "contexts").mean == pytest.approx(1.0 - math.sqrt(0.5), abs=0.03)


def test_pairs_with_the_same_seed_are_left_out() -> None:
    same = geometries(3, 0.5, 1)
    of = agreements(a=same, b=same)
    assert of.value("a", "b", "contexts") == pytest.approx(1.0)
    assert of.value("a", "b", "contexts", left=0) == pytest.approx(1.0)


def test_nothing_reproducible_and_nothing_known_are_nan() -> None:
    of = agreements(a=geometries(3, 0.0, 1), b=geometries(3, 0.5, 2))
    assert math.isnan(of.value("a", "b", "contexts"))
    assert math.isnan(of.value("b", "unknown", "contexts"))


def test_a_simulation_has_the_choices_of_its_network() -> None:
    network = Variant("transformer", {"layers": 2, "dim": 4, "learning_rate": 0.3}, norm="none", start=0.5)
    assert network.simulation("self") == Variant(
        "tied", {"dim": 4, "learning_rate": 0.3, "ties": "self", "last_norm": False}, start=0.5
    )  # fmt: skip


def network_of(variant: Variant, stats: NextTokenStatistics) -> Network:
    network = variant.begin(stats, RECIPE, 0).network
    assert network is not None
    return network


@pytest.mark.parametrize("model", ["mlp", "tied"])
def test_the_start_is_scaled_and_the_norm_is_not(model: str) -> None:
    stats = counted_text()
    settings = {"ties": "self", "last_norm": True} if model == "tied" else {}
    plain, scaled = (
        dict(network_of(variant, stats).decoder.named_parameters())
        for variant in (Variant(model, settings), Variant(model, settings, start=0.5, head=3.0))
    )
    for name, parameter in plain.items():
        factor = 1.0 if parameter.ndim != 2 else 1.5 if name == "weight" else 0.5
        torch.testing.assert_close(scaled[name], factor * parameter)


def test_features_that_only_held_out_contexts_have_are_zero() -> None:
    stats = counted_text()
    kept = np.arange(stats.m) != 3
    network = network_of(Variant("tied", {"ties": "positions+self", "last_norm": True}), stats)
    silence_unknown(network, kept)
    lengths = network.decoder.body.features.weight.norm(dim=1).detach().numpy()
    known = np.unique(network.inputs.rows[kept])
    only = np.setdiff1d(network.inputs.rows[3], known)
    assert only.size
    assert np.all(lengths[only] == 0.0)
    assert np.all(lengths[known[known < lengths.size - 1]] > 0.0)


def test_a_text_that_is_not_there_is_refused() -> None:
    with pytest.raises((InputError, OSError)):
        text_named("nowhere", {"device": "cpu"})
