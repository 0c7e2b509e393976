"""Held-out documents: parts and scores against counting by hand, back-off against its definition, and the rules."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax

from tokengeom import count
from tokengeom.extending import InputError, stories
from tokengeom_studies.common.document_split import ALL, NEW, OFTEN, DocumentSplit
from tokengeom_studies.common.held_out_text import ITEMS
from tokengeom_studies.held_out_documents import (
    CHOSEN,
    EARLY,
    KNESER_NEY,
    NETWORKS,
    SIMULATED,
    UNTIED,
    HeldOutDocuments,
)

STUDY = HeldOutDocuments()
RECIPE = STUDY.recipe(stories=12, held_out=0.25, vocabulary=30)


@pytest.fixture(scope="module")
def split() -> DocumentSplit:
    return DocumentSplit(RECIPE, 0)


def by_hand() -> list[list[tuple[int, ...]]]:
    """Windows of two tokens and the next, of the documents that are judged, that choose, and that are trained on."""
    documents = list(islice(stories(0), 12))
    tokens = count(documents, context=2).tokenizer
    assert tokens is not None
    order, ids = np.random.default_rng(0).permutation(12), [x.tolist() for x in tokens.encode(documents)]
    parts = (order[:3], order[3:4], order[4:])
    return [[w for i in part for w in zip(ids[i], ids[i][1:], ids[i][2:], strict=False)] for part in parts]


def test_parts_are_whole_documents_and_new_contexts_were_never_counted(split: DocumentSplit) -> None:
    judged, choosing, trained = by_hand()
    seen, readable = {w[:2] for w in trained}, {z for w in trained for z in w[:2]}
    assert split.facts["windows"] == len(trained)
    assert split.facts["held_out_windows"] == len(judged)
    for counts, windows in ((split.judged[NEW], judged), (split.chosen, choosing)):
        new = Counter(w[:2] for w in windows if w[:2] not in seen and readable.issuperset(w[:2]))
        number = dict(zip(map(tuple, split.contexts.tolist()), counts.sum(axis=0).tolist(), strict=True))
        assert {context: n for context, n in number.items() if n} == new
    known = sum(w[:2] in seen for w in judged)
    assert split.judged[ALL].sum() == known + split.judged[NEW].sum()
    assert split.text.kept.sum() == len(seen)


def test_scores_are_sums_over_windows(split: DocumentSplit) -> None:
    shape = (split.text.stats.V, len(split.contexts))
    log_p, q = log_softmax(np.random.default_rng(1).normal(size=shape), axis=0), np.full(shape, 1 / shape[0])
    for kind, found in split.scores(log_p, {"uniform": q}).items():
        C = split.judged[kind].toarray()
        pairs = [(z, j) for z, j in np.argwhere(C) for _ in range(C[z, j])]
        assert found["loss"] == pytest.approx(-np.mean([log_p[z, j] for z, j in pairs]))
        assert found["right"] == pytest.approx(np.mean([log_p[:, j].argmax() == z for z, j in pairs]))
        far = [0.5 * np.abs(np.exp(log_p[:, j]) - q[:, j]).sum() for _, j in pairs]
        assert found["to"]["uniform"] == pytest.approx(np.mean(far))
        often = [j for _, j in pairs if C[:, j].sum() >= OFTEN]
        moved = [0.5 * np.abs(C[:, j] / C[:, j].sum() - np.exp(log_p[:, j])).sum() for j in often]
        assert found["variation"] == (pytest.approx(np.mean(moved)) if often else None)


def test_smoothed_predictions_are_probabilities_and_better_than_frequencies(split: DocumentSplit) -> None:
    smoothed, _ = split.kneser_ney()
    assert np.exp(smoothed).sum(axis=0) == pytest.approx(np.ones(len(split.contexts)))
    assert split.choosing_loss(smoothed) < split.choosing_loss(split.frequencies())


def test_backing_off_is_the_mean_over_the_longest_counted_suffix(split: DocumentSplit) -> None:
    shares, m = split.backed_off().toarray(), int(split.text.kept.sum())
    np.testing.assert_array_equal(shares[:, :m], np.eye(m))
    known, windows = split.contexts[:m], split.text.trained.table.sum(axis=0)
    for j, context in enumerate(split.contexts[m:], m):
        same = known[:, -1] == context[-1]
        same = same if same.any() else np.ones(m, dtype=bool)
        np.testing.assert_allclose(shares[:, j], np.where(same, windows, 0) / windows[same].sum())


def test_a_text_of_few_documents_is_refused() -> None:
    with pytest.raises(InputError, match=r"documents \(4\)"):
        DocumentSplit({**RECIPE, "stories": 4}, 0)


def made_up(**given: float) -> list[dict[str, Any]]:
    """Rows of two splits with four seeds; losses are 2, shares right 0.4, distances 0.5 and agreement 0.8 of 1."""
    names = [CHOSEN, KNESER_NEY, UNTIED, *SIMULATED, *NETWORKS, *(f"{name}{EARLY}" for name in NETWORKS)]
    rows: list[dict[str, Any]] = []
    for split in range(2):
        where = {"text": "t", "split": split}
        rows.append({"kind": "text", **where, "contexts": 5})
        for name in names:
            short = name.removeprefix("transformer").removeprefix("mlp") if name not in NETWORKS else "network"
            score = {
                "loss": given.get(f"{short} loss", 2.0),
                "right": given.get(f"{short} right", 0.4),
                "variation": None,
                "to": dict.fromkeys(NETWORKS, given.get(f"{short} to", 0.5)),
            }
            target = 3.0 if split else 1.0
            facts = (
                {"target": target, "loss_gap": target} if name.startswith(tuple(NETWORKS)) else {"relative_gap": 1e-3}
            )
            rows.append({"kind": "score", **where, "prediction": name, NEW: score, ALL: score, **facts})
        for network in NETWORKS:
            pairs = [[a, b, dict.fromkeys(ITEMS, 0.64)] for a in range(4) for b in range(a)]
            rows.append({"kind": "run", **where, "network": network, "seeds": pairs})
            for name in (CHOSEN, KNESER_NEY, UNTIED, *SIMULATED):
                values = [dict.fromkeys(ITEMS, 0.8 * given.get(f"{name} agreement", 0.8))] * 4
                rows.append(
                    {"kind": "agreement", **where, "network": network, "explanation": name, "agreement": values}
                )
        rows.append({"kind": "finished", **where})
    return rows


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({f"{KNESER_NEY} loss": 1.9}, {"Kneser-Ney": "yes"}),
        ({f"{KNESER_NEY} loss": 1.9, f"{EARLY} loss": 1.8}, {"Kneser-Ney": "no"}),
        ({f"{CHOSEN} loss": 1.9}, {"same loss": "yes", "early": "yes", "back-off": "yes"}),
        ({f"{CHOSEN} loss": 1.9, f"{EARLY} loss": 1.8}, {"same loss": "yes", "early": "no"}),
        ({f"{CHOSEN} loss": 2.1}, {"same loss": "no", "early": "no", "back-off": "no"}),
        ({f"{CHOSEN} right": 0.391}, {"top token": "yes"}),
        ({f"{CHOSEN} right": 0.389}, {"top token": "no"}),
        ({f"{CHOSEN} to": 0.4}, {"variation": "yes"}),
        ({f"{CHOSEN} to": 0.6}, {"variation": "no"}),
        ({f"{CHOSEN} agreement": 0.86}, {"geometry": "yes", "target": "yes"}),
        ({f"{CHOSEN} agreement": 0.84}, {"geometry": "yes", "target": "no"}),
        ({f"{KNESER_NEY} agreement": 0.9}, {"geometry": "no"}),
    ],
)
def test_each_hypothesis_can_come_out_either_way(given: dict[str, float], expected: dict[str, str]) -> None:
    table = STUDY.judge(STUDY.recipe(), made_up(**given)).tables["hypotheses"]
    found = dict(zip(STUDY.hypotheses, table["answer"], strict=True))
    assert {name: found[name] for name in expected} == expected


def test_the_same_rules_judge_other_predictions() -> None:
    simulated = next(iter(SIMULATED))
    table = STUDY.judge(STUDY.recipe(), made_up(**{f"{simulated} loss": 1.9, f"{CHOSEN} loss": 2.1})).tables[
        "same rules"
    ]
    assert dict(zip(table["prediction"], table["same loss"], strict=True))[simulated] == "4 of 4"
    assert dict(zip(table["prediction"], table["back-off"], strict=True))[CHOSEN] == "0 of 2"


def test_agreement_is_divided_by_what_seeds_agree_to_and_unfinished_splits_are_left_out() -> None:
    rows = made_up(**{f"{CHOSEN} agreement": 0.7})
    rows += [{"kind": "text", "text": "t", "split": 2, "contexts": 5}]
    found = STUDY.judge(STUDY.recipe(), rows)
    table = found.tables["geometry"]
    own = [x for name, x in zip(table["explanation"], table["several"], strict=True) if name == CHOSEN]
    assert own == pytest.approx([0.7, 0.7])
    assert table["held out"][1:3] == ["0.800 [0.800, 0.800]", "0.800 [0.800, 0.800]"]
    assert found.tables["texts"]["split"] == [0, 1]
    assert [found.tables["early"][name] for name in ("trainings", "at 3", "at 1")] == [[2, 2], [1, 1], [1, 1]]
