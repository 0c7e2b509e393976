"""Reading back what a page, `explain`, `neighbours`, `compare` and `summary` say about a text, against a recount."""

from __future__ import annotations

import html
import json
import math
import re
import struct
from base64 import b64decode
from itertools import combinations
from typing import Any

from recount import OTHER, Recount, entropy, states

SHARE = r"(all|(?:less than |more than )?[\d.]+%)"
"""A share, as written."""


def visible(page: str) -> str:
    """What a reader sees of html, with single spaces."""
    text = re.sub(r"<script.*?</script>|<style.*?</style>", " ", page, flags=re.DOTALL)
    text = re.sub(r"<[^>]*>", " ", re.sub(r"</?su[bp]>", "", text))
    return re.sub(r"\s+", " ", html.unescape(text)).strip()


def whole(number: str) -> int:
    """A whole number as written."""
    return int(number.replace(",", ""))


def _found(pattern: str, text: str) -> re.Match[str]:
    match = re.search(pattern, text)
    assert match, (pattern, text[:2000])
    return match


# ---- the page -------------------------------------------------------------------------------------------------------
def check_page(page: str, truth: Recount) -> None:
    """Every number about the text on a page."""
    words = visible(page)
    _headline(words, truth)
    _facts(page, truth)
    _warnings(words, truth)
    _effects(page, truth)
    _contexts(page, truth)
    _collapse(page, words, truth)
    _concepts(page, truth)
    _pairs(page, truth)
    _explorer(page, truth)


def _headline(words: str, truth: Recount) -> None:
    match = _found(
        rf"([\d,]+) windows? \({SHARE} of the text's(?:; {SHARE} of them end in a token that was merged with others)?"
        r"\), "
        r"([\d,]+) distinct contexts? of (\d+) tokens? and ([\d,]+) possible next tokens?"
        r"( and one token that stands for all others)?\. From",
        words,
    )
    merged = OTHER in truth.next_tokens
    assert whole(match[1]) == truth.n
    assert states(match[2], truth.coverage)
    assert (match[3] is not None) == merged
    assert match[3] is None or states(match[3], truth.merged)
    assert (whole(match[4]), int(match[5])) == (len(truth.contexts), truth.text.context)
    assert (whole(match[6]), match[7] is not None) == (truth.V - merged, merged)


def _facts(page: str, truth: Recount) -> None:
    """The table of the section on the corpus."""
    cell = r'<td class="num">(.*?)</td><td>(.*?): <span class="quiet">(.*?)</span></td>'
    rows = {html.unescape(label): (value, visible(about)) for value, label, about in re.findall(cell, page)}
    sizes = sorted(len(support) for support in truth.supports.values())
    middle = (sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2]) / 2
    mean = sum(sizes) / len(sizes)
    in_shared = sum(map(len, truth.shared))
    assert whole(rows["windows"][0]) == truth.n
    assert states(rows["of the text's windows"][0], truth.coverage)
    assert whole(rows["distinct contexts"][0]) == len(truth.contexts)
    assert whole(rows["next tokens"][0]) == truth.V
    assert (OTHER in rows["next tokens"][1]) == (OTHER in truth.next_tokens)
    assert math.isclose(float(rows["entropy floor, nats"][0]), truth.entropy, abs_tol=5.1e-5)
    assert math.isclose(float(rows["entropy floor, nats"][1].split()[-1]), math.log(truth.V), abs_tol=5.1e-5)
    assert whole(rows["support groups"][0]) == len(truth.groups)
    shared, about = rows["contexts that share their support"]
    assert whole(shared) == in_shared
    assert states(about.split(" of all")[0], in_shared / len(truth.contexts))
    named = re.search(r"in the support: ([\d,]+)", about)
    assert (named is not None) == (OTHER in truth.next_tokens and in_shared > 0)
    if named:
        assert whole(named[1]) == sum(len(group) for group in truth.shared if OTHER not in truth.supports[group[0]])
    assert states(rows["contexts with a support of one token"][0], truth.one_token)
    low, median, high = rows["tokens per support"][0].split(" · ")
    assert (int(low), float(median), int(high)) == (sizes[0], middle, sizes[-1])
    assert math.isclose(float(rows["tokens per support"][1].split()[-1]), mean, rel_tol=6e-3)
    assert (f"of the windows kept end in {OTHER}" in rows) == (OTHER in truth.next_tokens)
    if OTHER in truth.next_tokens:
        assert states(rows[f"of the windows kept end in {OTHER}"][0], truth.merged)
    assert states(rows["further windows outside the supports"][0], truth.once)


