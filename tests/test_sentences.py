"""Every sentence of a comparison, and of the head of a page, states what the numbers say, on ten texts.

A sentence of a verdict must have one of the forms below, and each form is read back: shares, intervals, agreements,
which explanation is best and whether clearly so. No two sentences may contradict each other. What is said about a text,
on the page, in `explain`, `compare` and `summary`, is compared with a recount of ten other texts (`recount`).
"""

from __future__ import annotations

import inspect
import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any, get_args

import numpy as np
import pytest

import recount
import text_sentences
import tokengeom as tg
from page_cases import RUN, contents_of
from recount import states
from text_sentences import SHARE, visible
from tokengeom.ask.named_vectors import Items
from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.verdict import JUDGED, Outcome, explained_together, judge, level_of
from tokengeom.core.progress import SilentProgress
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.corpus.stories import stories
from tokengeom.page.chosen_settings import choose
from tokengeom.page.formatting import fixed, maths, percent
from tokengeom.page.render import render
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.settings import ReportSettings
from tokengeom.page.source_text import SourceText
from tokengeom.page.unseen import KNESER_NEY, TIED, UnseenContexts, sizes, training, without_drawn
from tokengeom.training.simulate import simulated

NAMES = {"contexts": "supports", "tokens": "tokens"}
"""What sentences call a kind of items -> its rows."""


def _words(context: int, contexts: int, vocabulary: int, **options: Any) -> tg.NextTokenStatistics:
    return tg.count(list(islice(stories(3), 400)), context=context, **options).limited(
        top_contexts=contexts, vocabulary=vocabulary
    )


