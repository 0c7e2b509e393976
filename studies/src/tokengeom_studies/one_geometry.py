"""Which choices of a network change the reproducible geometry: each is changed alone, and read at the same loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import ClassVar

import numpy as np

from tokengeom.extending import GD, AbstractProgress, Figure, HeatmapPanel, Spectral
from tokengeom_studies.base import Findings, Recipe, Table, table_of
from tokengeom_studies.common.measured import (
    AbstractMeasuredStudy,
    Hypothesis,
    Row,
    Rows,
    checks_of,
    chosen,
    share_of,
    text_table,
)
from tokengeom_studies.common.torch_runs import DeviceText
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
SUBWORDS, NEAR = "-bpe", 0.05
"""Part of the names of texts of subwords, and the difference of corrected agreement that counts as none."""
BASE, SAME = "base", 0.95
"""The network that the others differ from, and the corrected agreement from which on two have one geometry."""
_MEAN = {"reduction": "mean"}
_MUON = Spectral(method="newton-schulz", momentum=0.95, nesterov=True)
VARIANTS: Mapping[str, Variant] = {
    BASE: Variant(),
    "1 layer": Variant(settings={"layers": 1}),
    "4 layers": Variant(settings={"layers": 4}),
    "half the width": Variant(settings={"dim": 32}),
    "twice the width": Variant(settings={"dim": 128}),
    "rate / 3": Variant(rate=1 / 3),
    "rate x 3": Variant(rate=3.0),
    "batches of 512": Variant(settings={"batch": 512}),
    "start / 3": Variant(start=1 / 3),
    "start x 3": Variant(start=3.0),
    "head's start / 3": Variant(head=1 / 3),
    "no last norm": Variant(norm="none"),
    "layer norm": Variant(norm="layer"),
    "tied head": Variant(settings={"tied": True}),
    "gradient descent": Variant(settings={"optimizer": GD(momentum=0.9), "learning_rate": 1.0, **_MEAN}, adapted=True),
    "sign descent": Variant(settings={"optimizer": "signgd", "learning_rate": 1e-4, **_MEAN}),
    "Muon": Variant(settings={"optimizer": _MUON, "learning_rate": 5e-3, **_MEAN}),
    "transformer": Variant("transformer", {"layers": 2, "heads": 4}),
    "LSTM": Variant("lstm"),
}
KINDS: Mapping[str, tuple[str, ...]] = {
    "size": ("1 layer", "4 layers", "half the width", "twice the width"),
    "rate": ("rate / 3", "rate x 3", "batches of 512"),
    "start": ("start / 3", "start x 3", "head's start / 3"),
    "last norm": ("no last norm",),
    "tied head": ("tied head",),
    "optimizer": ("gradient descent", "sign descent", "Muon"),
    "architecture": ("transformer", "LSTM"),
}
FOLLOWED = (
    "half the width", "twice the width", "rate / 3", "rate x 3", "batches of 512", "start / 3", "start x 3",
    "head's start / 3", "no last norm", "gradient descent", "sign descent", "Muon",
)  # fmt: skip
"""Choices that tied features have too."""
_RULE = (
    "A cell is a text, a variant of this kind and an item (contexts, tokens). It holds in at least 75% of the cells: "
    "yes; in at most 25%: no."
)


class OneGeometry(AbstractMeasuredStudy):
    """An MLP trained with AdamW, networks that differ from it in one choice, and simulations with the same choices."""

    question = "Which choices of a network and its training change the reproducible geometry?"
    small: ClassVar[Recipe] = {
        "text": "stories",
        "stories": 200,
        "context": 3,
        "contexts": 100,
        "vocabulary": 40,
        "seed": 0,
        "variants": list(VARIANTS),
        "dim": 64,
        "learning_rate": 1e-3,
        "gaps": [0.2],
        "seeds": 3,
        "seconds": 300,
        "device": "cpu",
    }
    paper: ClassVar[Recipe] = {**small, "text": "tinystories_400", "seeds": 5, "device": "cuda"}
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "size": Hypothesis(f"Depth and width do not matter: they agree with the base to {SAME}, corrected.", _RULE),
        "rate": Hypothesis("Nor do the learning rate and batches.", _RULE),
        "start": Hypothesis(f"The scale of the start matters: corrected agreement is below {SAME}.", _RULE),
        "last norm": Hypothesis("Leaving out the last norm matters, in the same sense.", _RULE),
        "tied head": Hypothesis("A head that is tied to the input embeddings matters.", _RULE),
        "optimizer": Hypothesis("The optimizer matters.", _RULE),
        "architecture": Hypothesis("The architecture does not matter: transformer and LSTM agree with the MLP.", _RULE),
        "simulation": Hypothesis(
            "The simulation follows: tied features trained with the variant's own choices agree better with it than "
            "those trained with the choices of the base.",
            "A cell is a text, a variant whose choice tied features have too, and an item. The same shares decide.",
        ),
        "subwords": Hypothesis(
            f"Subwords are no other kind of text: agreement with the base is that of the other texts, within {NEAR}.",
            "A cell is a variant and an item; means over texts of each kind are compared. The same shares decide.",
        ),
    }  # fmt: skip

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Train every variant and its simulation on the recipe's text, then compare."""
        name, stats = recipe["text"], text_named(recipe["text"], recipe)
        if rows.has(kind="finished", text=name):
            return
        text, found = DeviceText(stats, recipe["device"]), dict[str, list[Geometry]]()
        rows.add(kind="text", text=name, tokens=stats.V, contexts=stats.m, windows=stats.n, entropy=stats.entropy)
        trained = {variant: VARIANTS[variant] for variant in recipe["variants"]}
        followed = [variant for variant in (BASE, *FOLLOWED) if variant in trained]
        trained |= {f"simulated {variant}": VARIANTS[variant].simulation() for variant in followed}
        with progress.stage(f"Trainings on {name}", float(len(trained))) as stage:
            for variant, training in trained.items():
                stage.advance(1.0, variant)
                first = FIRST_SEED if variant.startswith("simulated") else 0
                for seed in range(first, first + recipe["seeds"]):
                    for read in training.reached(text, stats, recipe, seed):
                        found.setdefault(variant, []).append(as_geometry(text.geometry(read.W, read.H)))
                        run = {"variant": variant, "seed": seed, "loss_gap": read.loss_gap, "step": read.step}
                        rows.add(kind="run", text=name, target=read.target, **run)
        several = {variant: runs for variant, runs in found.items() if len(runs) > 1}
        add_pairs(rows, {"text": name}, several, _compared)
        rows.add(kind="finished", text=name)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Corrected agreement of each variant with the base, and the cells in which each statement holds."""
        texts = [row["text"] for row in chosen(rows, kind="text")]
        of = {text: Agreements(rows, text=text) for text in texts}
        same = {kind: [x >= SAME for x in _with_base(of, names)] for kind, names in KINDS.items()}
        below = ("start", "last norm", "tied head", "optimizer")
        answers = {kind: share_of(not x if kind in below else x for x in held) for kind, held in same.items()}
        answers["simulation"] = share_of(x > 0 for x in _leads(of))
        answers["subwords"] = share_of(abs(x) <= NEAR for x in _less_by_subwords(of))
        tables = {
            "hypotheses": self.answers(answers),
            "variants": _variants_table(of),
            "base": _base_table(of, rows),
            "simulation": _simulation_table(of),
            "not reached": _not_reached(recipe, rows),
            "texts": text_table(rows),
        }
        means = {name: float(np.mean(list(_with_base(of, (name,))) or [np.nan])) for name in VARIANTS if name != BASE}
        known = sorted((x, name) for name, x in means.items() if np.isfinite(x))
        lowest = ", ".join(f"{name} ({x:.2f})" for x, name in known[:3])
        sentence = (
            f"Corrected agreement with the base is lowest for {lowest}; "
            f"{SAME} on average or more for {sum(x >= SAME for x, _ in known)} of {len(known)} choices."
        )
        return self.findings(recipe, sentence, checks_of(rows), [_figure(of)], tables)


def _compared(one: str, other: str) -> bool:
    """Networks with each other, a simulation with its own network, and that of the base with all."""
    if one.startswith("simulated") and other.startswith("simulated"):
        return False
    return not other.startswith("simulated") or other in (f"simulated {one}", f"simulated {BASE}")


def _with_base(of: Mapping[str, Agreements], names: Sequence[str]) -> Iterator[float]:
    """Corrected agreement of variants with the base, over texts, variants and items."""
    for agreements in of.values():
        values = [agreements.value(name, BASE, item) for name in names for item in ITEMS]
        yield from (x for x in values if np.isfinite(x))


def _leads(of: Mapping[str, Agreements]) -> Iterator[float]:
    for agreements in of.values():
        for name in FOLLOWED:
            for item in ITEMS:
                lead = agreements.lead(f"simulated {name}", f"simulated {BASE}", name, item).mean
                if np.isfinite(lead):
                    yield lead


def _less_by_subwords(of: Mapping[str, Agreements]) -> Iterator[float]:
    """Agreement with the base on texts of other kinds, less that on texts of subwords, by variant and item."""
    for name, item in product(VARIANTS, ITEMS):
        means = [
            [x for text, a in of.items() if (SUBWORDS in text) == kind and np.isfinite(x := a.value(name, BASE, item))]
            for kind in (False, True)
        ]
        if name != BASE and all(means):
            yield float(np.mean(means[0]) - np.mean(means[1]))


def _not_reached(recipe: Recipe, rows: Sequence[Row]) -> Table:
    """Variants of which some trainings did not reach the loss."""
    found, texts = [], len(chosen(rows, kind="text"))
    for name in recipe["variants"]:
        missing = recipe["seeds"] * texts - len(chosen(rows, kind="run", variant=name))
        if missing:
            found.append({"variant": name, "not reached": f"{missing} of {recipe['seeds'] * texts}"})
    return table_of(found or [{"variant": "none", "not reached": "0"}])


def _measured(agreements: Agreements) -> list[str]:
    return [name for name in VARIANTS if name in agreements.names]


def _variants_table(of: Mapping[str, Agreements]) -> Table:
    """Each variant over all texts: mean, lowest and highest agreement with the base, and with its own simulation."""
    found = []
    for name in VARIANTS:
        row: dict[str, object] = {"variant": name}
        for item in ITEMS:
            row[f"{item}, base"] = _mean_of(a.value(name, BASE, item) for a in of.values())
        for item in ITEMS:
            row[f"{item}, own simulation"] = _mean_of(a.value(f"simulated {name}", name, item) for a in of.values())
            leads = [a.lead(f"simulated {name}", f"simulated {BASE}", name, item).mean for a in of.values()]
            row[f"{item}, own less base's"] = _mean_of(leads if name in FOLLOWED else [])
        found.append(row)
    return table_of(found)


def _mean_of(values: Iterable[float]) -> str:
    known = [x for x in values if np.isfinite(x)]
    return f"{np.mean(known):.3f} ({min(known):.3f} to {max(known):.3f}, {len(known)})" if known else "-"


def _base_table(of: Mapping[str, Agreements], rows: Sequence[Row]) -> Table:
    """Each variant: steps, agreement of its seeds, and corrected agreement with the base."""
    found = []
    for text, agreements in of.items():
        for name in _measured(agreements):
            steps = [row["step"] for row in chosen(rows, kind="run", text=text, variant=name)]
            numbers: dict[str, object] = {"text": text, "variant": name, "seeds": len(steps)}
            numbers["steps"] = float(np.mean(steps))
            numbers |= {f"{item}, seeds": agreements.reproducible(name, item) for item in ITEMS}
            found.append(numbers | {f"{item}, base": str(agreements.corrected(name, BASE, item)) for item in ITEMS})
    return table_of(found)


def _simulation_table(of: Mapping[str, Agreements]) -> Table:
    """Corrected agreement of each variant with its own simulation, and the lead over that of the base."""
    found = []
    for text, agreements in of.items():
        for name in (x for x in (BASE, *FOLLOWED) if x in _measured(agreements)):
            numbers: dict[str, object] = {"text": text, "variant": name}
            for item in ITEMS:
                numbers[f"{item}, own"] = agreements.value(f"simulated {name}", name, item)
                numbers[f"{item}, own less base's"] = str(
                    agreements.lead(f"simulated {name}", f"simulated {BASE}", name, item)
                )
            found.append(numbers)
    return table_of(found)


def _figure(of: Mapping[str, Agreements]) -> Figure:
    """Corrected agreement of all variants with each other, mean over texts, one panel per item."""
    names = [name for name in VARIANTS if all(name in agreements.names for agreements in of.values())]

    def mean(a: str, b: str, item: str) -> float:
        known = [x for x in (agreements.value(a, b, item) for agreements in of.values()) if np.isfinite(x)]
        return float(np.mean(known)) if known else float("nan")

    panels = [
        HeatmapPanel(
            item.capitalize(), np.array([[mean(a, b, item) for b in names] for a in names]), "variant", "variant",
            names, names, [], [], 0.5, 1.0, "corrected agreement",
        )
        for item in ITEMS
    ]  # fmt: skip
    caption = "Corrected agreement of two variants at the same loss, mean over texts; 1 is one geometry."
    return Figure("variants", "One geometry, and what changes it", caption, panels, columns=2)