def _warnings(words: str, truth: Recount) -> None:
    check_warnings(words, truth)
    if any(len(support) < truth.V for support in truth.supports.values()):
        single = all(len(support) == 1 for support in truth.supports.values())
        assert ("Every support is a single token" in words) == single


def check_warnings(words: str, truth: Recount) -> None:
    """What is said about supports that may be incomplete, supports of all tokens, and short documents."""
    seen = [sum(times == i for times in truth.pairs.values()) for i in range(1, 13)]
    tail = [sum(math.comb(12, j) for j in range(i, 13)) / 2**12 for i in range(1, 13)]
    missing = re.search(r"about (\S+|less than 0\.1%) of further windows of these contexts", words)
    assert (missing is not None) == (truth.once >= 0.01)
    if missing:
        assert states(missing[1], truth.once)
        twice = _found(
            r"Twice the text would add about ([\d,]+) tokens \(standard error ([\d,]+)\) to supports that have "
            rf"([\d,]+) in all \(Good-Toulmin\), in up to {SHARE} of the contexts",
            words,
        )
        expected = sum((-1) ** i * weight * number for i, (weight, number) in enumerate(zip(tail, seen, strict=True)))
        error = math.sqrt(sum(weight**2 * number for weight, number in zip(tail, seen, strict=True)))
        assert abs(whole(twice[1]) - max(expected, 0.0)) <= 0.51
        assert abs(whole(twice[2]) - error) <= 0.51
        assert whole(twice[3]) == len(truth.pairs)
        growing = {context for (context, _), times in truth.pairs.items() if times == 1}
        assert states(twice[4], len(growing) / len(truth.contexts))
    full = sum(len(support) == truth.V for support in truth.supports.values())
    said = re.search(r"([\d,]+) of ([\d,]+) contexts ha(?:s|ve) the whole vocabulary as support", words)
    assert (said is not None) == (0 < full < len(truth.contexts))
    if said:
        assert (whole(said[1]), whole(said[2])) == (full, len(truth.contexts))
    short = re.search(r"([\d,]+) of ([\d,]+) documents (?:is|are) shorter than a window", words)
    assert (short is not None) == (truth.short > 0)
    if short:
        assert (whole(short[1]), whole(short[2])) == (truth.short, len(truth.text.documents))


def _effects(page: str, truth: Recount) -> None:
    """The table of cuts: windows kept, contexts, vocabulary and entropy floor before and after each."""
    part = re.search(r"<th[^>]*>cut</th>.*?</table>", page, flags=re.DOTALL)
    assert part
    assert "next tokens</th>" not in part[0], "a cut of contexts does not say how many next tokens are left"
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t", row) for row in re.findall(r'<tr>(<th scope="row">.*?)</tr>', part[0])]
    everything = {(" ".join(context), token): times for (context, token), times in truth.windows.items()}
    steps = [everything, truth.after_contexts, dict(truth.pairs)]
    known = {token for document in truth.text.documents for token in document}
    assert len(rows) == 2
    for (_, kept, contexts, vocabulary, floors), before, after in zip(rows, steps, steps[1:], strict=False):
        assert states(kept, sum(after.values()) / sum(before.values()))
        assert [whole(one) for one in contexts.split(" → ")] == [len({c for c, _ in part}) for part in (before, after)]
        sizes = [len(known), len(known) if after is truth.after_contexts else truth.V]
        assert [whole(one) for one in vocabulary.split(" → ")] == sizes
        for said, counted in zip(floors.split(" → "), (before, after), strict=True):
            assert abs(float(said) - entropy(counted)) <= 5.1e-4


