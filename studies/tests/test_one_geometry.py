"""One geometry: what made-up agreements of variants decide."""

from __future__ import annotations

import pytest

from pair_cases import pair_rows
from tokengeom_studies.one_geometry import BASE, FOLLOWED, KINDS, OneGeometry


def decisions(variants: float, own: float = 0.9, others: float = 0.8, subwords: float = 0.0) -> dict[str, str]:
    names = [name for kind in KINDS.values() for name in kind]
    pairs = {(BASE, name): variants for name in names}
    pairs |= {(name, f"simulated {name}"): own for name in FOLLOWED}
    pairs |= {(name, f"simulated {BASE}"): others for name in (BASE, *FOLLOWED)}
    run = {"kind": "run", "text": "t", "target": 0.2, "seed": 0, "loss_gap": 0.2, "step": 9}
    rows = [{"kind": "text", "text": "t", "tokens": 5, "contexts": 9}, *pair_rows(pairs, {"text": "t"})]
    rows += [{**run, "variant": name} for name in (BASE, *names)]
    if subwords:
        place = {"text": "t-bpe_4"}
        others_too = {pair: subwords if pair[0] == BASE else x for pair, x in pairs.items()}
        rows += [{"kind": "text", **place, "tokens": 5, "contexts": 9}, *pair_rows(others_too, place)]
        rows += [{**run, **place, "variant": name} for name in (BASE, *names)]
    study = OneGeometry()
    found = study.judge(study.recipe(), rows)
    return dict(zip(study.hypotheses, found.tables["hypotheses"]["answer"], strict=True))


@pytest.mark.parametrize(("agree", "same", "other"), [(0.97, "yes", "no"), (0.9, "no", "yes")])
def test_the_least_agreement_decides(agree: float, same: str, other: str) -> None:
    found = decisions(agree)
    assert {found[kind] for kind in ("size", "rate", "architecture")} == {same}
    assert {found[kind] for kind in ("start", "last norm", "tied head", "optimizer")} == {other}


@pytest.mark.parametrize(("subwords", "answer"), [(0.93, "yes"), (0.8, "no")])
def test_subwords_are_compared_with_other_texts(subwords: float, answer: str) -> None:
    assert decisions(0.97, subwords=subwords)["subwords"] == answer


def test_a_simulation_follows_where_its_own_choices_agree_better() -> None:
    assert decisions(0.9)["simulation"] == "yes"
    assert decisions(0.9, own=0.7)["simulation"] == "no"
