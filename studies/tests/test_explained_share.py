"""Explained shares: what made-up rows decide, and geometries and losses of held-out contexts against plain NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tokengeom import NextTokenStatistics
from tokengeom_studies.base import Findings
from tokengeom_studies.common.explained_cells import KERNEL, MAIN, WITHOUT, WITHOUT_NORM, ExplainedCells, simulated
from tokengeom_studies.common.held_out_text import (
    HELD_OUT,
    ITEMS,
    ONE,
    SEVERAL,
    TOKENS,
    HeldOutText,
    agreement,
    mean_geometry,
)
from tokengeom_studies.common.measured import chosen
from tokengeom_studies.explained_share import ExplainedShare

NETWORKS = ("mlp", "transformer", WITHOUT_NORM)
RHO = 0.64


def made_up(**given: float) -> list[dict[str, Any]]:
    """Rows of three networks with four seeds; corrected agreements are the given ones, 0.8 unless stated."""
    names = {
        "main": simulated(MAIN), "main without": simulated(MAIN, WITHOUT_NORM), "kernel": simulated(KERNEL),
        "gamma2": "at the loss, gamma_2", "rival": "Kneser-Ney", "transformer": "network transformer",
    }  # fmt: skip
    seeds = range(4)
    pairs = [[a, b, dict.fromkeys(ITEMS, RHO)] for a in seeds for b in range(a)]
    rows: list[dict[str, Any]] = [{"kind": "text", "text": "t", "tokens": 5}]
    for network in NETWORKS:
        cell = {"text": "t", "network": network, "target": 0.2}
        losses = [{"loss": 2.0, "right": 0.4} for _ in seeds]
        rows.append({"kind": "run", **cell, "loss_gaps": [0.2] * 4, "steps": [9] * 4, "seeds": pairs, "unseen": losses})
        for short, name in names.items():
            value = np.sqrt(RHO) * given.get(short, 0.8)
            row: dict[str, Any] = {"explanation": name, "agreement": {kind: [value] * 4 for kind in ITEMS}}
            if short == "gamma2":
                row |= {"rank": 3, "relative_gap": 1e-3}
            if short in ("main", "main without", "rival"):
                loss = given.get(f"{short} loss", 2.5)
                row["unseen"] = {"loss": loss, "right": 0.4, "same_top": {f"{network} 0": 0.5}}
            rows.append({"kind": "agreement", **cell, "replicates": 1, **row})
    return rows


def decisions(**given: float) -> dict[str, str]:
    found: Findings = ExplainedShare().judge(ExplainedShare().recipe(), made_up(**given))
    return dict(zip(ExplainedShare.hypotheses, found.tables["hypotheses"]["answer"], strict=True))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"main": 0.9, "main without": 0.9}, {"ties": "yes"}),
        ({"rival": 0.95}, {"ties": "no"}),
        ({"main": 0.96, "main without": 0.96}, {"targets": "yes"}),
        ({"main": 0.7, "main without": 0.7}, {"targets": "no"}),
        ({"kernel": 0.79}, {"kernel": "yes"}),
        ({"kernel": 0.75}, {"kernel": "no"}),
        ({"transformer": 0.96}, {"one geometry": "yes"}),
        ({"transformer": 0.9}, {"one geometry": "no"}),
        ({"main without": 0.85}, {"last norm": "yes"}),
        ({"main without": 0.75}, {"last norm": "no"}),
        ({"main loss": 1.9, "main without loss": 1.9}, {"held-out loss": "yes", "Kneser-Ney": "no"}),
        ({"rival loss": 1.5}, {"held-out loss": "no", "Kneser-Ney": "yes"}),
    ],
)
def test_each_hypothesis_can_come_out_either_way(given: dict[str, float], expected: dict[str, str]) -> None:
    found = decisions(**given)
    assert {name: found[name] for name in expected} == expected


def without_norms(**given: float) -> list[dict[str, Any]]:
    """Rows of a transformer and an MLP without last norms, and agreement with others like them and their own kind."""
    rows = made_up(**given)
    names = {"other": [WITHOUT_NORM, f"transformer{WITHOUT}"], "own": ["mlp", "transformer"]}
    known = [{**row, "network": f"transformer{WITHOUT}"} for row in rows if row.get("network") == WITHOUT_NORM]
    cells = chosen([*rows, *known], kind="agreement", explanation="Kneser-Ney")
    for cell, (of, others) in product(cells, names.items()):
        if cell["network"].endswith(WITHOUT):
            found = {kind: [np.sqrt(RHO) * given.get(of, 0.8)] * 4 for kind in ITEMS}
            cells_of = [name for name in others if name != cell["network"]]
            known += [{**cell, "explanation": f"network {name}", "agreement": found} for name in cells_of]
    return [*rows, *known]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"main without": 0.85}, ["yes", "no", "no"]),
        ({"main without": 0.75, "other": 0.96, "own": 0.9, "transformer": 0.9}, ["no", "yes", "yes"]),
        ({"main without": 0.85, "other": 0.85, "own": 0.9, "transformer": 0.9}, ["yes", "no", "no"]),
    ],
)
def test_networks_without_a_last_norm_decide(given: dict[str, float], expected: list[str]) -> None:
    table = ExplainedShare().judge(ExplainedShare().recipe(), without_norms(**given)).tables["hypotheses"]
    answers = dict(zip(ExplainedShare.hypotheses, table["answer"], strict=True))
    names = ("last norm, others", "one geometry without", "norm or kind")
    assert [answers[name] for name in names] == expected


def test_what_was_measured_first_counts() -> None:
    once, again = made_up(main=0.9), made_up(main=0.5)
    assert str(ExplainedCells([*once, *again]).overview()) == str(ExplainedCells(once).overview())


def test_agreement_is_divided_by_both_reliabilities() -> None:
    rows = made_up(main=0.5)
    for row in rows:
        if row.get("explanation") == simulated(MAIN):
            row["reliability"] = dict.fromkeys(ITEMS, 0.25)
    cells = ExplainedCells(rows)
    found = cells.corrected(cells.runs[0], simulated(MAIN), SEVERAL)
    assert found.mean == pytest.approx(0.5 / np.sqrt(0.25))
    assert found.low == pytest.approx(found.high)


def test_each_text_counts_once_in_the_overview() -> None:
    rows = made_up(main=0.9)
    rows += [{**row, "text": "u", "network": "lstm"} for row in made_up(main=0.5) if row.get("network") == "mlp"]
    table = ExplainedCells(rows).overview()
    several = dict(zip(table["explanation"], table[SEVERAL], strict=True))
    assert several["simulated, positions+pairs+self"] == pytest.approx((0.9 + 0.5) / 2)


def test_intervals_are_over_texts_and_not_over_networks() -> None:
    rows = made_up(main=0.9)
    rows += [{**row, "text": "u"} for row in made_up(main=0.5)]
    table = ExplainedCells(rows).intervals()
    of = dict(zip(table["explanation"], table[SEVERAL], strict=True))
    half = 12.706 * np.std([0.9, 0.5], ddof=1) / np.sqrt(2)
    assert of["simulated, positions+pairs+self"] == f"0.700 [{0.7 - half:.3f}, {0.7 + half:.3f}]"
    assert of["limit of training"] == "-"


def test_who_is_ahead_what_is_best_without_ties_and_ends_of_grids() -> None:
    rows = made_up(main=0.6, gamma2=0.7, rival=0.9)
    for row in rows:
        if row.get("explanation") == "Kneser-Ney":
            row["chosen"] = {SEVERAL: "D=0.1, power 0.5", ONE: "D=0.9, power 1", TOKENS: "D=0.5, power 1"}
    cells = ExplainedCells(rows)
    assert cells.ahead() == {"ahead": ["Kneser-Ney"], "cells": ["6 of 6"]}
    table = cells.untied()
    assert table[simulated(MAIN)][0] == pytest.approx(0.36)
    assert table["Kneser-Ney"][0] == pytest.approx(0.81)
    assert (table["which"][0], table["best other without ties"][0]) == ("at the loss, gamma_2", pytest.approx(0.49))
    edges = {name: column[0] for name, column in cells.edges().items()}
    assert (edges["best at the lowest"], edges["best at the highest"], edges["of"]) == (3, 3, 9)
    assert cells.top_tokens()["highest"] == ["0.500 (t)"] * 3


def test_nothing_reproducible_is_not_explained() -> None:
    rows = made_up()
    for row in rows:
        if row["kind"] == "run":
            row["seeds"] = [[a, b, dict.fromkeys(ITEMS, 0.01)] for a, b, _ in row["seeds"]]
    cells = ExplainedCells(rows)
    assert np.isnan(cells.corrected(cells.runs[0], simulated(MAIN), SEVERAL).mean)


@pytest.fixture
def text() -> HeldOutText:
    random = np.random.default_rng(0)
    counts = random.poisson(0.6, (6, 40)) + np.eye(6, 40, dtype=int)
    counts[0, counts.sum(axis=0) == 0] = 1
    contexts = np.stack(np.unravel_index(np.arange(40), (7, 7)), axis=1).astype(np.int32)
    return HeldOutText.drawn(NextTokenStatistics.from_counts(counts, contexts=contexts), 0.25, "cpu")


def test_agreement_is_the_correlation_of_cosines_of_pairs_with_different_supports(text: HeldOutText) -> None:
    random = np.random.default_rng(1)
    (W, H), (X, Y) = ((random.normal(size=(6, 3)), random.normal(size=(3, 40))) for _ in range(2))
    found = agreement(text.geometry(W, H), text.geometry(X, Y))
    S = text.stats.P.toarray() > 0
    kinds = {SEVERAL: text.kept & (S.sum(0) > 1), ONE: text.kept & (S.sum(0) == 1), HELD_OUT: ~text.kept}
    for kind, which in kinds.items():
        some = np.flatnonzero(which)
        pairs = [(i, j) for i in some for j in some if i < j and (S[:, i] != S[:, j]).any()]
        one, other = (
            [A[:, i] @ A[:, j] / np.linalg.norm(A[:, i]) / np.linalg.norm(A[:, j]) for i, j in pairs] for A in (H, Y)
        )
        assert found[kind] == pytest.approx(np.corrcoef(one, other)[0, 1], abs=1e-5)
    assert set(found) == set(ITEMS)
    assert TOKENS in found


def test_losses_are_those_of_the_two_parts(text: HeldOutText) -> None:
    W, H = np.random.default_rng(2).normal(size=(6, 3)), np.random.default_rng(3).normal(size=(3, 40))
    L = W @ H
    log_q = L - np.log(np.exp(L).sum(0))
    counts = text.stats.table.toarray()

    def loss(which: Any) -> float:
        return float(-(counts * log_q)[:, which].sum() / counts[:, which].sum())

    trained = counts[:, text.kept]
    p = trained / trained.sum(0)
    floor = -(trained * np.log(np.where(p > 0, p, 1.0))).sum() / trained.sum()
    assert text.loss_gap(text.placed(W), text.placed(H)) == pytest.approx(loss(text.kept) - floor, abs=1e-5)
    assert text.unseen(text.placed(L), {})["loss"] == pytest.approx(loss(~text.kept), abs=1e-5)


def test_the_reliability_of_a_mean_is_that_of_spearman_and_brown(text: HeldOutText) -> None:
    random = np.random.default_rng(4)
    made = [text.geometry(random.normal(size=(6, 2)), random.normal(size=(2, 40))) for _ in range(3)]
    _, found = mean_geometry(made)
    rho = np.mean([agreement(made[a], made[b])[SEVERAL] for a, b in ((0, 1), (0, 2), (1, 2))])
    assert found[SEVERAL] == pytest.approx(3 * rho / (1 + 2 * rho))