def _names(part: str, kind: str) -> list[str]:
    """Names of tokens or contexts in a part of a page, whole and in order."""
    return [html.unescape(name) for name in re.findall(rf'<bdi class="{kind}" title="(.*?)">', part)]


def _followed(part: str) -> list[tuple[str, str]]:
    """Tokens in a part of a page, with what is written behind each."""
    found = re.findall(r'<bdi class="tok" title="(.*?)">.*?</bdi> <span class="quiet">(.*?)</span>', part)
    return [(html.unescape(token), said) for token, said in found]


def _contexts(page: str, truth: Recount) -> None:
    """The most frequent contexts, and the shares of their next tokens of all their windows in the text."""
    rows = [row for row in re.findall(r"<tr>(.*?)</tr>", page, flags=re.DOTALL) if 'data-label="support"' in row]
    assert len(rows) == min(12, len(truth.contexts))
    often = sorted((truth.in_text[context] for context in truth.contexts), reverse=True)
    for place, row in enumerate(rows):
        (context,) = _names(row, "ctx")
        share, size = re.findall(r'<td class="num" data-label="[^"]*">(.*?)</td>', row)
        assert truth.in_text[context] == often[place]
        assert states(share, truth.in_text[context] / truth.all_windows)
        assert int(size) == len(truth.supports[context])
        tokens = _followed(row)
        assert len(tokens) == min(6, len(truth.supports[context]))
        assert all(states(said, truth.pairs[context, z] / truth.in_text[context]) for z, said in tokens)
        times = [truth.pairs[context, token] for token, _ in tokens]
        assert times == sorted((n for (c, _), n in truth.pairs.items() if c == context), reverse=True)[: len(times)]
        more = re.search(r"and (\d+) more", row)
        assert (int(more[1]) if more else 0) == len(truth.supports[context]) - len(tokens)
        left_out = re.search(r"\(left out: (.*?)\)", row)
        share_left_out = 1 - truth.contexts[context] / truth.in_text[context]
        assert (left_out is not None) == (share_left_out > 0)
        assert left_out is None or states(left_out[1], share_left_out)


def _collapse(page: str, words: str, truth: Recount) -> None:
    """Groups of contexts with the same support, and that those with merged tokens need not be alike."""
    groups = truth.collapsing
    if not groups:
        assert "Collapse is not defined here" in words
        return
    match = _found(
        r"([\d,]+) contexts of ([\d,]+) share a support \(other than that of all tokens\) with another one, in "
        r"([\d,]+) groups? \(of ([\d,]+) supports? in all\)",
        words,
    )
    assert [whole(match[k]) for k in (1, 2, 3, 4)] == [
        *(sum(map(len, groups)), len(truth.contexts)),
        *(len(groups), len(truth.groups)),
    ]
    merged = [group for group in groups if OTHER in truth.supports[group[0]]]
    said = re.search(r"is in the supports of (all|[\d,]+) of these groups \(([\d,]+) contexts?\)", words)
    assert (said is not None) == bool(merged)
    if said:
        assert (len(groups) if said[1] == "all" else whole(said[1])) == len(merged)
        assert whole(said[2]) == sum(map(len, merged))
    cards = re.findall(r'<article class="group">(.*?)</article>', page, flags=re.DOTALL)
    assert len(cards) == min(12, len(groups))
    with_merged = [OTHER in _names(card, "tok") for card in cards]
    assert with_merged == sorted(with_merged), "groups without merged tokens come first"
    for card in cards:
        contexts, tokens = _names(card, "ctx"), _names(card, "tok")
        support = truth.supports[contexts[0]]
        group = truth.groups[support]
        size, share = _found(
            r"<b>([\d,]+) contexts</b><span class=\"quiet\">(.*?) of the text's windows</span>", card
        ).groups()
        assert whole(size) == len(group)
        assert states(share, sum(truth.in_text[context] for context in group) / truth.all_windows)
        assert set(contexts) <= set(group)
        assert len(contexts) == min(8, len(group))
        assert set(tokens) <= support
        assert len(tokens) == min(8, len(support))
        left_out = re.search(r"which end (.*?) of the windows of these contexts", card)
        share_left_out = 1 - sum(truth.contexts[c] for c in group) / sum(truth.in_text[c] for c in group)
        assert (left_out is not None) == (share_left_out > 0)
        assert left_out is None or states(left_out[1], share_left_out)


