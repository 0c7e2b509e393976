"""What the page is about and made from: the corpus in numbers, trained models, and methods and sources.

Methods are how each number was computed, settings, versions, seeds, hashes, how to verify and to cite, and a glossary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from tokengeom.comparison.verdict import AGREES, IN_PART
from tokengeom.core.citation import cite
from tokengeom.core.numerics import Bool, Float, Int, seen_tokens
from tokengeom.figures.base import Curve, Figure, LinePanel
from tokengeom.figures.comparisons import checkpoints
from tokengeom.page.formatting import DASH, count, fixed, number, percent, texts
from tokengeom.page.read_model import ReadModel
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections.base import Page, Section
from tokengeom.page.sections.figures import Picture, picture
from tokengeom.page.sections.fit_checks import ITEMS, agreements_of
from tokengeom.page.settings import MODEL_NAMES
from tokengeom.statistics.cuts import Effect
from tokengeom.statistics.next_token import OTHER, NextTokenStatistics
from tokengeom.statistics.supports import half_text_correlation, warnings_about

CONTEXTS, FIRST_CONTEXTS, NEXT = 12, 8, 6
"""Most frequent contexts in the table, those shown without unfolding, and next tokens of each."""
TITLES = {
    "versions": "Versions",
    "machine": "Machine",
    "seeds": "Seeds",
    "settings": "Settings",
    "hashes": "Hashes (SHA-256): text, models, stages",
    "seconds": "Seconds per stage",
}


def corpus(page: Page) -> Section:
    """The corpus in numbers."""
    contents = page.contents
    stats = contents.stats
    view = {
        "rows": _rows(contents),
        "sources": [_source(str(source)) for source in stats.corpus.get("sources", [])],
        "effects": [_effect(effect) for effect in stats.effects],
        "choice": contents.choice,
        "candidates": [_candidate(row) for row in contents.choice.candidates],
        "chosen": next((k for k, row in enumerate(contents.choice.candidates) if row.get("chosen") is True), None),
        "warnings": warnings_about(stats),
        "other": other_sentence(stats),
        "sizes": _sizes(contents),
        "contexts": [_context(contents, int(j)) for j in np.argsort(-shares_in_text(stats), kind="stable")[:CONTEXTS]],
        "first": FIRST_CONTEXTS,
        "m": stats.m,
        "share": "of the text's windows" if stats.has_counts else "weight",
        "left_out": bool(stats.left_out.any()),
    }
    return Section("corpus", "The corpus in numbers", view)


def _source(source: str) -> str:
    """A source without its folder: a page may be shared, and folders are private."""
    return PurePath(source).name if PurePath(source).is_absolute() else source


def _rows(contents: ReportContents) -> list[tuple[str, str, str, str]]:
    """Symbol, value, name and meaning."""
    stats, groups = contents.stats, contents.stats.groups
    shared = int(groups.multiplicity[groups.multiplicity > 1].sum())
    named = shared - int(groups.multiplicity[(groups.multiplicity > 1) & supports_with_other(stats)].sum())
    of_shared = f"; without {OTHER} in the support: {named:,}" if stats.other is not None and shared else ""
    mean, uniform = number(float(stats.support_sizes.mean())), math.log(stats.V)
    rows = [("n", f"{stats.n:,}", "windows", "pairs of a context and the token after it")] if stats.has_counts else []
    if stats.coverage is not None:
        rows.append(("", percent(stats.coverage), "of the text's windows", "everything on this page is about these"))
    rows += [
        ("m", f"{stats.m:,}", "distinct contexts", "what a model has to distinguish"),
        *_token_rows(stats),
        ("H", f"{stats.entropy:.4f}", "entropy floor, nats", f"the lowest loss; uniform guess {uniform:.4f}"),
        ("g", f"{groups.count:,}", "support groups", "sets of contexts with the same support"),
        (
            "",
            f"{shared:,}",
            "contexts that share their support",
            f"{percent(shared / stats.m)} of all contexts{of_shared}",
        ),
        ("", percent(stats.one_hot_share), "contexts with a support of one token", "their label is one-hot"),
        ("", _range(stats.support_sizes), "tokens per support", f"smallest, median and largest; mean {mean}"),
    ]
    if stats.merged_share and stats.has_counts:
        rows.append(
            (
                "",
                percent(stats.merged_share),
                f"of the windows kept end in {OTHER}",
                "tokens outside the vocabulary, as one token",
            )
        )
    if stats.completeness is not None:
        missing = percent(stats.completeness.missing_share)
        rows.append(
            ("", missing, "further windows outside the supports", "of these contexts; estimated by Good-Turing")
        )
    return [*rows, *_stability_rows(stats)]


def _token_rows(stats: NextTokenStatistics) -> list[tuple[str, str, str, str]]:
    seen = seen_tokens(stats.P).size
    if seen == stats.V:
        among = "" if stats.other is None else f"; {OTHER} is one of them"
        return [("V", f"{stats.V:,}", "next tokens", f"tokens that follow some context{among}")]
    return [
        ("V", f"{stats.V:,}", "tokens of the vocabulary", "rows of the model's head; all count in the loss"),
        ("", f"{seen:,}", "next tokens", "tokens that follow some context"),
    ]


def other_sentence(stats: NextTokenStatistics) -> str:
    """What the token for merged ones stands for; empty where none were merged."""
    if stats.other is None:
        return ""
    return (
        f"{OTHER} stands for every next token that is not one of the other {stats.V - 1:,}: two contexts that it "
        "follows need not be followed by the same token."
    )


def supports_with_other(stats: NextTokenStatistics) -> Bool:
    """Which distinct supports have the token for merged ones, which may be another token after each context."""
    S = stats.groups.S
    return np.zeros(S.shape[1], np.bool_) if stats.other is None else np.asarray(S[[stats.other]].toarray()[0] > 0)


def shares_in_text(stats: NextTokenStatistics) -> Float:
    """Share of the text's windows with each context, those that cuts left out included; without counts, its weight."""
    if not stats.has_counts:
        return stats.pi
    return (stats.context_counts if stats.text_counts is None else stats.text_counts) / stats.text_windows


