"""A small Llama on a text in one pass, read at checkpoints: what is reproducible, and what ties explain, as it learns.

The model is trained on running text, not on the contexts that are compared: the most frequent contexts of the text with
the most frequent tokens that follow them, of which each checkpoint has a loss. Explanations are made at that loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tokengeom import NextTokenStatistics, count
from tokengeom.extending import AbstractProgress, Curve, Figure, Int, LinePanel, WordTokenizer, import_torch, stories
from tokengeom_studies.base import Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.measured import (
    SETTING,
    AbstractMeasuredStudy,
    Hypothesis,
    Row,
    Rows,
    chosen,
    read_rows,
    share_of,
)
from tokengeom_studies.common.model_runs import require_device
from tokengeom_studies.common.torch_runs import DeviceText
from tokengeom_studies.common.variants import FIRST_SEED, MAIN, Agreements, Geometry, Variant, add_pairs, as_geometry

ITEMS = ("contexts", "tokens")
LLAMA, NORM = "llama", "gamma2"
TIED, SHARED, FREE = (f"simulated, {ties}" for ties in (MAIN, "positions+pairs", "self"))
EXPLANATIONS = (TIED, SHARED, FREE, NORM)
_RULE = "A cell is a checkpoint and an item. It holds in at least 75% of the cells: yes; in at most 25%: no."


class OverTraining(AbstractMeasuredStudy):
    """Seeds of one training, each a single pass over the same text in another order."""

    question = "How do the reproducible geometry and its explained share change over a training?"
    small: ClassVar[Recipe] = {
        "text": "",
        "stories": 300,
        "tokens": 60,
        "context": 3,
        "contexts": 100,
        "vocabulary": 40,
        "seed": 0,
        "dim": 32,
        "layers": 2,
        "heads": 4,
        "length": 32,
        "batch": 16,
        "learning_rate": 1e-3,
        "checkpoints": [20, 50],
        "seeds": 3,
        "replicates": 3,
        "start": 1.0,
        "seconds": 300,
        "device": "cpu",
    }
    paper: ClassVar[Recipe] = {
        **small,
        "text": "texts/tinystories.txt",
        "tokens": 1_000,
        "contexts": 1_000,
        "vocabulary": 200,
        "dim": 384,
        "layers": 6,
        "heads": 6,
        "batch": 32,
        "checkpoints": [60, 100, 150, 200, 270, 350, 450, 570],
        "seeds": 5,
        "device": "cuda",
    }
    hypotheses: ClassVar = {
        "ties": Hypothesis(
            f"Features tied by {MAIN} agree better with the model than the same without ties and than gamma_2 at the "
            "loss.",
            _RULE,
        ),
        "itself": Hypothesis("Without the context itself among the ties, contexts agree better still.", _RULE),
        "reproducible": Hypothesis(
            "Two seeds agree better at each checkpoint than at the one before it.",
            "A cell is a pair of successive checkpoints and an item. The same shares decide.",
        ),
        "falls": Hypothesis(
            f"Of what is reproducible, features tied by {MAIN} explain less at each checkpoint than at the one before.",
            "A cell is a pair of successive checkpoints and an item. The same shares decide.",
        ),
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Train all seeds, then make the explanations at the mean loss of each checkpoint."""
        if rows.has(kind="finished"):
            return
        require_device(recipe)
        ids, stats = _read(recipe)
        text, found = DeviceText(stats, recipe["device"]), dict[int, dict[str, list[Geometry]]]()
        facts = {"tokens": stats.V, "contexts": stats.m, "windows": stats.n, "entropy": stats.entropy}
        rows.add(kind="text", **facts, running_tokens=len(ids))
        gaps: dict[int, list[float]] = {}
        with progress.stage("Trainings", float(recipe["seeds"])) as stage:
            for seed in range(recipe["seeds"]):
                stage.advance(1.0, f"seed {seed}")
                for step, loss, W, H in _checkpoints(ids, stats, recipe, seed):
                    gap = text.loss_gap(W, H)
                    gaps.setdefault(step, []).append(gap)
                    found.setdefault(step, {}).setdefault(LLAMA, []).append(as_geometry(text.geometry(W, H)))
                    rows.add(kind="run", seed=seed, step=step, loss=loss, loss_gap=gap)
        means = {step: float(np.mean(values)) for step, values in gaps.items()}
        self._explain(recipe, rows, text, means, found)
        for step, geometries in found.items():
            several = {name: runs for name, runs in geometries.items() if len(runs) > 1 or name == NORM}
            add_pairs(rows, {"step": step}, several, lambda one, _: one == LLAMA)
        rows.add(kind="finished")

    def _explain(
        self,
        recipe: Recipe,
        rows: Rows,
        text: DeviceText,
        means: dict[int, float],
        found: dict[int, dict[str, list[Geometry]]],
    ) -> None:
        # Steps whose mean loss is not below that of every earlier one have no explanation of their own.
        at = {gap: step for step, gap in sorted(means.items(), reverse=True)}
        given = {**recipe, "gaps": list(at)}
        for name in (TIED, SHARED, FREE):
            for seed in range(FIRST_SEED, FIRST_SEED + recipe["replicates"]):
                simulation = Variant(start=recipe["start"]).simulation(name.removeprefix("simulated, "))
                for read in simulation.reached(text, text.stats, given, seed):
                    geometry = as_geometry(text.geometry(read.W, read.H))
                    found[at[read.target]].setdefault(name, []).append(geometry)
        for gap, step in at.items():
            solved = text.prediction(gap, NORM)
            rows.add(kind="prediction", step=step, norm=NORM, target=gap, **solved.facts())
            found[step][NORM] = [as_geometry(text.geometry(solved.W, solved.H))]

    def from_kept(self, folder: Path) -> Findings:
        """Findings from the rows of a folder, and what simulations have at the last step in its folders, if any."""
        found, starts = super().from_kept(folder), []
        for part in [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]:
            rows = read_rows(sorted(part.glob("*.jsonl")))
            start = chosen(rows, kind=SETTING)[0]["recipe"].get("start", 1.0)
            last = Agreements(rows, step=max(row["step"] for row in chosen(rows, kind="pair")))
            corrected = {
                name: " / ".join(f"{last.value(name, LLAMA, item):.3f}" for item in ITEMS) for name in EXPLANATIONS
            }
            starts.append({"start": start, **corrected})
        tables = {**found.tables, "starts": table_of(sorted(starts, key=lambda row: -row["start"]))}
        return replace(found, tables=tables)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Corrected agreement of each explanation at each checkpoint."""
        steps = sorted({row["step"] for row in chosen(rows, kind="pair")})
        of = {step: Agreements(rows, step=step) for step in steps}
        answers = {
            "ties": share_of(_ahead(of)),
            "itself": share_of(
                of[step].value(SHARED, LLAMA, "contexts") > of[step].value(TIED, LLAMA, "contexts") for step in steps
            ),
            "reproducible": share_of(
                of[later].reproducible(LLAMA, item) > of[step].reproducible(LLAMA, item)
                for step, later in pairwise(steps)
                for item in ITEMS
            ),
            "falls": share_of(
                of[later].value(TIED, LLAMA, item) < of[step].value(TIED, LLAMA, item)
                for step, later in pairwise(steps)
                for item in ITEMS
                if np.isfinite([of[x].value(TIED, LLAMA, item) for x in (step, later)]).all()
            ),
        }
        solved = chosen(rows, kind="prediction")
        numbers = [
            Check("largest proven relative gap of a prediction", max(row["relative_gap"] for row in solved), high=0.01)
        ]
        last = of[steps[-1]]
        parts = [f"{name} {last.value(name, LLAMA, 'contexts'):.2f}" for name in EXPLANATIONS if name in last.names]
        sentence = f"At the last of {len(steps)} checkpoints contexts agree, corrected, with: {'; '.join(parts)}."
        sentence = sentence.replace("nan", "unknown")
        tables = {"hypotheses": self.answers(answers), "checkpoints": _table(of, rows)}
        return self.findings(recipe, sentence, numbers, [_figure(of)], tables)


def _read(recipe: Recipe) -> tuple[Int, NextTokenStatistics]:
    """Running text as ids of the most frequent tokens, 0 for all others; and the statistics of its contexts."""
    if recipe["text"]:
        whole = Path(recipe["text"]).read_text(encoding="utf-8").split("<|endoftext|>")
    else:
        whole = list(islice(stories(recipe["seed"]), recipe["stories"]))
    encoded = [np.asarray(ids, np.int64) for ids in WordTokenizer().encode(whole)]
    common = np.argsort(-np.bincount(np.concatenate(encoded)), kind="stable")[: recipe["tokens"] - 1]
    number = np.zeros(max(int(ids.max(initial=0)) for ids in encoded) + 1, np.int64)
    number[common] = np.arange(1, len(common) + 1)
    documents = [number[ids] for ids in encoded if ids.size]
    stats = count([ids.tolist() for ids in documents], context=recipe["context"])
    return np.concatenate(documents), stats.limited(top_contexts=recipe["contexts"], vocabulary=recipe["vocabulary"])


def _checkpoints(
    ids: Int, stats: NextTokenStatistics, recipe: Recipe, seed: int
) -> Iterator[tuple[int, float, Any, Any]]:
    """Step, training loss since the last checkpoint, and W and H of the statistics' tokens and contexts."""
    import transformers

    torch = import_torch()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        dim, heads = recipe["dim"], recipe["heads"]
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=recipe["tokens"], hidden_size=dim, intermediate_size=8 * round(dim / 3),
                num_hidden_layers=recipe["layers"], num_attention_heads=heads, num_key_value_heads=heads,
                max_position_embeddings=recipe["length"], tie_word_embeddings=False, use_cache=False,
            )
        ).to(recipe["device"])  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), recipe["learning_rate"], weight_decay=0.0)
    placed = partial(torch.as_tensor, device=recipe["device"])
    chunks = placed(ids[: len(ids) // recipe["length"] * recipe["length"]]).view(-1, recipe["length"])
    order = placed(np.random.default_rng(seed).permutation(len(chunks)))
    contexts = placed(np.asarray(stats.contexts, np.int64))
    follows = placed([int(token.removeprefix("token ")) for token in stats.vocabulary])
    losses: list[float] = []
    for step, some in enumerate(order.split(recipe["batch"]), 1):
        loss = model(input_ids=chunks[some], labels=chunks[some]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if step in recipe["checkpoints"]:
            with torch.no_grad():
                H = model.model(input_ids=contexts).last_hidden_state[:, -1].T.clone()
                yield step, float(np.mean(losses)), model.lm_head.weight.detach()[follows].clone(), H
            losses = []


def _ahead(of: dict[int, Agreements]) -> Iterator[bool]:
    for agreements in of.values():
        for item in ITEMS:
            values = [agreements.value(name, LLAMA, item) for name in (TIED, FREE, NORM)]
            if np.isfinite(values).all():
                yield values[0] > max(values[1:])


def _table(of: dict[int, Agreements], rows: Sequence[Row]) -> Table:
    found = []
    for step, agreements in of.items():
        runs = chosen(rows, kind="run", step=step)
        means = {name: float(np.mean([run[name] for run in runs])) for name in ("loss", "loss_gap")}
        for item in ITEMS:
            row = {"step": step, "training loss": means["loss"], "loss gap": means["loss_gap"], "item": item}
            row["seeds agree"] = agreements.reproducible(LLAMA, item)
            found.append(row | {name: str(agreements.corrected(name, LLAMA, item)) for name in EXPLANATIONS})
    return table_of(found)


def _figure(of: dict[int, Agreements]) -> Figure:
    """Explained share at each checkpoint, one panel per item."""
    steps = np.array(list(of), float)
    panels = []
    for item in ITEMS:
        shares = {
            name: np.array([max(a.value(name, LLAMA, item), 0.0) ** 2 for a in of.values()]) for name in EXPLANATIONS
        }
        curves = [Curve(name, steps, share) for name, share in shares.items()]
        curves.append(
            Curve("two seeds", steps, np.array([a.reproducible(LLAMA, item) for a in of.values()]), dotted=True)
        )
        panels.append(LinePanel(item.capitalize(), "step", "explained share", curves, x_scale="log"))
    caption = "Explained share at each checkpoint, at its own loss; dotted: agreement of two seeds."
    return Figure("training", "Explained share over a training", caption, panels, columns=2)