def _concepts(page: str, truth: Recount) -> None:
    """Every pair that a concept lists occurs, as often as it says."""
    for part in re.findall(r'<p class="after">(.*?)</p>', page, flags=re.DOTALL):
        (context,) = _names(part, "ctx")
        tokens = _followed(part)
        assert tokens
        assert all(whole(said) == truth.pairs[context, token] > 0 for token, said in tokens)


def _pairs(page: str, truth: Recount) -> None:
    """The most similar pairs have different supports, and share what is said."""
    for kind, mark, inside in (("contexts", "ctx", truth.supports), ("tokens", "tok", truth.follows)):
        table = re.search(rf'<table class="short" id="pairs-{kind}">.*?</table>', page, flags=re.DOTALL)
        rows = [] if table is None else re.findall(r"<tr>(<td>.*?)</tr>", table[0], flags=re.DOTALL)
        cosines = []
        for row in rows:
            a, b = _names(row, mark)
            assert inside[a] != inside[b]
            counted = [inside[a] - {OTHER}, inside[b] - {OTHER}]
            cosine, shared, one, other = _found(r'cosine">(\S+)</td>.*?>(\d+) of (\d+) and (\d+)<', row).groups()
            assert [int(shared), int(one), int(other)] == [len(counted[0] & counted[1]), *map(len, counted)]
            cosines.append(float(cosine.replace("\u2212", "-")))
        assert cosines == sorted(cosines, reverse=True)
        different = sum(inside[a] != inside[b] for a, b in combinations(inside, 2))
        assert len(rows) <= min(10, different)


def _explorer(page: str, truth: Recount) -> None:
    """The data of the explorer: names, shares, sizes of supports, groups, and which tokens follow, how often."""
    match = re.search(r'<script type="application/json" id="explore-data">(.*?)</script>', page, flags=re.DOTALL)
    assert match
    data = json.loads(match[1])
    tokens, contexts = data["tokens"]["names"], data["contexts"]["names"]
    assert (set(tokens), set(contexts)) == (set(truth.next_tokens), set(truth.contexts))
    assert data["tokens"]["other"] == (tokens.index(OTHER) if OTHER in tokens else None)
    for kind, names, often, inside in (
        ("tokens", tokens, truth.next_tokens, truth.follows),
        ("contexts", contexts, truth.in_text, truth.supports),
    ):
        assert all(
            math.isclose(share, often[name] / truth.all_windows, rel_tol=1e-5)
            for name, share in zip(names, _unpacked(data[kind]["share"]), strict=True)
        )
        assert _unpacked(data[kind]["supports"]) == [len(inside[name]) for name in names]
    groups = _unpacked(data["contexts"]["group"])
    for (a, group), (b, other) in combinations(zip(contexts, groups, strict=True), 2):
        same = truth.supports[a] == truth.supports[b] and len(truth.supports[a]) < truth.V
        assert (group == other and group >= 0) == same
    starts, which, counts, shares = (
        _unpacked(data["follows"][name]) for name in ("starts", "tokens", "counts", "shares")
    )
    stored = {
        (contexts[j], tokens[which[k]]): counts[k]
        for j in range(len(contexts))
        for k in range(starts[j], starts[j + 1])
    }
    assert stored == dict(truth.pairs)
    step = data["follows"]["shares"]["step"]
    for j, context in enumerate(contexts):
        for k in range(starts[j], starts[j + 1]):
            assert abs(step * shares[k] - counts[k] / truth.in_text[context]) <= step


def _unpacked(pack: dict[str, Any]) -> list[Any]:
    code = {"float32": "f", "uint32": "I", "int32": "i", "uint16": "H", "int16": "h"}[pack["type"]]
    data = b64decode(pack["packed"])
    return list(struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data))


