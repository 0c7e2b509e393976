"""Attention that is forced to be sparse: to the last tokens, or to the tokens with the largest weights.

Transformers of two layers read contexts of five tokens. In a window of w tokens, each position attends to itself and
to the w - 1 before it, so that two layers read ``2 w - 1`` tokens; with the top k, each position and head keeps its k
largest weights. A network that is given only the last tokens of each context reads as many as the narrow window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tokengeom import NextTokenStatistics
from tokengeom.extending import AbstractProgress, Figure, HeatmapPanel, Network, NetworkShape, Transformer, import_torch
from tokengeom_studies.base import Check, Findings, Recipe, table_of
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Answer, Hypothesis, Row, Rows, chosen, share_of
from tokengeom_studies.common.stepped_training import SteppedTraining
from tokengeom_studies.common.torch_runs import DeviceText, Reached, first_below, training_settings
from tokengeom_studies.common.variants import (
    FIRST_SEED,
    Agreements,
    Geometry,
    Variant,
    add_pairs,
    as_geometry,
    text_named,
)

ITEMS = ("contexts", "tokens")
LAYERS, HEADS, READ = 2, 4, 3
SAME, NEAR = 0.95, 0.05
FULL, LAST = "full", f"last {READ} tokens"
NORM = "gamma_2 at the loss"
ALL_FEATURES, LAST_FEATURES = "simulated, all tokens", f"simulated, {LAST}"


@dataclass(frozen=True)
class SparseTransformer(Transformer):
    """The papers' transformer, whose positions attend to those in a window, and of them to the top ones; 0 for all."""

    window: int = 0
    top: int = 0

    def body(self, shape: NetworkShape) -> Any:
        """Its body, with another attention."""
        from transformers import AttentionInterface

        body, name = super().body(shape), f"sparse-{self.window}-{self.top}"
        AttentionInterface.register(name, self.attend)
        body.inner.config._attn_implementation = name
        return body

    def attend(self, module: Any, query: Any, key: Any, value: Any, mask: Any, **given: Any) -> tuple[Any, Any]:
        """Causal attention in the form that Hugging Face's models call; (rows, heads, L, dimensions)."""
        torch = import_torch()
        place = torch.arange(query.shape[2], device=query.device)
        back = place[:, None] - place[None, :]
        seen = (back >= 0) & (back < (self.window or len(place)))
        scores = (query @ key.mT * given["scaling"]).masked_fill(~seen, -torch.inf)
        if self.top:
            least = scores.topk(min(self.top, len(place)), dim=-1).values[..., -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        weights = scores.softmax(-1)
        return (weights @ value).transpose(1, 2).contiguous(), weights


ATTENTIONS: Mapping[str, SparseTransformer] = {
    FULL: SparseTransformer(),
    "window 3": SparseTransformer(window=3),
    "top 2": SparseTransformer(top=2),
    "top 1": SparseTransformer(top=1),
    "window 2": SparseTransformer(window=2),
    LAST: SparseTransformer(),
}
WIDE, NARROW = ("window 3", "top 2", "top 1"), ("window 2", LAST)
"""Sparse attention through which every token of a context, and only the last `READ` tokens, can reach the state."""
_SHARE = "In at least 75% of the cells: yes; in at most 25%: no."


class SparseAttention(AbstractMeasuredStudy):
    """Transformers with full and with sparse attention at one loss, and simulations with features of as many tokens."""

    question = "Does attention that is forced to be sparse change the reproducible geometry, and does theory follow?"
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "content": Hypothesis(
            f"Sparse attention that can reach every token ({', '.join(WIDE)}) does not change the geometry.",
            f"Corrected agreement with full attention at least {SAME}; a cell is a text, an attention and an item "
            f"(contexts, tokens). {_SHARE}",
        ),
        "tokens read": Hypothesis(
            f"What matters is which tokens are read: {' and '.join(NARROW)} agree better with each other than with "
            "full attention.",
            f"Difference of corrected agreements; a cell is a text, one of the two and an item. {_SHARE}",
        ),
        "simulation": Hypothesis(
            "The simulation follows: features of the tokens that are read agree better with a network than features "
            "of all tokens, where it reads the last ones, and worse where it reads all.",
            f"A cell is a text, an attention and an item. {_SHARE}",
        ),
        "explained": Hypothesis(
            "Networks with sparse attention are explained as well as those with full attention.",
            f"Corrected agreement with the simulation of the tokens that are read, at least that of full attention "
            f"less {NEAR}; a cell is a text, an attention and an item. {_SHARE}",
        ),
        "norm": Hypothesis(
            f"The smallest gamma_2 norm, which knows no tokens of contexts, explains {' and '.join(NARROW)} less than "
            "full attention.",
            f"Difference of corrected agreements below 0; a cell is a text, one of the two and an item. {_SHARE}",
        ),
    }
    small: ClassVar[Recipe] = {
        **{"texts": ["stories"], "stories": 200, "context": 4, "contexts": 60, "vocabulary": 30, "seed": 0},
        **{"dim": 32, "learning_rate": 3e-3, "gap": 0.3, "seeds": 3, "seconds": 300, "device": "cpu"},
    }
    paper: ClassVar[Recipe] = {
        **{**small, "texts": ["stories_c5_400", "tinystories_c5_400", "moby_c5_400"]},
        **{"dim": 64, "learning_rate": 1e-3, "gap": 0.15, "seeds": 5, "seconds": 900, "device": "cuda"},
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Train every network and simulation on each text, then compare."""
        for name in recipe["texts"]:
            if rows.has(kind="finished", text=name) or not rows.in_time:
                continue
            stats = text_named(name, recipe)
            text, found = DeviceText(stats, recipe["device"]), dict[str, list[Geometry]]()
            facts = {"tokens": stats.V, "contexts": stats.m, "windows": stats.n, "entropy": stats.entropy}
            names = (*ATTENTIONS, ALL_FEATURES, LAST_FEATURES)
            with progress.stage(f"Trainings on {name}", float(len(names))) as stage:
                for training in names:
                    stage.advance(1.0, training)
                    for seed in range(recipe["seeds"]):
                        read = _reached(training, text, recipe, seed)
                        found.setdefault(training, []).append(as_geometry(text.geometry(read.W, read.H)))
                        run = {"training": training, "seed": seed, "loss_gap": read.loss_gap, "step": read.step}
                        rows.add(kind="run", text=name, **run)
            solved = text.prediction(recipe["gap"], "gamma2")
            rows.add(kind="prediction", text=name, **solved.facts())
            found[NORM] = [as_geometry(text.geometry(solved.W, solved.H))]
            add_pairs(rows, {"text": name}, found, lambda one, _: one in ATTENTIONS)
            rows.add(kind="finished", text=name, **facts)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Corrected agreement with full attention, with simulations and with the norm, and the answers."""
        texts = chosen(rows, kind="finished")
        of = {row["text"]: Agreements(rows, text=row["text"]) for row in texts}
        answers: dict[str, Answer] = {
            "content": share_of(a.value(name, FULL, item) >= SAME for a, name, item in _cells(of, WIDE)),
            "tokens read": share_of(
                a.value(*NARROW, item) > a.value(name, FULL, item) for a, name, item in _cells(of, NARROW)
            ),
            "simulation": share_of(
                a.value(_own(name), name, item) > a.value(_other(name), name, item)
                for a, name, item in _cells(of, tuple(ATTENTIONS))
            ),
            "explained": share_of(
                a.value(_own(name), name, item) >= a.value(ALL_FEATURES, FULL, item) - NEAR
                for a, name, item in _cells(of, (*WIDE, *NARROW))
            ),
            "norm": share_of(
                a.value(NORM, name, item) < a.value(NORM, FULL, item) for a, name, item in _cells(of, NARROW)
            ),
        }
        tables = {
            "hypotheses": self.answers(answers),
            "attention": table_of([_line(rows, text, a, name) for text, a in of.items() for name in ATTENTIONS]),
            "texts": table_of([{key: row[key] for key in row if key != "kind"} for row in texts]),
        }
        runs, proven = (chosen(rows, kind=kind) for kind in ("run", "prediction"))
        far = max(abs(row["loss_gap"] / recipe["gap"] - 1.0) for row in runs)
        checks = [
            Check("largest distance of a run from its loss gap", far, high=0.1),
            Check("largest proven relative gap", max(row["relative_gap"] for row in proven), high=5e-3),
        ]
        means = {name: _mean(a.value(name, FULL, i) for a, _, i in _cells(of, (name,))) for name in (*WIDE, *NARROW)}
        sentence = "Corrected agreement with full attention, mean over texts and items: " + ", ".join(
            f"{name} {x:.2f}" for name, x in means.items()
        )
        return self.findings(recipe, sentence + ".", checks, [_figure(of)], tables)


def with_last_tokens(stats: NextTokenStatistics, read: int) -> NextTokenStatistics:
    """The same contexts, of which only the last tokens are known; several may then look alike."""
    assert stats.contexts is not None, "a text has the tokens of its contexts"
    return replace(stats, contexts=np.asarray(stats.contexts)[:, -read:])


def _reached(training: str, text: DeviceText, recipe: Recipe, seed: int) -> Reached:
    """A training at the recipe's loss gap."""
    stats = with_last_tokens(text.stats, READ) if training in (LAST, LAST_FEATURES) else text.stats
    if training not in ATTENTIONS:
        given = {**recipe, "gaps": [recipe["gap"]]}
        return next(Variant().simulation().reached(text, stats, given, FIRST_SEED + seed))
    network = Network(ATTENTIONS[training], stats, dim=recipe["dim"], seed=seed + 1, layers=LAYERS, heads=HEADS)
    settings = training_settings(recipe, "transformer", seed, rate_schedule="constant")
    run = SteppedTraining(stats, settings, network=network, device=text.device)
    return next(first_below(run, text, [recipe["gap"]], seconds=recipe["seconds"]))


def _cells(of: Mapping[str, Agreements], names: Sequence[str]) -> Iterator[tuple[Agreements, str, str]]:
    """Agreements of a text, an attention and an item, where its seeds share anything."""
    for agreements in of.values():
        for name in names:
            for item in ITEMS:
                if np.isfinite(agreements.value(name, FULL, item)):
                    yield agreements, name, item


def _own(attention: str) -> str:
    """The simulation with features of the tokens that are read."""
    return LAST_FEATURES if attention in NARROW else ALL_FEATURES


def _other(attention: str) -> str:
    return ALL_FEATURES if attention in NARROW else LAST_FEATURES


def _mean(values: Iterator[float]) -> float:
    known = list(values)
    return float(np.mean(known)) if known else float("nan")


def _line(rows: Sequence[Row], text: str, agreements: Agreements, name: str) -> dict[str, Any]:
    """One attention on one text."""
    steps = [row["step"] for row in chosen(rows, kind="run", text=text, training=name)]
    line: dict[str, Any] = {"text": text, "attention": name, "steps": float(np.mean(steps))}
    for item in ITEMS:
        line[f"{item}, seeds"] = agreements.reproducible(name, item)
        line |= {
            f"{item}, {other}": str(agreements.corrected(other, name, item))
            for other in (FULL, ALL_FEATURES, LAST_FEATURES, NORM)
        }
    return line


def _figure(of: Mapping[str, Agreements]) -> Figure:
    """Corrected agreement of all pairs, mean over texts, one panel per item."""
    columns = [*ATTENTIONS, ALL_FEATURES, LAST_FEATURES, NORM]

    def mean(a: str, b: str, item: str) -> float:
        return _mean(x for x in (agreements.value(a, b, item) for agreements in of.values()) if np.isfinite(x))

    panels = [
        HeatmapPanel(
            item.capitalize(), np.array([[mean(a, b, item) for b in columns] for a in ATTENTIONS]), "compared with",
            "attention", columns, list(ATTENTIONS), [len(ATTENTIONS)], [], 0.5, 1.0, "corrected agreement",
        )
        for item in ITEMS
    ]  # fmt: skip
    caption = "Corrected agreement at the same loss, mean over the texts where it is known; 1 is one geometry."
    return Figure("attention", "Sparse attention", caption, panels, columns=2)
