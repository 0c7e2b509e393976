"""A published model of children's stories, stories260K (MIT): a Llama of 260,000 parameters with 512 tokens.

It is read on five disjoint parts of TinyStories: of each, the most frequent contexts and as many that occur once or
twice. Explanations know these contexts, and are made at the model's own loss on them. There is one training, so that
agreement is plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

import tokengeom as tg
from tokengeom import NextTokenStatistics
from tokengeom.extending import (
    AbstractProgress,
    FitInputs,
    Float,
    Int,
    centre_columns,
    directional_agreement,
    explanation_classes,
    stories,
    unit_columns,
)
from tokengeom_studies.base import Recipe
from tokengeom_studies.common.measured import Hypothesis, Row, Rows
from tokengeom_studies.common.published_model import AbstractPublishedModel
from tokengeom_studies.common.torch_runs import DeviceText

FREQUENT, RARE, TOKENS = ITEMS = ("frequent contexts", "rare contexts", "tokens")
LIMIT, NUCLEAR, NORM, KNESER_NEY = "in the limit", "nuclear at the loss", "gamma_2 at the loss", "Kneser-Ney"
TIES = "positions+pairs"
TIED = f"tied, nuclear at the loss, {TIES}"
SIMULATED, LARGER, WITH_SELF, FREE = (
    f"simulated, {name}" for name in (TIES, f"{TIES}, start 1", f"{TIES}+self", "self")
)
SIMULATIONS = {SIMULATED: (TIES, 0.3), LARGER: (TIES, 1.0), WITH_SELF: (f"{TIES}+self", 0.3), FREE: ("self", 0.3)}
"""Explanation -> its ties and the scale of its random start."""
TARGETS = {FREQUENT: 0.75, RARE: 0.65}
MOST_OF_A_RARE_CONTEXT, FEWEST_OF_A_TOKEN = 2, 50
"""Windows of a rare context at most, and of a token that is compared at least."""
_RULE = "95% interval over the parts above 0, for every length and item that is named: yes; below for one: no."


class Stories260k(AbstractPublishedModel):
    """Explanations of the published model on disjoint parts of a text of its kind."""

    question = "What share of the geometry of a published language model does each explanation have?"
    items, title, proven = ITEMS, "stories260K", 0.02
    reaches: ClassVar = {
        "frequent": (SIMULATED, TARGETS[FREQUENT], (FREQUENT,)),
        "rare": (SIMULATED, TARGETS[RARE], (RARE,)),
    }
    leads: ClassVar = {
        "at the loss": (NORM, LIMIT, ITEMS),
        "ties": (SIMULATED, NORM, ITEMS),
        "proven ties": (TIED, NUCLEAR, ITEMS),
        "Kneser-Ney": (SIMULATED, KNESER_NEY, ITEMS),
        "start": (SIMULATED, LARGER, ITEMS),
    }
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "frequent": Hypothesis(
            f"Simulated features tied by {TIES}, from a start of 0.3, agree with frequent contexts of the model to "
            f"{TARGETS[FREQUENT]}.",
            f"Plain agreement less this number: {_RULE}",
        ),
        "rare": Hypothesis(
            f"They agree with rare contexts to {TARGETS[RARE]}.", f"Plain agreement less this number: {_RULE}"
        ),
        "at the loss": Hypothesis(
            "The smallest gamma_2 norm at the model's loss agrees better with it than the limit of training.",
            f"Frequent contexts, rare ones and tokens; difference of plain agreement: {_RULE}",
        ),
        "ties": Hypothesis(
            "These simulated features agree better than the smallest gamma_2 norm at the loss.",
            f"Frequent contexts, rare ones and tokens; difference of plain agreement: {_RULE}",
        ),
        "proven ties": Hypothesis(
            f"The smallest nuclear norm at the loss agrees better with the ties {TIES} than without ties.",
            f"Frequent contexts, rare ones and tokens; difference of plain agreement: {_RULE}",
        ),
        "Kneser-Ney": Hypothesis(
            "The simulated features agree better than Kneser-Ney at its best discount and power for each item.",
            f"Frequent contexts, rare ones and tokens; difference of plain agreement: {_RULE}",
        ),
        "start": Hypothesis(
            "They agree better than the same features from a start of 1.",
            f"Frequent contexts, rare ones and tokens; difference of plain agreement: {_RULE}",
        ),
    }
    # Without a model, a small MLP that is trained on each part stands in for it, so that the study can be tried.
    small: ClassVar[Recipe] = {
        **{"model": "", "text": "stories", "parts": 2, "stories": 150, "lengths": [3], "contexts": 60},
        **{"replicates": 2, "dim": 32, "learning_rate": 1e-2, "seed": 0},
    }
    paper: ClassVar[Recipe] = {
        **{"model": "texts/stories260K", "text": "texts/tinystories.txt", "parts": 5, "stories": 0, "lengths": [4, 6]},
        **{"contexts": 4_000, "replicates": 3, "dim": 64, "learning_rate": 1e-3, "seed": 0},
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """One row per length of contexts and part."""
        model = tg.load_checkpoint(recipe["model"]) if recipe["model"] else None
        parts = _parts(recipe)
        cells = [(length, part) for length in recipe["lengths"] for part in range(len(parts))]
        with progress.stage("Parts", float(len(cells))) as stage:
            for length, part in cells:
                where = {"text": f"{length} tokens", "part": part}
                if rows.in_time and not rows.has(kind="part", **where):
                    rows.add(kind="part", **where, **measured(parts[part], model, length, recipe))
                stage.advance(1.0, f"contexts of {length} tokens, part {part}")


def _parts(recipe: Recipe) -> list[list[str]]:
    """Disjoint parts with equal numbers of stories, in the order of the text."""
    if recipe["text"] == "stories":
        whole = list(islice(stories(recipe["seed"]), recipe["stories"]))
    else:
        whole = Path(recipe["text"]).read_text(encoding="utf-8").split("<|endoftext|>")
        whole = [story.strip() for story in whole if story.strip()]
    size = len(whole) // recipe["parts"]
    return [whole[size * part :][:size] for part in range(recipe["parts"])]


def frequent_and_rare(stats: NextTokenStatistics, most: int, seed: int) -> tuple[NextTokenStatistics, Int, Int]:
    """Statistics of the most frequent contexts and of random ones that occur once or twice, and which are which."""
    windows = np.asarray(stats.context_counts)
    frequent = np.sort(np.argsort(-windows, kind="stable")[: most // 2])
    others = np.setdiff1d(np.flatnonzero(windows <= MOST_OF_A_RARE_CONTEXT), frequent)
    rare = np.random.default_rng(seed).permutation(others)[: most // 2]
    kept = np.sort(np.concatenate([frequent, rare]))
    table = sparse.csc_array(sparse.csc_array(stats.table)[:, kept])
    chosen = NextTokenStatistics.from_counts(table, contexts=np.asarray(stats.contexts)[kept])
    return chosen, np.searchsorted(kept, frequent), np.searchsorted(kept, np.sort(rare))


class Directions:
    """Unit vectors of tokens and contexts as columns, of one training or of several below each other."""

    def __init__(self, tokens: Float, contexts: Float) -> None:
        self.tokens, self.contexts = tokens, contexts

    @staticmethod
    def of(trainings: Sequence[tuple[Any, Any]]) -> Directions:
        """From W and H of each training: inner products are the mean cosines."""
        scale = np.sqrt(len(trainings))
        tokens = [unit_columns(centre_columns(np.asarray(W, float)).T) for W, _ in trainings]
        contexts = [unit_columns(np.asarray(H, float)) for _, H in trainings]
        return Directions(np.vstack(tokens) / scale, np.vstack(contexts) / scale)


def measured(part: list[str], model: Any, length: int, recipe: Recipe) -> Row:
    """The model and every explanation on the contexts of one length of a part."""
    whole = tg.count(part, context=length, **({"tokenizer": model.tokenizer} if model else {}))
    stats, frequent, rare = frequent_and_rare(whole, recipe["contexts"], recipe["seed"])
    text = DeviceText(stats)
    gap, W, H = min(_reads(model, stats, text, recipe), key=lambda read: read[0])
    tokens = np.flatnonzero(np.asarray(stats.table.sum(axis=1)).ravel() >= min(FEWEST_OF_A_TOKEN, stats.n / stats.V))
    ours, label = Directions.of([(W, H)]), np.asarray(stats.groups.label, np.int64)

    def agreement(given: Directions) -> dict[str, float]:
        items = {
            name: directional_agreement(given.contexts[:, some], ours.contexts[:, some], label[some])
            for name, some in ((FREQUENT, frequent), (RARE, rare))
        }
        return {**items, TOKENS: directional_agreement(given.tokens[:, tokens], ours.tokens[:, tokens])}

    solved: dict[str, Any] = {
        LIMIT: text.limit,
        NUCLEAR: text.prediction(gap, "nuclear"),
        NORM: text.prediction(gap, "gamma2"),
        TIED: tg.predict(stats, loss_gap=gap, ties=TIES, tolerance=Stories260k.proven / 2),
    }
    found = {name: agreement(Directions.of([(at.W, at.H)])) for name, at in solved.items()}
    for name, (ties, start) in SIMULATIONS.items():
        settings: dict[str, Any] = {key: recipe[key] for key in ("replicates", "dim", "learning_rate", "seed")}
        settings |= {"optimizer": "adamw", "last_norm": True, "head_start": start, "feature_start": start}
        made = tg.simulate(stats, ties=ties, loss_gap=gap, **settings)
        found[name] = agreement(Directions.of([(one.W, one.H) for one in made.trainings()]))
    smoothed, chosen = _best_rival("kneser_ney", stats, agreement)
    proven = {name: at.relative_gap for name, at in solved.items()}
    return {
        **{"contexts": stats.m, "tokens": stats.V, "windows": stats.n, "entropy": stats.entropy, "loss_gap": gap},
        **{"windows of the part": whole.n, "compared tokens": len(tokens), "relative_gap": proven},
        **{"agreement": {**found, KNESER_NEY: smoothed}, "chosen": chosen},
    }


def _reads(
    model: Any, stats: NextTokenStatistics, text: DeviceText, recipe: Recipe
) -> Iterator[tuple[float, Float, Float]]:
    """Loss gap, W and H of the model, with and without the token that starts a text."""
    if model is None:
        settings: dict[str, Any] = {
            "dim": recipe["dim"],
            "learning_rate": recipe["learning_rate"],
            "seed": recipe["seed"],
        }
        trained = tg.train(stats, "mlp", steps=60, **settings)
        reads = [(trained.W, trained.H)]
    else:
        assert stats.contexts is not None, "counted from a text"
        factors = [model.readout(stats.contexts, bos=bos) for bos in (False, True)]
        reads = [(found.W, found.H) for found in factors]
    for W, H in reads:
        yield text.loss_gap(*(text.torch.as_tensor(np.asarray(x, np.float32)) for x in (W, H))), W, H


def _best_rival(
    name: str, stats: NextTokenStatistics, agreement: Callable[[Directions], dict[str, float]]
) -> tuple[dict[str, float], dict[str, str]]:
    """Agreement of a rival with each item at the parameters that suit it best; the grid is widened to hold them."""
    (kind,) = explanation_classes((name,))
    tokens, contexts = np.arange(stats.V), np.arange(stats.m)
    tried: dict[Any, dict[str, float]] = {}

    def best(item: str) -> Any:
        return max(tried, key=lambda rival: tried[rival][item])

    new = list(kind.candidates(FitInputs().on(stats)))
    while new:
        for rival in new:
            fit = rival.fit(stats)
            tried[rival] = agreement(Directions(*map(unit_columns, (fit.tokens(tokens), fit.contexts(contexts)))))
        new = list({rival for item in ITEMS for rival in best(item).beyond(list(tried))} - set(tried))
    return {item: tried[best(item)][item] for item in ITEMS}, {item: best(item).chosen for item in ITEMS}
