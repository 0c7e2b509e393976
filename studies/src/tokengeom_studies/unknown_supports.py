"""Supports that are not known: how fast predictions change with the size of the text.

A token outside a support was never seen after the context, and a longer text may show it. Parts of a text, each a
random choice of its documents, stand for small texts, and the whole for the longer one. Measured are the zeros that
are seen later, beside what Good-Turing and Good-Toulmin estimate from the part alone, and the agreement between the
predictions of a part and those of the whole text: correlation of cosines over pairs of contexts with different
supports, and of different tokens, on the contexts and tokens that both have.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, islice
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
from scipy import sparse

from tokengeom import TrainingSettings
from tokengeom.extending import AbstractProgress, Bool, InputError, Int, WordTokenizer, stories, train_many
from tokengeom_studies.base import Findings, Recipe
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Hypothesis, Row, Rows
from tokengeom_studies.common.part_findings import PartFindings
from tokengeom_studies.common.text_parts import NORMS, Directions, Part, agreement, agreement_on, growth

Window = tuple[str, ...]
"""Tokens of a context, and the next token."""
Item = TypeVar("Item", str, Window)

END = "<|endoftext|>"
"""Separates the documents of a text file."""

EVERY_SIZE = "yes if so for every size of every text, no if refuted for one of them"


class UnknownSupports(AbstractMeasuredStudy):
    """Parts of a text compared with the whole: supports, predictions, and a model that was trained on the whole."""

    question: ClassVar[str] = (
        "How fast do supports, and the predictions made from them, change with the size of a text?"
    )
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "good-turing": Hypothesis(
            "Good-Turing's share of further windows outside the supports is within a factor of 1.25 of what happens.",
            "estimate / share in a second part of the same size, both means over draws; yes if in [0.8, 1.25] for "
            "every size of every text, no otherwise",
        ),
        "good-turing interval": Hypothesis(
            "The 95% interval of that share (estimate +- 1.96 standard errors) contains what happens.",
            "yes if in at least 80% of all parts, no otherwise",
        ),
        "good-toulmin interval": Hypothesis(
            "Good-Toulmin's number of further pairs, +- 1.96 standard errors, contains what twice the text adds.",
            "yes if in at least 80% of all parts, no otherwise",
        ),
        "stable at a loss": Hypothesis(
            "The prediction at a loss gap of 0.05 (nuclear norm) changes less with the size of the text than L_mm.",
            f"paired difference of agreement over contexts, 95% interval over draws above 0: {EVERY_SIZE}",
        ),
        "a quarter suffices": Hypothesis(
            "At a loss gap of 0.05, a quarter of the text gives the prediction of the whole: agreement above 0.95 for "
            "contexts and 0.9 for tokens.",
            "95% intervals over draws, nuclear norm: yes if both are above for every text, no if one is below for one",
        ),
        "the limit needs more": Hypothesis(
            "L_mm of a quarter of the text is not L_mm of the whole: agreement below 0.9 for contexts.",
            "95% interval over draws: yes if below for every text, no if above for one",
        ),
        "probabilities change least": Hypothesis(
            "Centred probabilities change less with the size of the text than the prediction at a loss gap of 0.05.",
            f"paired difference of agreement over contexts, 95% interval over draws above 0: {EVERY_SIZE}",
        ),
        "thresholds on both sides": Hypothesis(
            "Leaving out pairs seen once, in a quarter of the text and in the whole, makes L_mm change less.",
            "paired difference of agreement over contexts, 95% interval over draws: yes above 0 for every text with "
            "thresholds, no below 0 for one",
        ),
        "a threshold on the part": Hypothesis(
            "Leaving out pairs seen once in a quarter of the text only makes its L_mm agree better with the whole's.",
            "paired difference of agreement over contexts, 95% interval over draws: yes above 0 for every text with "
            "thresholds, no below 0 for one",
        ),
        "the model notices": Hypothesis(
            "A model trained on the whole text agrees better with the prediction at its loss from the whole text than "
            "with that from a quarter.",
            "paired difference over contexts, mean over draws for each seed, 95% interval over seeds: yes if above 0 "
            "in both norms, no if below 0 in one",
        ),
    }
    # Small is part of the built-in stories.
    small: ClassVar[Recipe] = {
        "texts": ["stories"],
        "seed": 0,
        "stories": 300,
        "context": 2,
        "contexts": 48,
        "vocabulary": 40,
        "shares": [0.125, 0.25, 0.5],
        "draws": [0, 1, 2],
        "thresholds": [1, 2],
        "loss_gaps": [0.2, 0.05],
        "models": ["stories"],
        "dim": 32,
        "steps": 400,
        "learning_rate": 1e-2,
        "model_seeds": 3,
    }
    paper: ClassVar[Recipe] = {
        "texts": ["texts/tinystories_windows_104x382.npz", "texts/tinystories_windows_400x1500.npz"],
        "seed": 0,
        "stories": 0,
        "context": 3,
        "contexts": 382,
        "vocabulary": 104,
        "shares": [0.03125, 0.0625, 0.125, 0.25, 0.5],
        "draws": [0, 1, 2, 3, 4],
        "thresholds": [1, 2, 3],
        "loss_gaps": [0.2, 0.05, 0.005],
        "models": ["texts/tinystories_windows_104x382.npz"],
        "dim": 128,
        "steps": 300,
        "learning_rate": 3e-3,
        "model_seeds": 5,
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Every text, draw and size in turn; then the models."""
        for text in recipe["texts"]:
            compared = _Compared(load_windows(text, recipe), Path(text).stem, recipe, rows)
            with progress.stage(f"Parts of {compared.name}", len(recipe["draws"]) * len(recipe["shares"])) as stage:
                for draw in recipe["draws"]:
                    for share in recipe["shares"]:
                        compared.measure(draw, share)
                        stage.advance(1.0)
        for text in recipe["models"]:
            with progress.stage(f"Models of {Path(text).stem}", None):
                _Compared(load_windows(text, recipe), Path(text).stem, recipe, rows).measure_models()

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Intervals over draws and seeds, and what they say about each hypothesis."""
        findings = PartFindings(rows)
        answers = findings.answers()
        tables = {
            "hypotheses": self.answers(answers),
            "growth": findings.growth_table(),
            "change": findings.change_table(),
            "thresholds": findings.threshold_table(),
            "model": findings.model_table(),
        }
        known = {name: table for name, table in tables.items() if table}
        return self.findings(recipe, findings.sentence(), findings.checks(), findings.figures(), known)


class _Compared:
    """Measurements on one text."""

    def __init__(self, windows: DocumentWindows, name: str, recipe: Recipe, rows: Rows) -> None:
        self.windows, self.name, self.recipe, self.rows = windows, name, recipe, rows
        self.all = windows.counts()
        self.whole: Callable[[int], tuple[Part, dict[str, Directions]]] = cache(self._of_whole)

    def parts(self, draw: int, share: float) -> tuple[Bool, Bool]:
        """Documents of a part, and of a second part of the same size without common documents."""
        documents = self.windows.documents
        order = np.random.default_rng([self.recipe["seed"], draw]).permutation(documents)
        size = int(share * documents)
        return tuple(np.isin(np.arange(documents), order[k * size : (k + 1) * size]) for k in (0, 1))  # type: ignore[return-value]

    def measure(self, draw: int, share: float) -> None:
        """Growth of the supports of one part, and the agreement of its predictions with those of the whole text."""
        at = {"text": self.name, "draw": draw, "share": share}
        first, second = self.parts(draw, share)
        counts = self.windows.counts(first)
        if not self.rows.has(kind="growth", **at):
            grown = growth(counts, self.windows.counts(second), self.windows.counts(~first))
            self.rows.add(kind="growth", **at, **grown)
        for threshold in self.recipe["thresholds"]:
            here = {**at, "part_threshold": threshold}
            if not self.rows.in_time or self.rows.has(kind="change", **here):
                continue
            began = time.monotonic()
            part = Part.of(counts, threshold)
            directions = part.directions(self.recipe["loss_gaps"])
            compared = [
                {
                    "whole_threshold": other,
                    "prediction": name,
                    **agreement(whole, of_whole[name], part, directions[name]),
                    "gap": max(of_whole[name].gap, directions[name].gap),
                }
                for other in self.recipe["thresholds"]
                for whole, of_whole in [self.whole(other)]
                for name in directions
            ]
            self.rows.add(kind="change", **here, compared=compared, seconds=time.monotonic() - began)

    def _of_whole(self, threshold: int) -> tuple[Part, dict[str, Directions]]:
        whole = Part.of(self.all, threshold)
        return whole, whole.directions(self.recipe["loss_gaps"])

    def measure_models(self) -> None:
        """Models trained on the whole text, compared with predictions at their loss from it and from its parts."""
        wanted = [
            (draw, share)
            for draw in self.recipe["draws"]
            for share in self.recipe["shares"]
            if not self.rows.has(kind="model", text=self.name, draw=draw, share=share)
        ]
        between_seeds = {"kind": "seeds", "text": self.name}
        if not self.rows.in_time or (self.rows.has(**between_seeds) and not wanted):
            return
        whole = Part.of(self.all)
        plan = {name: self.recipe[name] for name in ("dim", "steps", "learning_rate")}
        plan |= {"model": "ufm", "optimizer": "adamw", "rate_schedule": "constant"}
        settings = [TrainingSettings(**plan, seed=seed) for seed in range(self.recipe["model_seeds"])]
        runs = train_many(whole.stats, settings, backend="torch")
        gap = float(np.mean([run.loss_gap for run in runs]))
        of_runs = [Directions.of(run) for run in runs]
        if not self.rows.has(**between_seeds):
            pairs = [
                [a, b, agreement(whole, of_runs[a], whole, of_runs[b])["contexts"]]
                for a, b in combinations(range(len(of_runs)), 2)
            ]
            self.rows.add(**between_seeds, loss_gap=gap, contexts=pairs)
        of_whole = whole.directions([gap]) if wanted else {}
        for draw, share in wanted:
            if not self.rows.in_time:
                return
            part = Part.of(self.windows.counts(self.parts(draw, share)[0]))
            of_part = part.directions([gap])
            compared = [
                {
                    "seed": seed,
                    "prediction": name.split()[0] if name.startswith(NORMS) else name,
                    "from_part": agreement(whole, run, part, directions)["contexts"],
                    "from_whole": agreement_on(whole, run, of_whole[name], part),
                    "gap": max(directions.gap, of_whole[name].gap),
                }
                for seed, run in enumerate(of_runs)
                for name, directions in of_part.items()
            ]
            at = {"text": self.name, "draw": draw, "share": share}
            self.rows.add(kind="model", **at, loss_gap=gap, compared=compared)


@dataclass(frozen=True, eq=False)
class DocumentWindows:
    """Windows of a text, on fixed contexts and a fixed vocabulary: document, context and next token of each.

    ``shape``
        Numbers of tokens V and contexts m.
    ``documents``
        Number of documents, those without a window included.
    """

    document: Int
    context: Int
    token: Int
    shape: tuple[int, int]
    documents: int

    @staticmethod
    def of(texts: Iterable[str], length: int, contexts: int, vocabulary: int) -> DocumentWindows:
        """Windows whose context is among the most frequent of the whole text, and whose next token is too.

        ``length`` is the number of tokens of a context. The vocabulary has the tokens that follow the chosen contexts
        most often; windows with another next token are left out.
        """
        split = [WordTokenizer.split(text) for text in texts]
        seen: Counter[Window] = Counter()
        for tokens in split:
            seen.update(_windows(tokens, length))
        column = _numbered(seen, lambda window: window[:-1], contexts)
        chosen = Counter({window: count for window, count in seen.items() if window[:-1] in column})
        row = _numbered(chosen, lambda window: window[-1], vocabulary)
        windows = [
            (number, column[window[:-1]], row[window[-1]])
            for number, tokens in enumerate(split)
            for window in _windows(tokens, length)
            if window[:-1] in column and window[-1] in row
        ]
        if not windows:
            raise InputError("The text has no windows: it needs documents that are longer than a context.")
        document, context, token = np.array(windows, np.int64).T
        return DocumentWindows(document, context, token, (len(row), len(column)), len(split))

    def counts(self, documents: Bool | None = None) -> sparse.csc_array:
        """Counts of tokens after contexts, V x m, in some of the documents or in all."""
        kept = slice(None) if documents is None else documents[self.document]
        token, context = self.token[kept], self.context[kept]
        # Equal pairs of token and context are added up.
        return sparse.csc_array((np.ones(token.size, np.int64), (token, context)), shape=self.shape)

    def save(self, path: str | Path) -> None:
        """Write an .npz file, for machines that do not have the text."""
        sizes = np.array([*self.shape, self.documents])
        parts = {name: getattr(self, name).astype(np.int32) for name in ("document", "context", "token")}
        np.savez_compressed(path, **parts, sizes=sizes)

    @staticmethod
    def load(path: str | Path) -> DocumentWindows:
        """Windows that `save` wrote."""
        with np.load(path) as file:
            parts = [file[name].astype(np.int64) for name in ("document", "context", "token")]
            V, m, documents = (int(size) for size in file["sizes"])
        return DocumentWindows(parts[0], parts[1], parts[2], (V, m), documents)


def load_windows(text: str, recipe: Recipe) -> DocumentWindows:
    """Windows of the built-in stories ("stories"), of an .npz file, or of a text file of documents."""
    sizes = recipe["context"], recipe["contexts"], recipe["vocabulary"]
    if text == "stories":
        return DocumentWindows.of(islice(stories(recipe["seed"]), recipe["stories"]), *sizes)
    path = Path(text)
    if not path.is_file():
        raise InputError(f"A text must be 'stories', an .npz file of windows, or a text file; got {text!r}.")
    if path.suffix == ".npz":
        return DocumentWindows.load(path)
    return DocumentWindows.of(filter(str.strip, path.read_text(encoding="utf-8").split(END)), *sizes)


def _windows(tokens: Sequence[str], length: int) -> Iterable[Window]:
    return zip(*(tokens[start:] for start in range(length + 1)), strict=False)


def _numbered(windows: Mapping[Window, int], part: Callable[[Window], Item], most: int) -> dict[Item, int]:
    """The most frequent contexts or tokens of windows, numbered from the most frequent; ties by name."""
    totals: Counter[Item] = Counter()
    for window, count in windows.items():
        totals[part(window)] += count
    order = sorted(totals.items(), key=lambda entry: (-entry[1], entry[0]))
    return {name: number for number, (name, _) in enumerate(order[:most])}
