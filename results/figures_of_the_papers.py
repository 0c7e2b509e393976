"""Pictures and numbers of docs/results/figures_of_the_papers.md.

``python results/figures_of_the_papers.py`` draws the pictures in docs/results/figures/ and fills the page's table from
what is kept in results/figures_of_the_papers: one row per part with its numbers, and each figure as data. Nothing is
trained. ``--measure [NAME...]`` trains the small recipes of all parts, or of those named, in a few minutes on a CPU,
and adds their rows. Natural stories come from the rows in results/papers_tinystories.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from tokengeom import Factors, FeaturePrediction, NextTokenStatistics, Run, predict
from tokengeom.extending import (
    Bool,
    Figure,
    Float,
    HeatmapPanel,
    Points,
    ScatterPanel,
    SilentProgress,
    cosines,
    draw,
    evolution,
    feature_order,
    feature_training,
    labelled_contexts,
    labelled_tokens,
    pattern_triple,
    unit_columns,
)
from tokengeom_studies.base import Findings, find_study
from tokengeom_studies.common.figure_data import load_data, save_data
from tokengeom_studies.common.measured import SETTING, AbstractMeasuredStudy, Rows, machine
from tokengeom_studies.common.model_runs import (
    Snapshots,
    count_stories,
    train_and_compare,
    train_ufm_and_compare,
    with_probabilities_of,
)
from tokengeom_studies.common.random_data import random_setting, repeated

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results" / "figures_of_the_papers.md"
PICTURES = ROOT / "docs" / "results" / "figures"
KEPT = ROOT / "results" / "figures_of_the_papers"
"""Rows, one per part that was measured, and a folder of data per figure."""
DOTS_PER_INCH = 60
FOR_NAMES = {"labelled-contexts": 90, "labelled-tokens": 90, "context-token-angles": 90}
"""Dots per inch of pictures with many names."""
DIGITS = 3
"""Decimals of the cells of a heat-map that are kept: less than a step of its colours."""

MOST_PAIRS = 400
"""Pairs of each kind in the picture of angles; of more, this many are drawn with a fixed seed."""

COUNTER_EXAMPLE = np.array([[1, 1, 1], [0, 1, 0], [0, 0, 1], [0, 0, 0]])
"""Supports {1}, {1, 2} and {1, 3} of 4 tokens; studies/tests/test_proxy_excess.py tries all smaller patterns."""

Number = tuple[str, str, str, str]
"""Quantity, what a source reports, ours, and whether they agree."""


def keep(figure: Figure, name: str) -> None:
    """Keep a figure as data, heat-maps rounded."""
    panels = [
        replace(panel, values=np.round(panel.values, DIGITS)) if isinstance(panel, HeatmapPanel) else panel
        for panel in figure.panels
    ]
    save_data(replace(figure, name=name, panels=panels), KEPT / name)


def save(figure: Figure, name: str) -> None:
    """Draw a figure small, without its caption."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    draw(figure, caption=False).savefig(PICTURES / f"{name}.png", dpi=FOR_NAMES.get(name, DOTS_PER_INCH))


def of_study(name: str, **pictures: str) -> Findings:
    """Run the small recipe of a study; ``pictures`` are names of its figures and of those to keep."""
    study = find_study(name)
    findings = study.run(study.recipe("small"), SilentProgress())
    drawn = {figure.name: figure for figure in findings.figures}
    for file, figure in pictures.items():
        keep(drawn[figure], file.replace("_", "-"))
    return findings


def value(findings: Findings, name: str) -> float:
    """A number that a study checked."""
    (number,) = [check.value for check in findings.numbers if check.name == name]
    return number


def same(agrees: bool) -> str:
    """The last column of the table."""
    return "yes" if agrees else "no"