def left_out_share(stats: NextTokenStatistics, contexts: Int) -> str:
    """Share of the windows of some contexts that cuts left out; empty where they left out none."""
    if stats.text_counts is None:
        return ""
    share = 1.0 - float(stats.context_counts[contexts].sum() / stats.text_counts[contexts].sum())
    return percent(share) if share else ""


def _stability_rows(stats: NextTokenStatistics) -> list[tuple[str, str, str, str]]:
    """How much the predicted cosines change when half of the windows are taken away."""
    correlation = half_text_correlation(stats.counts) if stats.has_counts else None
    if correlation is None:
        return []
    about = "correlation of the cosines between contexts that the proxy S~ predicts from each; 1 is the same geometry"
    return [("", fixed(correlation, 2), "half of the windows, drawn at random, and all of them", about)]


def _range(sizes: Int) -> str:
    return f"{int(sizes.min()):,} · {float(np.median(sizes)):g} · {int(sizes.max()):,}"


def _effect(effect: Effect) -> dict[str, str]:
    before, after = effect.before, effect.after
    return {
        "cut": effect.cut,
        "windows kept, of those before this cut": percent(after.n / before.n),
        "contexts": f"{before.m:,} → {after.m:,}",
        "vocabulary": f"{before.V:,} → {after.V:,}",
        "entropy floor": f"{before.entropy:.3f} → {after.entropy:.3f}",
    }


def _candidate(row: Mapping[str, Any]) -> dict[str, str]:
    """What was measured of a candidate, as text."""
    texts = {True: "yes", False: "no"}
    return {
        key.replace("_", " "): texts[value] if isinstance(value, bool) else number(value) for key, value in row.items()
    }


def _sizes(contents: ReportContents) -> Picture:
    stats = contents.stats
    sizes, contexts = np.unique(stats.support_sizes, return_counts=True)
    windows = np.array([float(stats.pi[stats.support_sizes == size].sum()) for size in sizes])
    x = sizes.astype(np.float64)
    curves = [
        Curve("share of the contexts", x, contexts / stats.m),
        Curve("share of the windows kept" if stats.has_counts else "share by weight", x, windows),
    ]
    panel = LinePanel("Number of tokens that may follow a context", "tokens in the support", "share", curves)
    caption = (
        f"Support sizes of {count(stats.m, 'context')}. Small supports, compared with the vocabulary, determine more "
        "geometry; contexts with a support of one token are ordinary classification."
    )
    return picture(Figure("support-sizes", "Support sizes", caption, [panel], columns=1), bars=True)


def _context(contents: ReportContents, j: int) -> dict[str, Any]:
    """A context with the shares of its next tokens, which are shares of all its windows in the text."""
    stats = contents.stats
    size, left_out = int(stats.support_sizes[j]), float(stats.left_out[j])
    return {
        "text": stats.context_text(j),
        "share": percent(float(shares_in_text(stats)[j])),
        "size": size,
        "next": [(token, percent(p * (1 - left_out))) for token, p in stats.next_tokens(j, NEXT)],
        "more": max(0, size - NEXT),
        "left_out": percent(left_out) if left_out else "",
    }