# ---- summary, the choice of settings, explain, neighbours and compare ------------------------------------------------
def check_summary(summary: str, truth: Recount) -> None:
    """The sentences of statistics."""
    match = _found(r"^([\d,]+) windows? with ([\d,]+) distinct contexts? and ([\d,]+) next tokens? ", summary)
    assert [whole(match[k]) for k in (1, 2, 3)] == [truth.n, len(truth.contexts), truth.V]
    assert abs(float(_found(r"entropy floor is (\S+) nats", summary)[1]) - truth.entropy) <= 5.1e-5
    match = _found(rf"([\d,]+) distinct supports?, with (\S+) tokens per context on average; {SHARE} of the", summary)
    assert whole(match[1]) == len(truth.groups)
    assert abs(float(match[2]) - len(truth.pairs) / len(truth.contexts)) <= 5.1e-3
    assert states(match[3], truth.one_token)
    merged = re.search(rf"{SHARE} of the windows end in {re.escape(OTHER)}", summary)
    assert (merged is not None) == (OTHER in truth.next_tokens)
    assert merged is None or states(merged[1], truth.merged)
    totals = [truth.all_windows, sum(truth.after_contexts.values()), truth.n]
    kept = re.findall(rf"; ([\d,]+) of ([\d,]+) windows remain \({SHARE}\)", summary)
    assert [(whole(after), whole(before)) for after, before, _ in kept] == [*zip(totals[1:], totals, strict=False)]
    assert all(states(share, whole(after) / whole(before)) for after, before, share in kept)
    check_warnings(summary, truth)


def check_choice(reasons: str, truth: Recount) -> None:
    """Why settings were chosen, as far as it is about the text."""
    match = _found(
        rf"supports have (\S+) of (\d+) tokens in the median, {SHARE} have a single token, and {SHARE} of the contexts "
        r"share a support of several tokens",
        reasons,
    )
    sizes = sorted(len(support) for support in truth.supports.values())
    assert float(match[1]) == (sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2]) / 2
    assert int(match[2]) == truth.V
    assert states(match[3], truth.one_token)
    several = sum(len(group) for group in truth.shared if len(truth.supports[group[0]]) > 1)
    assert states(match[4], several / len(truth.contexts))
    assert states(_found(r"These contexts have (.+?) of the text's windows", reasons)[1], truth.coverage)
    merged = re.search(rf"it ends {SHARE} of the windows kept", reasons)
    assert (merged is not None) == (OTHER in truth.next_tokens)
    assert merged is None or states(merged[1], truth.merged)
    left_out = re.search(rf"{SHARE} of the windows of these contexts end in a token that was left out", reasons)
    windows = sum(truth.in_text[context] for context in truth.contexts)
    assert (left_out is not None) == (truth.text.rest == "drop" and windows > truth.n)
    assert left_out is None or states(left_out[1], 1 - truth.n / windows)


def check_context(facts: list[str], context: str, truth: Recount) -> None:
    """The facts that `explain` states of a context."""
    text = " ".join(facts)
    match = _found(rf"It begins {SHARE} of the text's windows \(([\d,]+) windows?\)", text)
    assert states(match[1], truth.in_text[context] / truth.all_windows)
    assert whole(match[2]) == truth.in_text[context]
    support = truth.supports[context]
    match = _found(
        rf"(Only merged tokens|[\d,]+ tokens?)( and merged ones)? may follow it: (.*?)"
        rf"(?:; cuts left out {SHARE} of its windows)?\. ",
        text,
    )
    named = 0 if match[1] == "Only merged tokens" else whole(match[1].split()[0])
    assert named == len(truth.named(context))
    assert (named == 0 or match[2] is not None) == (OTHER in support)
    listed = re.findall(rf"“(.+?)” {SHARE}", match[3])
    assert len(listed) == min(6, len(support))
    assert all(states(said, truth.pairs[context, token] / truth.in_text[context]) for token, said in listed)
    left_out = 1 - truth.contexts[context] / truth.in_text[context]
    assert (match[4] is not None) == (left_out > 0)
    assert match[4] is None or states(match[4], left_out)
    _group(text, truth.groups[support], context)
    assert OTHER not in support or "in which one token stands for all merged ones" in text


