"""The verb `verify`: re-check a saved result from its certificate and hashes, without solving again."""

from __future__ import annotations

from pathlib import Path

from tokengeom.folders import read_kind
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory import features as feature_storage
from tokengeom.theory import linear as linear_storage
from tokengeom.theory.verification import Verification, close, files_unchanged


def verify(folder: str | Path) -> Verification:
    """Check a saved prediction, saved statistics, or any other saved folder (its hashes)."""
    path = Path(folder)
    kind = read_kind(path)
    if kind == linear_storage.FORMAT:
        return linear_storage.verify_linear(path)
    if kind == feature_storage.FORMAT:
        return feature_storage.verify_features(path)
    checks = files_unchanged(path)
    if kind == "tokengeom-statistics" and all(checks.values()):
        checks |= _statistics(path)
    return Verification.of(checks)


def _statistics(path: Path) -> dict[str, bool]:
    from tokengeom.statistics.storage import read_content

    content, statistics = read_content(path), NextTokenStatistics.load(path)
    return {
        "the sizes are the ones claimed": (statistics.V, statistics.m) == (content["vocabulary"], content["contexts"]),
        "the entropy floor is the one claimed": close(statistics.entropy, content["entropy_nats"]),
    }