def model(page: Page) -> Section:
    """The checkpoints in numbers, what W and H are, and the curve over training."""
    contents = page.contents
    curve, last = contents.curve, list(contents.models.values())[-1]
    known = [read.step is not None for read in contents.models.values()]
    view = {
        "rows": [_model_row(contents, read, any(known)) for read in contents.models.values()],
        "order": "in the order of training" if all(known) else "as given",
        "facts": _model_facts(last),
        "sentences": _model_sentences(last),
        "curve": None if curve is None else picture(checkpoints(curve)),
    }
    return Section("model", "The model" if len(contents.models) == 1 else "The checkpoints", view)


def _model_row(contents: ReportContents, read: ReadModel, with_step: bool) -> dict[str, str]:
    comparison = contents.comparisons.get(read.name)
    agreements = {} if comparison is None else agreements_of(comparison)
    return {
        "checkpoint": read.name,
        **({"step": number(read.step)} if with_step else {}),
        "loss": number(read.loss, 5),
        "loss gap": number(read.loss_gap, 4),
        **{f"agreement of {items}": fixed(agreements[items].value) if items in agreements else DASH for items in ITEMS},
        "verdict": "not compared" if comparison is None else comparison.verdict,
    }


def _model_facts(read: ReadModel) -> list[tuple[str, str]]:
    """Name and value of what is known of the model."""
    (V, d), info = read.W.shape, read.info
    facts = [] if info is None else [("architecture", info.architecture), ("parameters", f"{info.parameters:,}")]
    facts += [("embedding dimension d", f"{d:,}"), ("rows of the head", f"{V if info is None else info.rows:,}")]
    return facts if info is None else [*facts, ("read on", info.device)]


def _model_sentences(read: ReadModel) -> list[str]:
    """What W and H are, what the model read, and how to read its loss."""
    trained = "On which text, how and for how long the model was trained is not known here."
    if read.step is not None:
        saved = f"The model was saved at training step {read.step:,}."
        trained = f"{saved} On which text and how it was trained is not known here."
    return [
        *(f"{part}." for part in read.convention.rstrip(".").split(". ")),
        read.bos_sentence(),
        f"On these windows its loss is {number(read.loss, 5)} nats, {number(read.loss_gap, 4)} above the entropy "
        "floor, with the softmax over all rows of the head.",
        "The entropy floor is that of the windows counted here. Only a model that has memorised these windows reaches "
        "it: one that was trained on other text, or to read longer contexts, is expected to stay above it.",
        trained,
    ]


def methods(page: Page) -> Section:
    """How the numbers were computed, from what, and how to check and cite them."""
    contents = page.contents
    provenance = {**contents.provenance, "settings": _other_settings(contents)}
    ordered = [key for key in TITLES if provenance.get(key)] + [key for key in provenance if key not in TITLES]
    view = {
        "tables": [{"title": TITLES.get(key, key), "rows": flattened(provenance[key])} for key in ordered],
        "runs": [
            {"title": f"Training settings: {name}", "rows": flattened(run.settings)}
            for name, run in contents.trained.items()
        ],
        "counted": contents.stats.has_counts,
        "of_model": bool(contents.models),
        "agrees": f"{AGREES:.0%}",
        "in_part": f"{IN_PART:.0%}",
        "bibtex": cite(),
        "glossary": glossary(contents.noun),
    }
    return Section("methods", "Methods and sources", view)


def _other_settings(contents: ReportContents) -> dict[str, object]:
    """Settings apart from those of the runs, which have tables of their own."""
    settings = dict(contents.provenance.get("settings", {}))
    training = settings.pop("training", {})
    not_run = {
        name: settings for name, settings in training.items() if MODEL_NAMES.get(name, name) not in contents.runs
    }
    return {**settings, **({"training": not_run} if not_run else {})}


def flattened(value: object, path: str = "") -> list[tuple[str, str]]:
    """Nested plain data as rows of a dotted name and a value."""
    if isinstance(value, Mapping):
        return [row for key, item in value.items() for row in flattened(item, f"{path}.{key}" if path else str(key))]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [(path, ", ".join(_plain_text(item) for item in value))]
    return [(path, _plain_text(value))]


def _plain_text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "none" if value is None else str(value)


def glossary(noun: str) -> list[tuple[str, str, str]]:
    """Term, symbol and meaning; ``noun`` is what sentences call that which was compared."""
    return [(term, symbol, meaning.format(noun=noun)) for term, symbol, meaning in texts("glossary.json")]
