"""The study of the verdict's calibration on few draws."""

from __future__ import annotations

from dataclasses import replace

from study_cases import run_study, value
from tokengeom_studies.common.calibration import KINDS, Judged
from tokengeom_studies.verdict_calibration import share_right


def test_every_kind_of_embeddings_has_a_share_of_right_verdicts() -> None:
    findings = run_study("verdict-calibration", draws=2, most_contexts=40)
    for kind in KINDS:
        assert 0.0 <= value(findings, f"share of right verdicts, {kind}") <= 1.0
    assert len(findings.tables["verdicts"]["kind"]) == 2 * len(KINDS)
    assert findings.passed, findings.summary()


def test_shares_are_those_of_one_kind() -> None:
    right = Judged("gaussian", "", "zipf", 9, 9, 3, False, "does not agree", "", 0.0, 0.0, True)
    found = [right, replace(right, right=False), replace(right, kind="trained", right=False)]
    assert share_right(found, "gaussian") == 0.5
    assert share_right(found, "trained") == 0.0