def plane() -> Iterator[Number]:
    """Paper 1, figures 1 and 2."""
    findings = of_study("linear-2d", linear_plane="linear-plane")
    wrong = value(findings, "sets of angles classified differently from the paper")
    yield "plane: sets of angles, separable or not", "4 are, 3 are not", f"{7 - wrong:.0f} of 7 equal", same(wrong == 0)
    entropy = value(findings, "entropy in nats (0.8811 in the paper)")
    yield "plane: entropy, nats", "0.8811", f"{entropy:.4f} (probabilities chosen to give it)", "by construction"
    apart = value(findings, "distance between tokens 1 and 5 in W^mm")
    yield "plane: tokens with equal contexts share a row of W^mm", "yes", f"distance {apart:.0e}", same(apart < 1e-9)


def overparameterised() -> Iterator[Number]:
    """Paper 1, figures 4 and 5."""
    findings = of_study("linear-overparameterised", linear_training="linear-training")
    for optimizer in ("gd", "ngd", "adam"):
        gap, cosine = (value(findings, f"{optimizer}: median {name}") for name in ("loss_gap", "cosine_without_finite"))
        yield (
            f"linear, {optimizer}: loss and direction after 10,000 steps",
            "loss near H; direction near W^mm; no values in the text",
            f"loss gap {gap:.1e}, cos(W - W*, W^mm) {cosine:.3f} (medians of 25 seeds)",
            same(gap < 5e-3 and cosine > 0.9),
        )


def examples() -> Iterator[Number]:
    """Paper 1, figure 3: eight contexts of the data with more dimensions than contexts."""
    recipe = find_study("linear-overparameterised").recipe()
    sizes = {name: recipe[name] for name in ("V", "m", "d", "support_size", "n")}
    drawn = [random_setting(seed, **sizes).stats for seed in range(recipe["seeds"])]
    P, panels = drawn[0].P.toarray(), []
    for j in np.sort(np.random.default_rng(0).choice(recipe["m"], 8, replace=False)):
        support = np.flatnonzero(P[:, j])
        points = [Points("probability", support + 1.0, P[support, j])]
        panels.append(ScatterPanel(f"context {j + 1}", "tokens of the support", "probability", points))
    caption = "Eight contexts, drawn at random, with the tokens of their supports and the empirical probabilities."
    keep(Figure("linear-examples", "Contexts of the linear model", caption, panels, columns=4), "linear-examples")
    entropies = [stats.entropy for stats in drawn]
    yield (
        "linear, the data: entropy, nats",
        "about 1.445, one draw",
        f"{np.mean(entropies):.3f} ({min(entropies):.3f} to {max(entropies):.3f} over {len(drawn)} seeds)",
        same(min(entropies) <= 1.445 <= max(entropies)),
    )


def synthetic() -> Iterator[Number]:
    """Paper 2, synthetic data."""
    findings = of_study("ufm-synthetic", synthetic_training="feature-training", synthetic_heatmaps="feature-heatmaps")
    gap, similarity = value(findings, "median loss gap"), value(findings, "median SIM(H, H_mm)")
    yield (
        "synthetic, UFM: loss gap and SIM of contexts with L^mm",
        "loss reaches H; SIM near 1; no values in the text",
        f"{gap:.1e} nats; {similarity:.3f} (medians of 8 draws)",
        same(gap < 1e-3 and similarity > 0.9),
    )


def symmetric() -> Iterator[Number]:
    """Paper 2 and talk, closed form."""
    findings = of_study("ufm-symmetric", symmetric_supports="ufm-symmetric-tokens")
    frame = value(findings, "tokens: distance from an equiangular frame")
    yield "all supports of size k: tokens equiangular", "yes (proven)", f"to {frame:.0e}", same(frame < 1e-6)
    aligned = value(findings, "contexts: 1 - cosine with the sum of their tokens")
    yield "the same: context along the sum of its tokens", "yes (proven)", f"to {aligned:.0e}", same(aligned < 1e-6)


