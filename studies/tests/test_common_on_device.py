"""Agreement, rivals and spectra on a torch device, compared with those of `compare`."""

from __future__ import annotations

import numpy as np
import pytest

from study_cases import counted_text
from tokengeom import Factors
from tokengeom.comparison import logit_numbers
from tokengeom.comparison.explanations.log_counts import LogCounts
from tokengeom.comparison.explanations.simplex_frame import SimplexFrame
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.training.objective import SoftLabels
from tokengeom_studies.common.on_device import BestRivals, LogitSpectrum, PairGeometry, TextOnDevice


@pytest.fixture(scope="module")
def text() -> TextOnDevice:
    return TextOnDevice(counted_text())


def random_factors(text: TextOnDevice, seed: int) -> Factors:
    generator = np.random.default_rng(seed)
    return Factors(generator.normal(size=(text.stats.V, 6)), generator.normal(size=(6, text.stats.m)))


def placed(text: TextOnDevice, found: Factors) -> tuple[object, object]:
    return text.torch.tensor(found.W).float(), text.torch.tensor(found.H).float()


def test_agreement_is_that_of_compare(text: TextOnDevice) -> None:
    one, other = random_factors(text, 1), random_factors(text, 2)
    found = text.geometry(*placed(text, one)).agreement(text.geometry(*placed(text, other)))
    groups = np.asarray(text.stats.groups.label)
    contexts = SimilarityNumbers.of("contexts", one.H, {"": other.H}, groups).values()
    tokens = SimilarityNumbers.of("tokens", one.tokens, {"": other.tokens}).values()
    assert found["contexts"] == pytest.approx(contexts["", "context_agreement"], abs=1e-5)
    assert found["tokens"] == pytest.approx(tokens["", "token_agreement"], abs=1e-5)


def test_agreement_does_not_change_under_a_rotation_or_a_softmax_shift(text: TextOnDevice) -> None:
    one, other = random_factors(text, 1), random_factors(text, 2)
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    turned = Factors(one.W @ Q + 3.0, Q.T @ one.H)
    before = text.geometry(one.W, one.H).agreement(text.geometry(other.W, other.H))
    after = text.geometry(turned.W, turned.H).agreement(text.geometry(other.W, other.H))
    assert after == pytest.approx(before, abs=1e-5)


def test_loss_gap_and_norms_are_those_of_the_library(text: TextOnDevice) -> None:
    one = random_factors(text, 3)
    W, H = placed(text, one)
    assert text.loss_gap(W, H) == pytest.approx(
        SoftLabels.from_statistics(text.stats).loss_gap(one.W @ one.H), rel=1e-4
    )
    centred = one.W @ one.H - (one.W @ one.H).mean(axis=0)
    assert LogitSpectrum.of(W, H).nuclear_norm == pytest.approx(np.linalg.norm(centred, "nuc"), rel=1e-5)
    _, carried, s = logit_numbers.balanced_factors(one)
    assert LogitSpectrum.of(W, H).split_exponent == pytest.approx(logit_numbers.split_exponent(carried, s), abs=1e-5)


def test_rivals_have_the_geometry_of_their_fits(text: TextOnDevice) -> None:
    everything = np.arange(text.stats.m)
    for kind in (LogCounts(0.1, 0.5), LogCounts(0.1, 1.0), SimplexFrame()):
        fit = kind.fit(text.stats)
        expected = text.geometry(fit.tokens(np.arange(text.stats.V)).T, fit.contexts(everything))
        assert text.rival(kind).agreement(expected)["contexts"] == pytest.approx(1.0, abs=1e-4)


def test_free_parameters_are_found_far_outside_of_the_grid_for_contexts_and_tokens_separately(
    text: TextOnDevice,
) -> None:
    # The grid ends at 10; with counts below 20, log(1 + n / 300) is nearly the count itself.
    for_contexts, for_tokens = text.rival(LogCounts(300.0, 1.0)), text.rival(LogCounts(0.03, 0.5))
    run = PairGeometry(for_contexts.contexts, for_tokens.tokens)
    found = BestRivals(text, ["log_counts"]).best([run, run])["log-counts"]
    assert len(found["contexts"]) == 2
    assert min(*found["contexts"], *found["tokens"]) > 0.998
    assert "power 1" in found["chosen"]["contexts"]
    assert "power 0.5" in found["chosen"]["tokens"]
    assert float(found["chosen"]["contexts"].split("=")[1].split(",")[0]) > 10.0
    assert found["edge"]["tokens"] == ""


def test_a_rival_without_parameters_is_tried_once(text: TextOnDevice) -> None:
    found = BestRivals(text, ["simplex_frame"]).best([text.geometry(*placed(text, random_factors(text, 1)))])
    assert "chosen" not in found["ETF"]


def test_the_mean_of_runs_is_that_of_their_cosines(text: TextOnDevice) -> None:
    runs = [text.geometry(*placed(text, random_factors(text, seed))) for seed in (1, 2)]
    mean = PairGeometry.mean(runs)
    together = runs[0].agreement(runs[1])["tokens"]
    assert mean.agreement(runs[0])["tokens"] == pytest.approx(np.sqrt((1.0 + together) / 2.0), abs=1e-5)