def check_token(facts: list[str], token: str, truth: Recount) -> None:
    """The facts that `explain` states of a token."""
    text = " ".join(facts)
    match = _found(rf"It ends {SHARE} of the text's windows, after the contexts kept \(([\d,]+) windows?\)", text)
    assert states(match[1], truth.next_tokens[token] / truth.all_windows)
    assert whole(match[2]) == truth.next_tokens[token]
    match = _found(r"It follows ([\d,]+) contexts?, in this share of their windows: (.*?)\. (?:Tokens|No|\d)", text)
    assert whole(match[1]) == len(truth.follows[token])
    for context, said in re.findall(rf"“(.+?)” {SHARE}", match[2]):
        assert states(said, truth.pairs[context, token] / truth.in_text[context])
    together = {other: len(truth.follows[token] & truth.follows[other]) for other in truth.follows if other != token}
    listed = re.search(r"Tokens that follow the most of these contexts too: (.*?)\. (?:No|\d)", text)
    said_together = re.findall(r"“(.+?)” \(([\d,]+)\)", listed[1]) if listed else []
    assert [whole(number) for _, number in said_together] == sorted(filter(None, together.values()), reverse=True)[:6]
    assert all(whole(number) == together[other] for other, number in said_together)
    _group(text, [other for other in truth.follows if truth.follows[other] == truth.follows[token]], token)


def _group(text: str, group: list[str], own: str) -> None:
    """How many others have the same support, and which."""
    match = re.search(r"([\d,]+) other (?:contexts?|tokens?) (?:has|have) (?:the same|exactly).*?: (.*?)\.$", text)
    assert (match is None) == (len(group) == 1)
    if match:
        assert whole(match[1]) == len(group) - 1
        assert set(re.findall(r"“(.+?)”", match[2])) <= set(group) - {own}
    else:
        assert re.search(r"No other (context|token) has", text)


def check_neighbours(found: Any, truth: Recount) -> None:
    """Supports that neighbours share: merged tokens are not among them."""
    inside = truth.supports if found.item.items == "contexts" else truth.follows
    own = inside[found.item.name] - {OTHER}
    assert found.size == len(own)
    for row in found.rows:
        other = inside[row.name] - {OTHER}
        assert (row.shared, row.size) == (len(own & other), len(other))
    merged = found.item.items == "contexts" and OTHER in truth.next_tokens
    assert ("Merged tokens are not counted" in found.caption) == merged


def check_pulls(report: Any, truth: Recount) -> None:
    """Windows that a reason rests on; those of two or more come first, unless they are small."""
    contexts = report.item.items == "contexts"

    def together(item: str, pull: str) -> int:
        return truth.pairs[(item, pull) if contexts else (pull, item)]

    for pulled in report.pulled:
        for pull in pulled.pulls:
            if pull.members == 1:
                assert pull.windows == min(together(item, pull.name) for item in (report.item.name, pulled.towards))
        sizes = [abs(pull.contribution) for pull in pulled.pulls]
        substantial = [
            size >= 0.25 * max(sizes) and pull.windows >= 2 for size, pull in zip(sizes, pulled.pulls, strict=True)
        ]
        assert substantial == sorted(substantial, reverse=True)


def check_comparison(sentences: str, truth: Recount) -> None:
    """What a comparison says of the text."""
    covered = re.search(
        rf"on contexts that cover {SHARE} of the text(?:; {SHARE} of these windows end in a merged token)?", sentences
    )
    assert covered
    assert states(covered[1], truth.coverage)
    assert covered[2] is None or states(covered[2], truth.merged)
    some = [len(group) for support, group in truth.groups.items() if len(support) < truth.V]
    full = len(truth.contexts) - sum(some)
    match = re.search(
        rf"(\d+) contexts share (\d+) supports, and {SHARE} of the pairs of contexts have the same", sentences
    )
    assert (match is not None) == (max(some) > 1)
    if match:
        pairs = sum(some) * (sum(some) - 1)
        assert (int(match[1]), int(match[2])) == (sum(some), len(some))
        assert states(match[3], sum(size * (size - 1) for size in some) / pairs)
    said = re.search(r"(\d+) of (\d+) contexts have full support", sentences)
    assert (said is not None) == (full > 0)
    if said:
        assert (int(said[1]), int(said[2])) == (full, len(truth.contexts))