def proxies() -> Iterator[Number]:
    """Paper 2, figure 10: the smallest pattern of supports in which the proxy is not optimal."""
    stats = NextTokenStatistics.from_counts(COUNTER_EXAMPLE)
    prediction = predict(stats)
    keep(pattern_triple(prediction, stats=stats), "proxy-counter-example")
    excess = prediction.proxy_nuclear_norm / prediction.nuclear_norm - 1
    yield (
        "proxy not optimal in some patterns",
        "examples shown",
        f"smallest one: 4 tokens, 3 contexts, norm {excess:.2%} above the optimum",
        same(excess > 0),
    )


def path() -> Iterator[Number]:
    """Talk, sparse plus low-rank along the regularisation path."""
    findings = of_study("path-vs-gd", path="path")
    last = value(findings, "path: last cos(L, L_mm)")
    yield "path: cos(L, L^mm) as lambda falls", "tends to 1", f"{last:.4f} at lambda = 1e-12", same(last > 0.99)


def stories() -> Iterator[Number]:
    """Paper 2 and talk, simplified stories: supports, proxy and L^mm."""
    stats = count_stories(find_study("ufm-simplified-stories").recipe(), SilentProgress())
    prediction = predict(stats)
    keep(pattern_triple(prediction, stats=stats), "pattern-triple")
    excess = prediction.proxy_nuclear_norm / prediction.nuclear_norm - 1
    yield (
        "simplified stories: norm of S~ above that of L^mm",
        "0.64% (199.141 and 197.881; m = 403, V = 104)",
        f"{excess:.2%} ({prediction.proxy_nuclear_norm:.1f} and {prediction.nuclear_norm:.1f}; m = {stats.m}, "
        f"V = {stats.V})",
        "close; other data",
    )
    S_tilde = stats.S.toarray() - stats.S.toarray().mean(axis=0)
    L_mm = prediction.L_mm - prediction.L_mm.mean(axis=0)
    distance = np.linalg.norm(S_tilde / np.linalg.norm(S_tilde) - L_mm / np.linalg.norm(L_mm))
    yield (
        "the same: distance of normalised S~ and L^mm; rank of L^mm",
        "0.163; 30",
        f"{distance:.3f}; {prediction.rank}",
        "no: the rank follows from the number of supports, about 40 there and 118 here",
    )


def support_heatmaps(prediction: FeaturePrediction, runs: Mapping[str, Run], stats: NextTokenStatistics) -> Figure:
    """Cosines between contexts and between tokens: of each run (by name), of L^mm, and of columns and rows of S."""
    sources = {name: Factors.of(run) for name, run in runs.items()} | {"L^mm": Factors(prediction.W, prediction.H)}
    S = np.asarray(prediction.P.toarray() > 0).astype(np.float64)
    order = feature_order(prediction, stats)
    panels = [
        *(order.context_cosines(f"cos(H, H): {name}", factors.H) for name, factors in sources.items()),
        order.context_cosines("cos(S, S): overlap of supports", S),
        *(order.token_cosines(f"cos(W, W): {name}", factors.tokens.T) for name, factors in sources.items()),
        order.token_cosines("cos(S^T, S^T): shared contexts", S),
    ]
    caption = (
        "Cosines between contexts (top) and between tokens (bottom; the mean over tokens removed): "
        f"{', '.join(runs)} and L^mm. Right: cosines of the columns and rows of the supports S, which are 0 or more, "
        f"since they count what two supports share. {order.sentence()}"
    )
    title = "Geometry found, geometry predicted, and overlaps of supports"
    return Figure("support-heatmaps", title, caption, panels, columns=len(sources) + 1)