def _drawn(groups: list[int], V: int, size: int, seed: int) -> tg.NextTokenStatistics:
    """Contexts in groups of the given sizes, each with a random support."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((V, sum(groups)), dtype=np.int64)
    start = 0
    for number in groups:
        support = rng.choice(V, size, replace=False)
        for j in range(start, start + number):
            counts[support, j] = rng.integers(1, 9, size)
        start += number
    return tg.NextTokenStatistics.from_counts(counts)


def _shares(V: int, m: int, seed: int) -> tg.NextTokenStatistics:
    """Probabilities without counts."""
    P = np.random.default_rng(seed).dirichlet(np.full(V, 0.2), m).T
    P[P < 0.05] = 0.0
    return tg.NextTokenStatistics.from_probabilities(P / P.sum(axis=0))


def _code() -> tg.NextTokenStatistics:
    return tg.count([inspect.getsource(textwrap)], context=2, tokenizer="code").limited(top_contexts=80, vocabulary=40)


TEXTS: dict[str, Callable[[], tg.NextTokenStatistics]] = {
    "words": lambda: _words(3, 90, 40),
    "short contexts": lambda: _words(1, 40, 60),
    "characters": lambda: _words(3, 80, 24, tokenizer="char"),
    "code": _code,
    "equal groups": lambda: _drawn([2] * 25, 16, 4, 0),
    "a few large groups": lambda: _drawn([40, 30, 20] + [1] * 20, 14, 3, 1),
    "one next token": lambda: _drawn([3] * 12, 12, 1, 2),
    "too few groups": lambda: _drawn([4] * 6, 15, 3, 3),
    "wide supports": lambda: _drawn([1] * 30, 12, 9, 4),
    "probabilities": lambda: _shares(14, 30, 5),
}


def _runs(stats: tg.NextTokenStatistics, kind: str) -> list[Any]:
    rng = np.random.default_rng(8)
    if kind == "gaussian":
        return [(rng.standard_normal((stats.V, 9)), rng.standard_normal((9, stats.m))) for _ in range(2)]
    number, steps = {"one": (1, 150), "two": (2, 400), "five": (5, 60)}[kind]
    options: dict[str, Any] = {"dim": 12, "learning_rate": 1e-2, "steps": steps}
    return [tg.train(stats, "ufm", seed=seed, **options) for seed in range(number)]


@cache
def compared(text: str, kind: str) -> Comparison:
    """The runs of a kind on a text, compared with its prediction."""
    stats = TEXTS[text]()
    return tg.compare(tg.predict(stats, spread_solves=0), _runs(stats, kind), permutations=40)


CASES = [
    (text, kind) for place, text in enumerate(TEXTS) for kind in ("one", "two", "gaussian", "five")[place % 2 :: 2]
]


@pytest.mark.parametrize(("text", "kind"), CASES)
def test_every_sentence_of_a_verdict_states_what_the_numbers_say(text: str, kind: str) -> None:
    comparison = compared(text, kind)
    check_sentences(comparison, comparison.reasons, "run")


def check_sentences(comparison: Comparison, sentences: tuple[str, ...], noun: str) -> None:
    """Read every sentence back; `noun` is what it calls that which was compared."""
    forms = [_headline, _best, _counts, _weighting, _one_training, _dimensions, _not_judged, _norm]
    found: list[str] = []
    for sentence in sentences:
        readers = [form for form in forms if form(comparison, sentence, noun)]
        assert len(readers) == 1, f"not one form, but {len(readers)}: {sentence}"
        found.append(readers[0].__name__ + _about(sentence))
    assert len(found) == len(set(found)), "two sentences answer the same question"
    assert found[0].startswith("_headline")
    for items in unjudged(comparison):
        said = any(sentence.startswith(f"The {items} are not judged") for sentence in sentences)
        assert said or comparison.verdict == "cannot be determined", f"nothing says why {items} are not judged"


def unjudged(comparison: Comparison) -> list[str]:
    """Contexts and tokens that the verdict does not judge."""
    circumstances = comparison.circumstances
    assert circumstances is not None
    counts = {"contexts": circumstances.groups, "tokens": circumstances.V}
    together = explained_together(comparison.targets, comparison.rows)
    return [
        items
        for items, agreement in comparison.judged_agreements.items()
        if counts[items] < 10 or level_of(agreement, together.get(items)) == "not judged"
    ]


def _about(sentence: str) -> str:
    """Which items a sentence of a form that may occur twice is about."""
    match = re.match(
        r"(?:Of the explanations .* the best for|Of what counts explain of the|The) (contexts|tokens)", sentence
    )
    return f" {match[1]}" if match else ""


def _headline(comparison: Comparison, sentence: str, noun: str) -> bool:
    said = {
        "agrees": rf"The prediction.* agrees with the {noun}",
        "agrees in part": rf"The prediction.* agrees in part with the {noun}",
        "does not agree": rf"The prediction.* does not agree with the {noun}",
        "another explanation fits better": rf"Another explanation, (?P<better>.+), fits the {noun} better than the",
        "cannot be determined": rf"Whether the .* agrees with the {noun} cannot be determined: ",
    }
    matches = {outcome: re.match(pattern, sentence) for outcome, pattern in said.items()}
    known = [outcome for outcome, match in matches.items() if match]
    if not known:
        return False
    assert known == [comparison.verdict]
    match = matches[comparison.verdict]
    assert match is not None
    if comparison.verdict == "another explanation fits better":
        assert match["better"] == comparison.better_explanation
    target = comparison.target
    assert target is not None
    assert target.subject in sentence
    for items, agreement in comparison.judged_agreements.items():
        _share(comparison, sentence, items, agreement)
    return True


def _share(comparison: Comparison, sentence: str, items: str, agreement: Agreement) -> None:
    """The share that is explained of contexts or tokens, and its scale."""
    number = r"(-?\d+(?:\.\d+)?)"
    scale = rf"agreement {number}(?:, chance {number})?"
    several = re.search(
        rf"(?:{SHARE}|(none))(?: \[{number}, {number}\])? of the reproducible geometry of {items} "
        rf"\({scale}, attainable {number}",
        sentence,
    )
    one = re.search(
        rf"{SHARE} of the geometry of {items} in this training \({scale}"
        rf"(?:; all explanations by counts together {SHARE})?\)",
        sentence,
    )
    if f"nothing of {items}, whose agreement is not defined" in sentence:
        assert math.isnan(agreement.value)
    elif f"{items} to an unknown share, because trainings agree only {agreement.reproducible:.2f}" in sentence:
        assert agreement.reproducible < 0.1 or agreement.reproducible_low <= 0
    elif several:
        share, none, low, high, mean, chance, attainable = several.groups()
        assert comparison.runs > 1
        assert none if math.isnan(agreement.explained) else states(share, agreement.explained)
        if low is not None:
            assert (low, high) == tuple(f"{100 * end:.0f}" for end in agreement.explained_interval)
            assert float(low) <= float(share.split()[-1].rstrip("%")) <= float(high)
        assert (mean, chance) == (f"{agreement.mean:.2f}", f"{agreement.floor:.2f}")
        assert attainable == f"{math.sqrt(max(agreement.reproducible, 0.0)):.2f}"
    else:
        assert one, sentence
        assert comparison.runs == 1
        share, value, chance, together = one.groups()
        assert states(share, max(agreement.value, 0.0) ** 2)
        assert (value, chance) == (f"{agreement.value:.2f}", f"{agreement.floor:.2f}")
        if together is not None:
            assert states(together, best_together(comparison, items) ** 2)


def best_together(comparison: Comparison, items: str) -> float:
    """Agreement of all explanations together, or of the best one where that is better."""
    counts = comparison.targets["counts"][f"{NAMES[items].removesuffix('s')}_agreement"].value
    single = [row.agreement.fair for row in comparison.rows if row.items == NAMES[items]]
    return max(counts, *(one for one in single if math.isfinite(one)))


def _best(comparison: Comparison, sentence: str, noun: str) -> bool:
    match = re.match(
        r"Of the explanations that need no training, the best for (contexts|tokens) is (.+), (not clearly|clearly) "
        r"ahead of (.+): difference (\S+)(?: \[(.+), (.+)\])?\.$",
        sentence,
    )
    equal = re.match(
        r"Of the explanations that need no training, the best for (contexts|tokens) are equal: (.+\)) and (.+)\.$",
        sentence,
    )
    if match is None and equal is None:
        return False
    assert comparison.target is not None
    items = (match or equal)[1]  # type: ignore[index]
    rows = [row for row in comparison.rows if row.items == NAMES[items] and math.isfinite(row.agreement.value)]
    own = next(row for row in rows if row.rival == comparison.target.info.name)
    rival = max((row for row in rows if not row.ours), key=lambda row: row.agreement.fair)
    lead = rival.agreement.fair - own.agreement.fair
    assert (equal is not None) == (abs(lead) <= 1e-6), "rounding decides nothing"
    if match is None:
        return True
    first, clearly, second = match[2], match[3], match[4]
    shown = [
        f"the prediction ({own.agreement.fair:.2f})",
        f"{rival.rival} ({rival.meaning}; {rival.agreement.fair:.2f})",
    ]
    assert [first, second] == (shown[::-1] if lead > 0 else shown)
    assert math.isclose(float(match[5]), abs(lead), rel_tol=2e-2, abs_tol=1e-9)
    clear = rival.ahead.is_clear if lead > 0 else rival.ahead.high < 0
    assert (clearly == "clearly") == clear
    return True


def _counts(comparison: Comparison, sentence: str, noun: str) -> bool:
    match = re.match(
        rf"Of what counts explain of the (contexts|tokens), all explanations together, the prediction has {SHARE}"
        rf"(?:, and the best single explanation, (.+), {SHARE})?\.$",
        sentence,
    )
    if match is None:
        return False
    assert comparison.runs == 1
    assert comparison.target is not None
    rows = {row.rival: row.agreement.fair for row in comparison.rows if row.items == NAMES[match[1]]}
    own = rows[comparison.target.info.name]
    judged = {row.rival for row in comparison.rows if not row.ours} | {comparison.target.info.name}
    together = best_together(comparison, match[1])
    assert states(match[2], min(max(own, 0.0) / together, 1.0) ** 2)
    best = max((name for name in judged if math.isfinite(rows.get(name, math.nan))), key=lambda name: rows[name])
    assert match[3] == (None if best == comparison.target.info.name else best)
    if match[3]:
        assert states(match[4], min(rows[best] / together, 1.0) ** 2)
    return True


def _weighting(comparison: Comparison, sentence: str, noun: str) -> bool:
    match = re.match(
        r"Each pair of supports counts once here \((\S+)\)\. With each pair of contexts counted once, the agreement is "
        r"(\S+?)(?: \[(\S+), (\S+)\])?\.(?: Then (\d) of \S+ pairs of groups hold (\d+)% of "
        r"the pairs of contexts; .*)?$",
        sentence,
    )
    if match is None:
        return False
    supports, contexts = comparison.support_agreement.value, comparison.context_agreement.value
    assert (match[1], match[2]) == (f"{supports:.2f}", f"{contexts:.2f}")
    assert abs(supports - contexts) >= 0.1
    if match[6] is not None:
        assert int(match[6]) >= 10
    return True


def _one_training(comparison: Comparison, sentence: str, noun: str) -> bool:
    if not sentence.startswith("There is one training: compare with further ones"):
        return False
    assert comparison.runs == 1
    return True


def _dimensions(comparison: Comparison, sentence: str, noun: str) -> bool:
    match = re.match(rf"The {noun} has d=(\d+) dimensions and the prediction needs (\d+): some disagreement", sentence)
    if match is None:
        return False
    circumstances = comparison.circumstances
    assert circumstances is not None
    assert (int(match[1]), int(match[2])) == (circumstances.d, circumstances.rank)
    assert circumstances.d < circumstances.rank
    return True


def _not_judged(comparison: Comparison, sentence: str, noun: str) -> bool:
    match = re.match(r"The (contexts|tokens) are not judged: (.+)\.$", sentence)
    if match is None:
        return False
    assert match[1] in unjudged(comparison)
    _reason(comparison, match[1], match[2])
    return True


def _reason(comparison: Comparison, items: str, why: str) -> None:
    """Why contexts or tokens are not judged."""
    agreement, circumstances = comparison.judged_agreements[items], comparison.circumstances
    assert circumstances is not None
    few = re.match(r"there are only (\d+) (support groups|tokens)", why)
    wide = re.match(rf"the interval of the explained share, {SHARE} to {SHARE}, is too wide", why)
    bounds = re.match(rf"with one training the explained share is only known to be between {SHARE} and {SHARE};", why)
    if few:
        assert int(few[1]) == {"support groups": circumstances.groups, "tokens": circumstances.V}[few[2]] < 10
    elif wide:
        assert all(map(states, (wide[1], wide[2]), agreement.explained_interval))
    elif bounds:
        assert comparison.runs == 1
        assert states(bounds[1], agreement.value**2)
    elif why.startswith("too little is reproducible"):
        assert f"(trainings agree {agreement.reproducible:.2f})" in why
    else:
        assert why == "the predicted cosines do not vary, so that there is nothing to correlate"
        assert math.isnan(agreement.value)


def _norm(comparison: Comparison, sentence: str, noun: str) -> bool:
    match = re.match(
        r".*\((\S+) for contexts and (\S+) for tokens\); "
        r"the (\S+) norm gives (\S+) for contexts and (\S+) for tokens\.$",
        sentence,
    )
    if match is None:
        return False
    other = {"nuclear": "nuclear", "gamma_2": "gamma2"}[match[3]]
    assert comparison.norm not in (None, other)
    tables = [comparison.targets[str(comparison.norm)], comparison.targets[other]]
    numbers = [f"{table[f'{item}_agreement'].fair:.2f}" for table in tables for item in ("support", "token")]
    assert numbers == [match[1], match[2], match[4], match[5]]
    return True


@pytest.mark.parametrize("text", TEXTS)
def test_every_sentence_of_a_page_states_what_the_numbers_say(text: str) -> None:
    kind = "two" if list(TEXTS).index(text) % 2 else "one"
    comparison = compared(text, kind)
    made = contents_of(TEXTS[text](), steps=20)
    contents = replace(made, comparisons={RUN: comparison}, at_loss={RUN: comparison.at})
    words = visible(render(contents))
    verdict = comparison.judged()
    assert verdict is not None
    assert (verdict.outcome, verdict.reasons) == (comparison.verdict, comparison.reasons[: len(verdict.reasons)])
    # A page shows formulas in their own form, such as S~; sentences are looked for in the same form.
    shown = [reason for reason in contents.reasons(RUN) if visible(str(maths(reason))) in words]
    assert shown[0] == comparison.reasons[0], "the page begins with the verdict"
    check_sentences(comparison, tuple(shown), "run")
    # Every share with an interval, wherever it stands on the page, is one of the measured ones.
    numbers = [*comparison.agreements.values(), *(row.agreement for row in comparison.rows)]
    known = {agreement.explained_text() for agreement in numbers}
    for share in re.findall(r"(?:(?:less|more) than )?\d+% \[\d+, \d+\]", words):
        assert share in known, share
    others = {outcome for outcome in get_args(Outcome) if f"verdict: {outcome}" in words.lower()}
    assert others <= {comparison.verdict}
    if comparison.runs == 1:
        assert "of the reproducible geometry of contexts (" not in words


def _tied(text: str) -> UnseenContexts | None:
    """Features trained on a text; None where it has no tokens or too few contexts."""
    longer = {"words": _words(3, 500, 60), "characters": _words(3, 400, 24, tokenizer="char")}
    cut = longer.get(text) or TEXTS[text]()
    if sizes(cut, given=cut) is None:
        return None
    counted = without_drawn(cut)
    return UnseenContexts(cut, simulated(counted, training(counted, "cpu"), None, 1))


@pytest.mark.parametrize("text", TEXTS)
def test_every_sentence_on_contexts_that_were_held_out_states_what_a_recount_says(text: str) -> None:
    known = _tied(text)
    assert (known is not None) == (text in ("words", "characters"))
    if known is None:
        return
    words = visible(render(replace(contents_of(TEXTS[text](), steps=20), unseen=known)))
    cut, tokens = known.cut, known.cut.contexts
    assert tokens is not None
    assert known.counted.contexts is not None
    table, counted = cut.table.toarray(), {tuple(row) for row in known.counted.contexts}
    out = [j for j in range(cut.m) if tuple(tokens[j]) not in counted]
    windows = table[:, out]
    assert f"its own cut of the text, {cut.m:,} contexts and {cut.V:,} next tokens: they have " in words
    ends = "none of these windows ends in a token that stands for others"
    if cut.other is not None:
        merged = percent(table[cut.other].sum() / table.sum())
        ends = f"{merged} of these windows end in the token that stands for all others"
    assert f"of the text's windows, and {ends}." in words
    assert f"{len(out):,} contexts, drawn at random with a fixed seed, were held out" in words
    said = f"on what is left, {len(counted):,} contexts, to a loss gap of {fixed(known.tied.loss_gap, 3)} nats"
    assert said in words
    assert f"about the {int(windows.sum()):,} windows" in words
    losses, right, followed = {}, {}, windows / windows.sum(axis=0)
    for name, log_p in known.log_probabilities(slice(None)).items():
        assert np.allclose(np.exp(log_p).sum(axis=0), 1.0)
        losses[name] = -float((windows * np.where(windows > 0, log_p, 0.0)).sum() / windows.sum())
        right[name] = float(sum(windows[log_p[:, k].argmax(), k] for k in range(len(out))) / windows.sum())
        apart = float((abs(np.exp(log_p) - followed).sum(axis=0) / 2) @ windows.sum(axis=0) / windows.sum())
        assert f"{name} {fixed(losses[name], 3)} {percent(right[name])} {fixed(apart, 3)}" in words
    match = re.search(r"Lowest loss: (.+?)\. Most often right: (.+?)\. The loss of .+? is (\S+) nats", words)
    assert match is not None
    assert min(losses, key=lambda name: losses[name]) in match[1]
    assert max(right, key=lambda name: right[name]) in match[2]
    assert match[3] == fixed(losses[TIED] - losses[KNESER_NEY], 3)


@cache
def made(name: str) -> ReportContents:
    """Contents of a page about a text with known tokens, with settings that were chosen for it."""
    text, truth = recount.TEXTS[name], recount.Recount(recount.TEXTS[name])
    cut = {"top_contexts": truth.top, "vocabulary": truth.tokens, "rest": text.rest}
    given: dict[str, Any] = {"context": text.context, "tokenizer": text.tokenizer, **cut}
    source = SourceText(text.written, name, "", ReadingSettings())
    choice = choose(source, ReportSettings(**given), SilentProgress())
    return contents_of(tg.count(text.written, **given), steps=20, choice=choice)


@cache
def page_about(name: str) -> str:
    return render(made(name))


@pytest.mark.parametrize("name", recount.TEXTS)
def test_everything_said_about_a_text_is_what_a_recount_says(name: str) -> None:
    truth, contents = recount.Recount(recount.TEXTS[name]), made(name)
    text_sentences.check_page(page_about(name), truth)
    text_sentences.check_summary(contents.stats.summary(), truth)
    text_sentences.check_choice(" ".join(contents.choice.reasons), truth)
    comparison = contents.comparisons[RUN]
    text_sentences.check_comparison("\n".join([*comparison.reasons, *comparison.limitations]), truth)
    judged = next((at for at in contents.at_loss[RUN] if at.norm == comparison.norm), contents.prediction)
    kinds: tuple[Items, ...] = ("contexts", "tokens")
    for items in kinds:
        cosines = re.findall(r'data-label="cosine">([^<]+)<', page_about(name).partition(f'"pairs-{items}"')[2])
        expected = [row.cosine for row in judged.pairs(10, items, contents.stats).rows]
        shown = [float(one.replace("\u2212", "-")) for one in cosines[: len(expected)]]
        assert np.allclose(shown, expected, atol=1.1e-3)
    questions: dict[Items, Counter[str]] = {"contexts": truth.contexts, "tokens": truth.next_tokens}
    for items, names in questions.items():
        for asked in [one for one, _ in names.most_common()][:: max(1, len(names) // 4)]:
            report = contents.prediction.explain(asked, k=6, items=items)
            check = text_sentences.check_context if items == "contexts" else text_sentences.check_token
            check(report.facts(), asked, truth)
            text_sentences.check_pulls(report, truth)
            text_sentences.check_neighbours(report.neighbours, truth)
            text_sentences.check_neighbours(contents.prediction.neighbours(asked, items=items), truth)


@pytest.mark.parametrize("name", ["split already", "case"])
def test_cosines_and_agreements_are_those_of_plain_loops_over_w_and_h(name: str) -> None:
    truth, contents = recount.Recount(recount.TEXTS[name]), made(name)
    stats, run, comparison = contents.stats, contents.runs[RUN], contents.comparisons[RUN]
    judged = next((at for at in contents.at_loss[RUN] if at.norm == comparison.norm), contents.prediction)
    names = [stats.context_text(j) for j in range(stats.m)]
    supports = [frozenset(token for context, token in truth.pairs if context == one) for one in names]
    heads = [recount.without_mean(W.tolist()) for W in (judged.W, run.W)]
    kinds: dict[Items, tuple[list[str], list[object], recount.Vectors, recount.Vectors]] = {
        "contexts": (names, [*supports], judged.H.T.tolist(), run.H.T.tolist()),
        "tokens": (list(stats.vocabulary), list(range(stats.V)), heads[0], heads[1]),
    }
    for items, (known, unit, predicted, trained) in kinds.items():
        said = comparison.context_agreement if items == "contexts" else comparison.token_agreement
        assert said.value == pytest.approx(recount.agreement(predicted, trained, unit), abs=1e-6)
        for row in judged.pairs(10, items, stats).rows:
            i, j = known.index(row.first), known.index(row.second)
            assert row.cosine == pytest.approx(recount.cosine(predicted[i], predicted[j]), abs=1e-6)


def test_the_counts_of_a_comparison_of_two_texts_are_those_of_a_recount() -> None:
    whole = replace(recount.TEXTS["case"], top_contexts=None, vocabulary=None)
    (words,) = whole.documents
    texts = [replace(whole, documents=[part]) for part in (words[:90], [*words[60:], "a", "new", "word", "here"])]
    counted = [tg.count(text.written, context=2, tokenizer="whitespace") for text in texts]
    found = tg.compare_texts(*counted, permutations=0, halves=False, top=3)
    pairs = [recount.Recount(text).pairs for text in texts]
    shared = recount.shared(*pairs)
    contexts, tokens = ({pair[part] for pair in shared[0]} for part in (0, 1))
    said = " ".join(found.summary().split())
    assert f"The texts share {len(tokens):,} tokens and {len(contexts):,} contexts" in said
    for side, (one, alone) in enumerate(zip((found.first, found.second), pairs, strict=True)):
        here, there = shared[side], shared[1 - side]
        assert (one.tokens, one.contexts) == tuple(len({pair[part] for pair in alone}) for part in (1, 0))
        assert (one.windows, one.all_windows) == (sum(here.values()), sum(alone.values()))
        assert one.only_pairs == len(here.keys() - there.keys())
        assert one.only_once == sum(here[pair] == 1 for pair in here.keys() - there.keys())


@pytest.mark.parametrize("name", recount.TEXTS)
def test_what_is_said_about_context_lengths_is_what_a_recount_says(name: str) -> None:
    text = recount.TEXTS[name]
    source = SourceText(text.written, name, "", ReadingSettings())
    given: dict[str, Any] = {"tokenizer": text.tokenizer, "rest": text.rest}
    choice = choose(source, ReportSettings(**given), SilentProgress())
    cut = {key: choice.settings[key] for key in ("top_contexts", "vocabulary")}
    said = re.findall(r"(\d): (\S+) of the windows, score (\S+), gain", " ".join(choice.reasons))
    assert str(choice.settings["context"]) in [length for length, _, _ in said]
    for length, coverage, score in said:
        truth = recount.Recount(replace(text, context=int(length), **cut))
        if truth.top != min(cut["top_contexts"], len(truth.in_text)):
            continue  # Contexts around the cut are equally frequent: which of them are kept is not known.
        assert recount.states(coverage, truth.coverage)
        assert abs(float(score) - truth.score) <= 5.1e-4


@pytest.mark.parametrize(
    ("true", "wrong"),
    [
        (r"[\d.]+% of the text&#39;s;", "12% of the text&#39;s;"),
        (r"(?<=<td class=\"num\" data-label=\"contexts\">)\d+ → \d+", "99 → 40"),
        (r"of these groups \(\d+ contexts", "of these groups (99 contexts"),
        (r"(?<=<span class=\"quiet\">)\d+(?=</span></span>)", "777"),
        (r">\d+ of (\d+) and (\d+)<", r">0 of \1 and 99<"),
        (r'"other": ?\d+', '"other": null'),
    ],
)
def test_the_reader_of_a_page_finds_a_number_that_is_wrong(true: str, wrong: str) -> None:
    page, truth = page_about("split already"), recount.Recount(recount.TEXTS["split already"])
    changed = re.sub(true, wrong, page, count=1)
    assert changed != page
    with pytest.raises(AssertionError):
        text_sentences.check_page(changed, truth)


def test_the_reader_of_sentences_finds_a_number_that_is_wrong() -> None:
    comparison = compared("words", "two")
    share = f"{100 * comparison.judged_agreements['contexts'].explained:.0f}%"
    wrong = comparison.reasons[0].replace(share, "12%")
    with pytest.raises(AssertionError):
        check_sentences(comparison, (wrong, *comparison.reasons[1:]), "run")
    with pytest.raises(AssertionError, match="not one form"):
        check_sentences(comparison, (*comparison.reasons, "A sentence that nobody reads back."), "run")


def test_explanations_that_differ_by_rounding_are_called_equal() -> None:
    comparison = compared("words", "two")
    assert comparison.evidence is not None
    rows = tuple(replace(row, ahead=replace(row.ahead, value=1e-14)) for row in comparison.rows)
    said = " ".join(judge(replace(comparison.evidence, rows=rows)).reasons)
    assert said.count("are equal: the prediction (") == 2
    assert "ahead of" not in said


def test_both_kinds_of_items_that_are_judged_have_rows() -> None:
    assert {row.items for row in compared("words", "two").rows} >= set(JUDGED)
