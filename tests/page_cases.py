"""Small contents of pages, with every kind of degenerate or hostile input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from tokengeom import compare, count, predict, train
from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.monitor import feature_probes
from tokengeom.comparison.target import LIMIT
from tokengeom.corpus.stories import stories
from tokengeom.page.chosen_settings import Choice
from tokengeom.page.render import render
from tokengeom.page.report_contents import ReportContents
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.concepts import Concepts
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import predict_proxy, proxy
from tokengeom.training.run import Run, Trajectory

ATTACK = "<script>alert(1)</script>"
TEMPLATE = "{{ 7 * 7 }}%{x}"
RUN = "unconstrained features"


def contents_of(stats: NextTokenStatistics, *, steps: int = 300, **changes: Any) -> ReportContents:
    """Predict, train a small model and compare."""
    prediction = predict(stats)
    assert isinstance(prediction, FeaturePrediction)
    run = train(
        stats,
        model="ufm",
        dim=32,
        steps=steps,
        learning_rate=3e-2,
        optimizer="adamw",
        probes=feature_probes(prediction),
    )
    comparison = compare(prediction, run, permutations=20)
    made = ReportContents(
        title="a small text",
        stats=stats,
        choice=Choice({"context": 2, "tokenizer": "word"}, ("Chosen by a test.",), ({"context": 2, "groups": 5},)),
        prediction=prediction,
        concepts=Concepts.of(proxy(np.asarray(stats.S.toarray()) > 0)),
        runs={RUN: run},
        comparisons={RUN: comparison},
        at_loss={RUN: comparison.at},
        provenance={"versions": {"tokengeom": "0.1.0"}, "hashes": {"text": "ab" * 32}, "seconds": {"count": 0.5}},
    )
    return replace(made, **changes)


@cache
def story_contents() -> ReportContents:
    """A part of the built-in stories, and a second training."""
    stats = count(list(islice(stories(), 150)), context=2).limited(top_contexts=60, vocabulary=40)
    made = contents_of(stats, title="some stories")
    first = made.runs[RUN]
    again = train(stats, model="ufm", dim=32, steps=300, learning_rate=3e-2, optimizer="adamw", seed=1)
    found = compare(made.prediction, [first, again], at=made.at_loss[RUN], permutations=20)
    return replace(made, comparisons={RUN: found}, repeats={RUN: (again,)})


def from_pattern(pattern: Any, **names: Any) -> NextTokenStatistics:
    """Counts 1, 2, 3 ... on a pattern of supports."""
    S = np.asarray(pattern, dtype=np.int64)
    return NextTokenStatistics.from_counts(S * (1 + np.arange(S.size).reshape(S.shape) % 3), **names)


def hostile_contents() -> ReportContents:
    """Tokens, contexts, a title and names of runs that look like markup, templates and formulas."""
    pattern = [[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 1]]
    tokens = [ATTACK, TEMPLATE, "</script><img src=x onerror=alert(2)>"]
    contexts = [f"{ATTACK} a", f"{TEMPLATE} b", "\u202e&amp; L_mm", ""]
    made = contents_of(from_pattern(pattern, contexts=contexts, vocabulary=tokens), title=f"{ATTACK} & {TEMPLATE}")
    bad = f"run {ATTACK}"
    return replace(
        made,
        runs={bad: made.runs[RUN]},
        comparisons={bad: made.comparisons[RUN]},
        at_loss={bad: made.at_loss[RUN]},
        missing=(f"Nothing of {ATTACK} is missing.",),
        provenance={"settings": {"path": ATTACK}},
        choice=Choice({"tokenizer": ATTACK}, (f"Because of {ATTACK}.",), ({"<b>": ATTACK},)),
    )


def one_hot_contents() -> ReportContents:
    """Every context has a single next token."""
    return contents_of(from_pattern([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]))


def one_group_contents() -> ReportContents:
    """All contexts share one support."""
    return contents_of(from_pattern([[1, 1, 1], [1, 1, 1], [0, 0, 0], [0, 0, 0]]))


def full_contents() -> ReportContents:
    """Every token may follow every context: no geometry at all."""
    return contents_of(from_pattern([[1, 1, 1], [1, 1, 1]]))


def proxy_contents() -> ReportContents:
    """The proxy instead of the certified prediction."""
    made = story_contents()
    prediction = predict_proxy(made.stats, components=12)
    concepts = Concepts.from_svd(prediction.U, prediction.singular_values, prediction.Vt)
    run = train(made.stats, model="ufm", dim=16, steps=30, learning_rate=3e-2, optimizer="adamw")
    found = compare(prediction, run, permutations=20)
    return replace(
        made,
        prediction=prediction,
        concepts=concepts,
        runs={RUN: run},
        comparisons={RUN: found},
        repeats={},
        at_loss={},
    )


def diverged_contents() -> ReportContents:
    """A run with numbers that are not finite, which cannot be compared, and a normal one."""
    made = story_contents()
    well = made.trained[RUN]
    gaps = Trajectory({"step": [0.0, 1.0, 2.0], "seconds": [0.0, 0.1, 0.2], "loss_gap": [3.0, np.inf, np.nan]})
    settings = {**well.settings, "model": "transformer"}
    W = np.full_like(well.W, np.nan)
    lost = Run(W, well.H, float("nan"), gaps, settings, "diverged at step 2", 2, 0.2, well.entropy)
    return replace(made, runs={RUN: well, "transformer": lost})


def untrained_contents() -> ReportContents:
    """A prediction without runs; probabilities instead of counts, and contexts without tokens."""
    rng = np.random.default_rng(3)
    P = rng.random((5, 6)) * (rng.random((5, 6)) < 0.5)
    P[0] += 0.1
    made = contents_of(NextTokenStatistics.from_probabilities(P / P.sum(axis=0)))
    return replace(made, runs={}, comparisons={}, at_loss={}, choice=Choice({}), provenance={})


def unmeasured_contents() -> ReportContents:
    """A comparison in which nothing is defined."""
    made = story_contents()
    nan = float("nan")
    nothing = Agreement(nan, better="higher")
    kinds = ("context_agreement", "token_agreement", "context_similarity", "token_similarity")
    names = (*map(LIMIT.named, kinds), "collapse")
    why = ("Nothing is defined.",)
    found = Comparison(
        prediction_kind="features",
        verdict="cannot be determined",
        permutations=0,
        seed=0,
        agreements=dict.fromkeys(names, nothing),
        reasons=why,
        limitations=(),
    )
    return replace(made, comparisons={RUN: found}, at_loss={}, repeats={})


CASES: dict[str, Callable[[], ReportContents]] = {
    "stories": story_contents,
    "hostile": hostile_contents,
    "one-hot": one_hot_contents,
    "one group": one_group_contents,
    "full supports": full_contents,
    "proxy": proxy_contents,
    "diverged": diverged_contents,
    "untrained": untrained_contents,
    "unmeasured": unmeasured_contents,
}


@cache
def rendered(case: str) -> str:
    """The page of a case, rendered once."""
    return render(CASES[case]())