def context_token_angles(prediction: FeaturePrediction, factors: Factors) -> Figure:
    """Cosine of each context with each token, predicted in the limit and found, in and off the support."""
    factors.require_sizes(prediction.reduction.V, prediction.reduction.m)
    x, y = context_token_cosines(Factors(prediction.W, prediction.H)), context_token_cosines(factors)
    S = np.asarray(prediction.P.toarray() > 0)
    generator = np.random.default_rng(0)
    kinds = {"tokens that may follow": S, "other tokens": ~S}
    points = [sampled(label, x, y, pairs, generator) for label, pairs in kinds.items()]
    panel = ScatterPanel("Contexts and tokens", "predicted cosine (L^mm)", "cosine found", points)
    means = "; ".join(
        f"{label}: predicted {x[pairs].mean():.3f}, found {y[pairs].mean():.3f}" for label, pairs in kinds.items()
    )
    caption = (
        "One point per pair of a context and a token: the cosine between them in the limit of training, and in the "
        f"trained model (the mean over tokens removed). Mean cosines: {means}. A context is nearer to every token that "
        f"may follow it than to all others in {ordered(x, S):.0%} of the contexts as predicted, and in "
        f"{ordered(y, S):.0%} as found. At most {MOST_PAIRS} pairs of each kind are shown."
    )
    return Figure("context-token-angles", "Angles between contexts and tokens", caption, [panel], columns=1)


def context_token_cosines(factors: Factors) -> Float:
    """Cosine of each token with each context, V x m; the mean over tokens is removed."""
    return np.asarray(unit_columns(factors.tokens).T @ unit_columns(factors.H))


def ordered(C: Float, S: Bool) -> float:
    """Share of contexts whose smallest cosine in the support is above the largest off it; full supports left out."""
    some = S.any(axis=0) & ~S.all(axis=0)
    lowest, highest = np.where(S, C, np.inf).min(axis=0), np.where(S, -np.inf, C).max(axis=0)
    return float(np.mean((lowest > highest)[some])) if some.any() else float("nan")


def sampled(label: str, x: Float, y: Float, pairs: Bool, generator: np.random.Generator) -> Points:
    """The pairs of one kind as points, or some of them."""
    which = np.flatnonzero(pairs)
    if which.size > MOST_PAIRS:
        which = np.sort(generator.choice(which, MOST_PAIRS, replace=False))
    return Points(label, x.ravel()[which], y.ravel()[which])


def networks() -> Iterator[Number]:
    """Paper 2 and talk: transformer, UFM, L^mm and supports side by side; labelled heat-maps; angles."""
    recipe = {**find_study("networks-simplified-stories").recipe(), "draws": 20}
    natural = count_stories(recipe, SilentProgress())
    stats = repeated(natural, recipe["seed"], recipe["repeats"])
    prediction = with_probabilities_of(stats, predict(natural))
    kept = Snapshots(round(share * recipe["steps"]) for share in (0.0, 0.03, 0.2, 1.0))
    progress = SilentProgress()
    network = train_and_compare(stats, prediction, recipe, probes={"snapshots": kept}, progress=progress)
    ufm = train_ufm_and_compare(stats, prediction, recipe, progress)
    runs = {"transformer": network.run, "UFM": ufm.run}
    keep(support_heatmaps(prediction, runs, stats), "support-heatmaps")
    keep(feature_training(runs), "feature-training")
    keep(evolution(kept.taken, prediction, stats=stats), "evolution")
    keep(labelled_contexts(prediction, natural, run=network.run), "labelled-contexts")
    keep(labelled_tokens(prediction, natural, run=network.run, most=30), "labelled-tokens")
    keep(context_token_angles(prediction, Factors.of(network.run)), "context-token-angles")
    reported = {
        "transformer": "1.6159 after 10,000 steps, 1.6156 after 50,000; entropy 1.6156",
        "UFM": "falls to H; no values in the text",
    }
    for name, trained in (("transformer", network), ("UFM", ufm)):
        comparison, gap = trained.comparison, trained.run.trajectory["loss_gap"][-1]
        yield (
            f"stories, {name}: loss gap at the end",
            reported[name],
            f"{gap:.1e} after {recipe['steps' if name == 'transformer' else 'ufm_steps']:,} steps",
            "not tested: a shorter run",
        )
        contexts, tokens = comparison.context_similarity.value, comparison.token_similarity.value
        yield (
            f"stories, {name}: SIM with L^mm, contexts and tokens",
            "heat-maps look alike; no values in the text",
            f"{contexts:.3f} and {tokens:.3f}",
            same(min(contexts, tokens) > 0.7),
        )
    C, group = cosines(network.run.H), np.asarray(prediction.context_groups)
    pairs = (group[:, None] == group) & (group >= 0) & ~np.eye(group.size, dtype=bool)
    yield (
        "stories, transformer: mean cosine of contexts with the same support",
        "collapse to 1 in the limit",
        f"{C[pairs].mean():.3f}; with different supports {C[group[:, None] != group].mean():.3f}",
        same(C[pairs].mean() > 0.8),
    )
    S = prediction.P.toarray() > 0
    angles = context_token_cosines(Factors.of(network.run))
    yield (
        "stories, transformer: cosines of contexts with tokens, in and off the support",
        "no values in the text",
        f"{angles[S].mean():.3f} and {angles[~S].mean():.3f}",
        "",
    )


