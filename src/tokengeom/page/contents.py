"""Everything that a report says, as data: what the stages make and what the page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokengeom.geometry.comparison import Comparison
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.concepts import Concepts
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.run import Run


@dataclass(frozen=True)
class Choice:
    """How the text was cut, and why.

    ``settings``
        What was used: tokenizer, context length, limits of contexts and vocabulary.
    ``reasons``
        Plain sentences, true of this text: why these.
    ``candidates``
        What was looked at, one row a candidate; every row has the same keys. Empty when the user chose all.
    """

    settings: Mapping[str, Any]
    reasons: Sequence[str] = ()
    candidates: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, eq=False)
class Contents:
    """What a page is made from.

    ``title``
        Name of the text, as the user knows it.
    ``runs``
        Trained models by the name that a reader sees ("unconstrained features", "transformer").
    ``comparisons``
        Agreement of each run with the prediction, by the same names.
    ``rivals``
        Rival explanations of each run's geometry, by the same names; empty where not asked for.
    ``missing``
        Sentences: what was left out, why, and what to do about it.
    ``provenance``
        ``versions``, ``machine``, ``seeds``, ``settings``, ``hashes``, ``seconds`` (of each stage), as plain data.
    """

    title: str
    stats: NextTokenStatistics
    choice: Choice
    prediction: FeaturePrediction | ProxyPrediction
    concepts: Concepts
    runs: Mapping[str, Run]
    comparisons: Mapping[str, Comparison]
    rivals: Mapping[str, Any] = field(default_factory=dict)
    missing: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
