"""Studies of learned features on tiny recipes: what they find, that their checks can fail, that a seed fixes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokengeom.errors import InputError
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.progress import SilentProgress
from tokengeom.solvers.nuclear_admm import NuclearADMM
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import Findings, find_study
from tokengeom.studies.feature_runs import papers_schedule, random_counts, random_supports, ranks_agree
from tokengeom.studies.proxy_exactness import as_sets, judge, search
from tokengeom.studies.ufm_simplified_stories import concept_order, strength_probe
from tokengeom.theory.concepts import Concepts
from tokengeom.training.optimizers.base import PAPER_STEPS
from tokengeom.training.train import train

TINY: dict[str, dict[str, Any]] = {
    "ufm-synthetic": {"draws": 1},
    "ufm-symmetric": {"subsets": [[5, 2]], "classes": 4, "copies": 2, "dim": 8},
    "ufm-simplified-stories": {
        "stories": 400, "contexts": 100, "vocabulary": 60, "steps": 400, "learning_rate": 8e-3,
        "order_steps": 200, "order_rate": 4.0, "order_concepts": 12, "draws": 40,
    },
    "ufm-small-d": {"V": 12, "supports": 8, "copies": 3, "dims": [1, 2, 3, 4, 5, 6, 7, 8, 12, 32]},
    "path-vs-gd": {
        "V": 8, "contexts": 10, "support": 2, "dim": 24, "learning_rate": 0.3, "steps": 100_000, "ridges": [1e-2],
    },
    "proxy-exactness": {"V": [4, 6], "draws": 5, "search_contexts": 3},
    "zipf-imbalance": {
        "V": 8, "contexts": 10, "support": 2, "dim": 32, "steps": 60_000, "exponents": [0.0, 1.5],
    },
}  # fmt: skip


def run(name: str, **changes: Any) -> Findings:
    study = find_study(name)
    return study.run(study.recipe("small", **{**TINY[name], **changes}), SilentProgress())


def value(findings: Findings, name: str) -> float:
    (found,) = [check.value for check in findings.checks if check.name == name]
    return found


def failed(findings: Findings) -> list[str]:
    return [check.name for check in findings.checks if not check.passed]


@pytest.fixture(scope="module", params=sorted(TINY))
def tiny(request: pytest.FixtureRequest) -> tuple[str, Findings]:
    return request.param, run(request.param)


def test_a_tiny_recipe_passes(tiny: tuple[str, Findings]) -> None:
    _, findings = tiny
    assert failed(findings) == []


def test_a_sentence_has_numbers_and_figures_have_names_of_their_own(tiny: tuple[str, Findings]) -> None:
    _, findings = tiny
    assert sum(character.isdigit() for character in findings.sentence) > 5
    assert "nan" not in findings.sentence
    names = [figure.name for figure in findings.figures]
    assert names
    assert len(set(names)) == len(names)
    for table in findings.tables.values():
        assert len({len(column) for column in table.values()}) == 1


@pytest.mark.parametrize("name", ["ufm-symmetric", "path-vs-gd", "proxy-exactness", "zipf-imbalance"])
def test_a_seed_fixes_the_findings(name: str) -> None:
    again, once_more = run(name), run(name)
    assert again.sentence == once_more.sentence
    assert again.checks == once_more.checks


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("ufm-synthetic", {"steps": 600}, "median CE - H"),
        ("ufm-symmetric", {"steps": 30}, "NC1"),
        ("ufm-symmetric", {"steps": 30}, "tokens: distance to an equiangular frame"),
        ("ufm-small-d", {"dims": [6, 12, 32]}, "CE - H without ridge at the smallest d"),
        ("ufm-small-d", {"steps": 60}, "largest excess at d >= rank L_lambda"),
        ("path-vs-gd", {"steps": 30}, "descent: last cos(L, L_mm)"),
        ("path-vs-gd", {"ridge_steps": 30}, "descent with ridge: largest distance to L_lambda"),
        ("proxy-exactness", {"search_V": 3}, "excess of the smallest counter-example"),
        ("zipf-imbalance", {"steps": 60}, "descent: smallest cos(L, L_mm) of an exponent"),
        ("zipf-imbalance", {"smallest_lambda": 1e-4}, "1 - cos between exponents, last over middle lambda"),
        ("zipf-imbalance", {"exponents": [1.5, 0.0]}, "smallest slow-down from an exponent to the next"),
    ],
)
def test_a_check_fails_where_it_must(name: str, changes: dict[str, Any], expected: str) -> None:
    assert expected in failed(run(name, **changes))


def test_small_d_never_beats_the_convex_optimum() -> None:
    findings = run("ufm-small-d", dims=[1, 8, 32], steps=500)
    assert min(findings.tables["dimensions"]["excess"]) > -1e-5


def test_the_smallest_counter_example_is_beaten_by_a_feasible_answer() -> None:
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


def test_the_papers_schedule_is_theirs_at_their_length() -> None:
    assert papers_schedule(30_000) == PAPER_STEPS
    with pytest.raises(InputError, match="steps=5"):
        papers_schedule(5)


def test_random_counts_have_the_supports_asked_for() -> None:
    stats = random_counts(3, V=9, m=7, size=4, most=4)
    assert (stats.V, stats.m) == (9, 7)
    assert set(stats.support_sizes) == {4}
    assert set(np.unique(stats.counts.data)) <= {1, 2, 3, 4}
    with pytest.raises(InputError, match="size=10"):
        random_supports(np.random.default_rng(0), 9, 7, 10)


def test_blocks_of_falling_size_are_learned_in_the_order_of_their_singular_values() -> None:
    # Disjoint supports met by 12, 6, 3 and 1 contexts: concepts are the blocks, and importance is their size.
    S = np.repeat(np.eye(4), [12, 6, 3, 1], axis=1)
    stats = NextTokenStatistics.from_probabilities(S)
    found = Concepts.of(S - S.mean(axis=0))
    run = train(stats, "ufm", dim=32, optimizer="gd", steps=300, learning_rate=1.0, probes=strength_probe(found, 3))
    order = concept_order(found, run)
    assert order.agreement == pytest.approx(1.0)
    assert (np.diff(order.half_steps) > 0).all()


def test_rank_correlation_knows_order_and_ties() -> None:
    assert ranks_agree(np.array([1.0, 5.0, 9.0]), np.array([2.0, 3.0, 70.0])) == pytest.approx(1.0)
    assert ranks_agree(np.array([1.0, 5.0, 9.0]), np.array([3.0, 2.0, 1.0])) == pytest.approx(-1.0)
    assert np.isnan(ranks_agree(np.ones(3), np.arange(3.0)))