def natural_stories() -> Iterator[Number]:
    """Paper 2, natural TinyStories, from the kept rows of its study."""
    study = find_study("papers-tinystories")
    assert isinstance(study, AbstractMeasuredStudy)
    findings = study.from_kept(ROOT / "results" / "papers_tinystories")
    for figure in findings.figures:
        save(figure, f"natural-stories-{figure.name}")
    rows = {row[0]: row for row in zip(*findings.tables["hypotheses"].values(), strict=True)}
    blocks = next(row for statement, row in rows.items() if "as in the papers' heat-map" in statement)
    yield (
        "natural stories: blocks of the heat-map",
        "blocks are visible; no values in the text",
        str(blocks[3]),
        str(blocks[2]),
    )


PARTS: dict[str, Callable[[], Iterator[Number]]] = {
    part.__name__: part
    for part in (
        plane,
        examples,
        overparameterised,
        synthetic,
        symmetric,
        proxies,
        path,
        stories,
        networks,
    )
}
"""Parts that are measured, each with what it keeps."""


def write_table(numbers: list[Number]) -> None:
    """Put the table of numbers into the page, between its markers."""
    rows = (f"| {' | '.join(row)} |" for row in numbers)
    lines = ["| quantity | source | ours | agree |", "|---|---|---|---|", *rows]
    page = PAGE.read_text(encoding="utf-8")
    block = "\n".join(["<!-- table numbers -->", *lines, "<!-- end -->"])
    changed = re.sub(r"<!-- table numbers -->.*?<!-- end -->", lambda _: block, page, count=1, flags=re.DOTALL)
    PAGE.write_text(changed, encoding="utf-8")


def measure(names: list[str]) -> None:
    """Train the small recipes of the named parts, or of all, and add their rows."""
    KEPT.mkdir(parents=True, exist_ok=True)
    rows = Rows(KEPT / "rows.jsonl")
    rows.add(kind=SETTING, command=["results/figures_of_the_papers.py", "--measure", *names], **machine())
    for name in names or PARTS:
        began = time.monotonic()
        rows.add(kind="part", part=name, numbers=list(PARTS[name]()))
        sys.stderr.write(f"{name}: {time.monotonic() - began:.1f} s\n")


def kept_numbers() -> list[Number]:
    """The numbers of every part, as it was last measured."""
    last = {row["part"]: row["numbers"] for row in Rows(KEPT / "rows.jsonl").where(kind="part")}
    return [tuple(number) for part in PARTS for number in last[part]]


def kept_figures() -> dict[str, Figure]:
    """Every figure that was kept, by the name of its picture."""
    return {page.stem: load_data(page) for page in sorted(KEPT.glob("*/*.json"))}


def main() -> None:
    """Draw every picture, and fill the table."""
    for name, figure in kept_figures().items():
        save(figure, name)
    write_table([*kept_numbers(), *natural_stories()])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2:])
    main()
