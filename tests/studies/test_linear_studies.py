from __future__ import annotations

import numpy as np
import pytest

from tokengeom.errors import InputError
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.progress import SilentProgress
from tokengeom.solvers.ntp_svm import solve_ntp_svm
from tokengeom.studies.base import all_studies, find_study
from tokengeom.studies.linear_2d import SUPPORTS, plane_statistics
from tokengeom.studies.linear_draws import draw_supports
from tokengeom.studies.linear_overparameterised import widened
from tokengeom.studies.linear_violations import CASES, planted
from tokengeom.studies.separability_threshold import Threshold, cover, smallest_dimension, support_sizes
from tokengeom.theory.linear import predict_linear


@pytest.mark.parametrize("entropy", [0.2, 0.8811, 1.09])
def test_the_plane_has_the_entropy_asked_for_and_its_supports(entropy: float) -> None:
    stats = plane_statistics(entropy)
    assert stats.entropy == pytest.approx(entropy, abs=1e-12)
    assert [tuple(np.flatnonzero(column)) for column in stats.P.toarray().T] == [tuple(s) for s in SUPPORTS]


@pytest.mark.parametrize("entropy", [0.0, 1.2])
def test_an_entropy_that_three_tokens_cannot_have_is_refused(entropy: float) -> None:
    with pytest.raises(InputError, match=f"between 0 and log 3 = 1.0986; got {entropy}"):
        plane_statistics(entropy)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_planted_contexts_break_the_conditions_they_are_meant_to(case: str, seed: int) -> None:
    draw = planted(case, seed, V=7, m=8, d=10, support_size=3, n=400)
    prediction = predict_linear(draw.stats, draw.H)
    assert (bool(prediction.compatible), bool(prediction.separable)) == CASES[case]
    assert prediction.loss_floor > prediction.entropy + 1e-3


def test_planting_needs_room_in_the_vocabulary() -> None:
    with pytest.raises(InputError, match="got V=4, support_size=3, m=8"):
        planted("both", 0, V=4, m=8, d=10, support_size=3, n=400)


def test_bisection_finds_what_trying_every_dimension_finds() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        V = 2 + seed % 3
        S, H = draw_supports(rng, V, 7, 1 + seed % (V - 1) if V > 2 else 1), rng.standard_normal((7, 7))
        tried = [solve_ntp_svm(MarginProblem(S, H[:d])).separable for d in range(1, 8)]
        assert tried == sorted(tried)
        assert smallest_dimension(S, H) == 1 + tried.index(True)


def test_covers_count_is_the_known_one() -> None:
    # Half at d = m/2, all at d >= m; 3 points on a line are separable through 0 for 2 of 8 sign patterns.
    assert [cover(d, 10) for d in (5, 10, 12)] == [0.5, 1.0, 1.0]
    assert cover(1, 3) == 0.25


def test_half_is_the_first_dimension_at_which_half_are_separable() -> None:
    found = Threshold(V=3, size=1, m=10, dimensions=np.array([3.0, 4.0, 6.0, 9.0]))
    assert found.half == 0.4
    assert found.probability(4) == 0.5
    assert found.probability(3) < 0.5
    assert found.cover is None


def test_support_sizes_go_from_one_to_all_but_one() -> None:
    assert support_sizes(2, 5) == [1]
    assert support_sizes(5, 9) == [1, 2, 3, 4]
    assert support_sizes(20, 3) == [1, 10, 19]


def test_a_published_range_is_widened_by_the_stated_tolerance() -> None:
    assert widened("norm_W", (10.0, 20.0)) == pytest.approx((9.0, 22.0))
    assert widened("cosine", (0.9, 0.95)) == pytest.approx((0.895, 0.955))


def test_the_study_of_the_plane_passes_as_published() -> None:
    study = find_study("linear-2d")
    findings = study.run(study.recipe("small"), SilentProgress())
    assert findings.passed, [check for check in findings.checks if not check.passed]
    assert findings.sentence.startswith("7 of 7")


def test_the_study_of_violations_passes() -> None:
    study = find_study("linear-violations")
    findings = study.run(study.recipe("small", seeds=1), SilentProgress())
    assert findings.passed, [check for check in findings.checks if not check.passed]


def test_a_wrong_expectation_fails_the_study() -> None:
    study = find_study("linear-2d")
    changed = study.recipe("small", separable=[[0, 90, 180], [90, 210, 330]], blocked=[], steps=100)
    assert not study.run(changed, SilentProgress()).passed


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in all_studies() if name.startswith(("linear", "separability"))])
def test_every_linear_study_passes_at_its_default_size(name: str) -> None:
    study = find_study(name)
    findings = study.run(study.recipe(), SilentProgress())
    assert findings.passed, [check for check in findings.checks if not check.passed]
