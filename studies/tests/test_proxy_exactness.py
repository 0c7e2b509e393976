"""Exactness of the proxy: sign test and solver agree, and the smallest counter-example is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from study_cases import failed, run_study
from tokengeom.extending import NuclearADMM, NuclearSVM
from tokengeom_studies.base import Findings
from tokengeom_studies.common.random_data import random_supports
from tokengeom_studies.proxy_exactness import as_sets, judge, search


def run(**changes: Any) -> Findings:
    return run_study("proxy-exactness", **{"V": [4, 6], "draws": 5, "search_contexts": 3, **changes})


@pytest.fixture(scope="module")
def found() -> Findings:
    return run()


def test_a_small_recipe_passes(found: Findings) -> None:
    assert failed(found) == []


def test_a_seed_determines_the_findings(found: Findings) -> None:
    again = run()
    assert again.sentence == found.sentence
    assert again.numbers == found.numbers


def test_three_tokens_have_no_counter_example() -> None:
    found = run(search_V=3)
    assert "excess of the smallest counter-example" in failed(found)
    assert "There is no counter-example up to V=3 tokens and m=3 contexts" in found.sentence


def test_a_feasible_matrix_beats_the_proxy_of_the_smallest_counter_example() -> None:
    found = search(4, 3, 1e-7)
    assert found.worst is not None
    assert as_sets(found.worst) == "{1}, {1,2}, {1,3}"
    assert (found.patterns, found.refuted, found.kinds) == (560, 48, 3)
    problem = NuclearSVM.from_support(found.worst)
    L = problem.reduction.expand(NuclearADMM(tolerance=1e-7)(problem).x)
    S = found.worst
    for j in range(3):
        inside, outside = L[S[:, j], j], L[~S[:, j], j]
        assert np.ptp(inside) < 1e-6
        assert inside.min() - outside.max() > 1 - 1e-6
    proxy = S - S.mean(axis=0)
    shorter = np.linalg.norm(L, "nuc")
    assert np.linalg.norm(proxy, "nuc") / shorter - 1 == pytest.approx(found.excess, rel=1e-3)


def test_sign_test_and_solver_agree_on_random_patterns() -> None:
    rng = np.random.default_rng(5)
    verdicts = [judge(random_supports(rng, 6, 5, 2), 1e-6) for _ in range(20)]
    assert not any(v.contradicts for v in verdicts)
    assert {v.exact for v in verdicts} == {True, False}
