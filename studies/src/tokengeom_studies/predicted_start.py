"""Networks whose W starts from predicted tokens: steps to a loss, and held-out loss, compared with a random start.

Four starts of W, all with the same norm and, for one seed, the same other weights:

``random``    independent Gaussian entries, the usual start
``at loss``   tokens of the prediction at a loss gap (nuclear norm)
``proxy``     tokens of the leading singular vectors of the centred supports, which take a second to compute
``permuted``  tokens of ``at loss`` given to other tokens at random: the same spectrum and norms, the wrong tokens
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tokengeom import LossPrediction, NextTokenStatistics, TrainingSettings, predict, predict_proxy
from tokengeom.extending import GD, AbstractProgress, Float, PredictedStart, SoftLabels, build_network
from tokengeom_studies.base import Check, Findings, Recipe, table_of
from tokengeom_studies.common.compared_starts import (
    ADAMW,
    AT_LOSS,
    DESCENT,
    LOW,
    PERMUTED,
    PROXY,
    RANDOM,
    SAVED,
    STARTS,
    at_least,
    at_most,
    cells_of,
    curve_figure,
    gaps_of,
    held_out_table,
    norm_spread,
    rate_table,
    ratio_figure,
    sentence,
    step_table,
)
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Hypothesis, Row, Rows, chosen
from tokengeom_studies.common.model_runs import require_device
from tokengeom_studies.common.split_texts import HeldOutLoss, SplitText, split_text_of
from tokengeom_studies.common.torch_runs import DeviceText

MOMENTUM = 0.9
NETWORKS = {"transformer": "a transformer", "mlp": "an MLP", "lstm": "an LSTM"}
LATE, NO_EFFECT, PROXY_COST = 0.9, 0.9, 1.1
"""Ratios of steps: what counts as saved at the smallest gap, as no effect of the spectrum, as good enough."""
WORSE = 0.01
"""Increase of the held-out loss, in nats, that counts as worse."""
POINTS_PER_DECADE = 12
TOLERANCE, PROVEN = 1e-3, 1e-2
"""Relative gap that a prediction is solved to, and the largest one that is accepted."""
TEXT_COLUMNS = (
    "text",
    "V",
    "m",
    "windows",
    "entropy",
    "supports",
    "held_out_windows",
    "of_known_contexts",
    "rank",
)


class PredictedStartStudy(AbstractMeasuredStudy):
    """Starts of W compared by the steps that networks need."""

    question = "How many steps does a network save that starts from predicted tokens, and what does it cost held-out?"
    # texts: name -> "stories" (built in, counted here) or an .npz file that SplitText.save wrote.
    # predictions: name -> .npz file that PredictedFactors.save wrote; solved where it is missing.
    # cells: "TEXT NETWORK OPTIMIZER"; only those with adamw have the starts proxy and permuted.
    # gaps: "TEXT" or "TEXT OPTIMIZER" -> loss gaps; a run ends below the smallest, and the second smallest decides.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "stories": 150,
        "held_out": 0.2,
        "context": 3,
        "contexts": 60,
        "vocabulary": 40,
        "texts": {"stories": "stories"},
        "predictions": {},
        "cells": ["stories transformer adamw", "stories mlp adamw", "stories lstm adamw", "stories mlp gd"],
        "seeds": [0, 1, 2],
        "layers": 1,
        "heads": 2,
        "dim": 32,
        "rates": {ADAMW: 3e-3, LOW: 1e-3, DESCENT: 0.1},
        "predicted_gap": 0.05,
        "gaps": {"stories": [0.5, 0.2, 0.1, 0.05]},
        "most_steps": 300,
        "every": 5,
        "held_every": 25,
        "device": "cpu",
    }
    paper: ClassVar[Recipe] = {
        **small,
        "texts": {"tinystories": "texts/start_tinystories.npz", "stories": "texts/start_stories.npz"},
        "predictions": {
            "tinystories": "texts/start_tinystories_at_loss.npz",
            "stories": "texts/start_stories_at_loss.npz",
        },
        "cells": [
            f"{text} {network} {optimizer}"
            for text in ("tinystories", "stories")
            for network, optimizer in (
                *((network, ADAMW) for network in NETWORKS),
                ("transformer", LOW),
                ("transformer", DESCENT),
                ("mlp", DESCENT),
            )
        ],
        "seeds": [0, 1, 2, 3, 4],
        "layers": 2,
        "heads": 4,
        "dim": 256,
        "rates": {ADAMW: 1e-3, LOW: 3e-4, DESCENT: 0.1},
        "gaps": {
            "tinystories": [0.5, 0.2, 0.05, 0.02],
            f"tinystories {LOW}": [1.0, 0.5, 0.2],
            f"tinystories {DESCENT}": [1.0, 0.5, 0.2],
            "stories": [0.5, 0.2, 0.05, 0.005, 0.001],
        },
        "most_steps": 2_000,
        "device": "cuda",
    }
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        **{
            network: Hypothesis(
                f"With AdamW, {named} that starts from the prediction at a loss needs at most {SAVED} of the steps "
                "of a random start.",
                "Ratio of steps until the loss gap first falls below the second smallest gap of the text, paired by "
                f"seed. Its 95% interval (Student's t) ends at or below {SAVED} on every text: yes; it begins above "
                f"{SAVED} on some text: no. A run that does not get there counts with all steps if the other one does.",
            )
            for network, named in NETWORKS.items()
        },
        "tokens": Hypothesis(
            "It is the geometry of the tokens that helps: the prediction at a loss needs fewer steps than the same "
            "rows permuted among tokens.",
            "The interval of the ratio of these two starts ends below 1 for every text and network with AdamW: yes; "
            "it begins above 1 for some: no.",
        ),
        "spectrum": Hypothesis(
            f"The spectrum alone does not help: permuted rows need at least {NO_EFFECT} of the steps of a random "
            "start.",
            f"The interval of that ratio begins at or above {NO_EFFECT} for every text and network with AdamW: yes; it "
            f"ends below {NO_EFFECT} for some: no.",
        ),
        "proxy": Hypothesis(
            f"The proxy is good enough: it needs at most {PROXY_COST} times the steps of the prediction at a loss.",
            f"The interval of that ratio ends at or below {PROXY_COST} for every text and network with AdamW: yes; it "
            f"begins above {PROXY_COST} for some: no.",
        ),
        "late": Hypothesis(
            "The advantage lasts: at the smallest gap of the text, the prediction at a loss needs at most "
            f"{LATE} of the steps of a random start.",
            f"As for networks, with that gap and the bound {LATE}, for every text and network with AdamW.",
        ),
        "held-out": Hypothesis(
            f"At equal training loss the held-out loss is at most {WORSE} nats above that of a random start.",
            "Difference of the held-out losses (all windows that the network can read) where each run first falls "
            f"below the second smallest gap, paired by seed. Its interval ends at or below {WORSE} for every text and "
            f"network with AdamW: yes; it begins above {WORSE} for some: no.",
        ),
        "best held-out": Hypothesis(
            f"The lowest held-out loss during training is not worse by more than {WORSE} nats.",
            "The same rule, for the lowest held-out loss of each run.",
        ),
        "low rate": Hypothesis(
            f"At three tenths of the learning rate of AdamW, the prediction needs at most {SAVED} of the steps too.",
            f"As for networks, for every text and network that was trained at that rate ({LOW}).",
        ),
        "gd": Hypothesis(
            f"With gradient descent (momentum {MOMENTUM}) the prediction needs at most {SAVED} of the steps of a "
            "random start.",
            f"As for networks, for every text and network that was trained with {DESCENT}.",
        ),
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Train every cell from every start with every seed."""
        require_device(recipe)
        texts: dict[str, _Text] = {}
        cells = [cell.split() for cell in recipe["cells"]]
        with progress.stage("Starts", float(len(cells) * len(recipe["seeds"]))) as stage:
            for name, network, optimizer in cells:
                for seed in recipe["seeds"]:
                    for start in STARTS if optimizer == ADAMW else (RANDOM, AT_LOSS):
                        key = {"text": name, "network": network, "optimizer": optimizer, "start": start, "seed": seed}
                        if rows.has(kind="run", **key):
                            continue
                        if not rows.in_time:
                            return
                        if name not in texts:
                            texts[name] = _Text(name, recipe)
                            if not rows.has(kind="text", text=name):
                                rows.add(kind="text", text=name, **texts[name].numbers())
                        rows.add(kind="run", **key, **_trained(texts[name], recipe, key))
                    stage.advance(1.0, f"{name} {network} {optimizer}")

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Ratios of steps and differences of held-out losses, paired by seed."""
        cells = cells_of(chosen(rows, kind="run"), recipe["gaps"])
        main = [cell for cell in cells if cell.optimizer == ADAMW]
        answers = {
            **{
                network: at_most([c for c in main if c.network == network], lambda c: c.ratio(AT_LOSS), SAVED)
                for network in NETWORKS
            },
            "tokens": at_most(main, lambda c: c.ratio(AT_LOSS, PERMUTED), 1.0),
            "spectrum": at_least(main, lambda c: c.ratio(PERMUTED), NO_EFFECT),
            "proxy": at_most(main, lambda c: c.ratio(PROXY, AT_LOSS), PROXY_COST),
            "late": at_most(main, lambda c: c.ratio(AT_LOSS, gap=c.gaps[-1]), LATE),
            "held-out": at_most(main, lambda c: c.held_out(AT_LOSS), WORSE),
            "best held-out": at_most(main, lambda c: c.best_held_out(AT_LOSS), WORSE),
            "low rate": at_most([c for c in cells if c.optimizer == LOW], lambda c: c.ratio(AT_LOSS), SAVED),
            "gd": at_most([c for c in cells if c.optimizer == DESCENT], lambda c: c.ratio(AT_LOSS), SAVED),
        }
        # Every file has a row of each text that it used.
        texts = list({row["text"]: row for row in chosen(rows, kind="text")}.values())
        reached = min((cell.share_reached for cell in main), default=0.0)
        proven = max((float(row["relative_gap"]) for row in texts), default=1.0)
        diverged = sum(row["diverged"] for row in chosen(rows, kind="run"))
        checks = [
            Check("largest proven relative gap of a prediction", proven, high=PROVEN),
            Check("smallest share of runs, per cell with AdamW, that reached the gap that decides", reached, low=1.0),
            Check("runs that diverged", float(diverged), high=0.0),
            Check("largest difference of the norms of W at the start, relative", norm_spread(cells), high=1e-5),
        ]
        tables = {
            "steps": step_table(cells),
            "rates": rate_table(cells),
            "held-out": held_out_table(main),
            "texts": table_of([{name: row[name] for name in TEXT_COLUMNS} for row in texts]),
            "hypotheses": self.answers(answers),
        }
        return self.findings(recipe, sentence(main, answers), checks, [curve_figure(main), ratio_figure(cells)], tables)


@dataclass(frozen=True, eq=False)
class PredictedFactors:
    """W and H of a prediction at a loss with its proof, in a file much smaller than the saved prediction."""

    W: Float
    H: Float
    statistics_hash: str
    loss_gap: float
    relative_gap: float
    seconds: float

    @staticmethod
    def of(prediction: LossPrediction) -> PredictedFactors:
        """The factors of a prediction, in single precision."""
        W, H = (np.asarray(factor, np.float32).astype(np.float64) for factor in (prediction.W, prediction.H))
        return PredictedFactors(
            W,
            H,
            str(prediction.statistics_hash),
            prediction.loss_gap,
            prediction.relative_gap,
            float(prediction.seconds),
        )

    def save(self, path: str | Path) -> None:
        """Write an .npz file."""
        np.savez_compressed(path, **(vars(self) | {"W": self.W.astype(np.float32), "H": self.H.astype(np.float32)}))

    @staticmethod
    def load(path: str | Path) -> PredictedFactors:
        """Read what `save` wrote."""
        with np.load(path) as file:
            W, H = file["W"].astype(np.float64), file["H"].astype(np.float64)
            numbers = [float(file[name]) for name in ("loss_gap", "relative_gap", "seconds")]
            return PredictedFactors(W, H, str(file["statistics_hash"]), *numbers)

    @staticmethod
    def solve(stats: NextTokenStatistics, loss_gap: float, device: str) -> PredictedFactors:
        """Predict with the nuclear norm."""
        prediction = predict(stats, loss_gap=loss_gap, tolerance=TOLERANCE, device=device)
        assert isinstance(prediction, LossPrediction), "a loss gap was given"
        return PredictedFactors.of(prediction)


class _Text:
    """A split text on the device, its held-out loss, and its predicted starts."""

    def __init__(self, name: str, recipe: Recipe) -> None:
        self.split: SplitText = split_text_of(recipe, recipe["texts"][name])
        stats = self.split.stats
        self.text = DeviceText(stats, recipe["device"])
        self.held = HeldOutLoss(self.split, self.text.torch, recipe["device"])
        file = recipe["predictions"].get(name)
        solved = None if file else PredictedFactors.solve(stats, recipe["predicted_gap"], recipe["device"])
        self.prediction = solved or PredictedFactors.load(file)
        components = min(recipe["dim"], stats.V - 1, stats.m - 1)
        self.proxy = predict_proxy(stats, components=components)

    def start(self, name: str, seed: int) -> PredictedStart | None:
        """The start of W by its name; the permutation is drawn from the seed."""
        if name == RANDOM:
            return None
        if name == PROXY:
            return PredictedStart.of(self.proxy, SoftLabels.from_statistics(self.text.stats))
        predicted = PredictedStart.of(self.prediction, SoftLabels.from_statistics(self.text.stats))
        if name == AT_LOSS:
            return predicted
        order = np.random.default_rng(seed).permutation(predicted.W.shape[0])
        return PredictedStart(predicted.W[order], predicted.H, PERMUTED, predicted.hash)

    def numbers(self) -> dict[str, Any]:
        """Sizes of the text, and the proof of its prediction."""
        split, stats, known = self.split, self.split.stats, self.split.known[self.split.place]
        return {
            "hash": stats.hash,
            "V": stats.V,
            "m": stats.m,
            "windows": stats.n,
            "entropy": stats.entropy,
            "supports": stats.groups.count,
            "held_out_windows": int(split.windows.sum()),
            "of_known_contexts": int(split.windows[known].sum()),
            "frequency_loss": split.frequency_loss(),
            "predicted_gap": self.prediction.loss_gap,
            "relative_gap": self.prediction.relative_gap,
            "rank": self.prediction.W.shape[1],
            "prediction_seconds": self.prediction.seconds,
            "proxy_captured": self.proxy.captured,
        }


def _settings(recipe: Recipe, network: str, optimizer: str, seed: int) -> TrainingSettings:
    rule = GD(momentum=MOMENTUM) if optimizer == DESCENT else ADAMW
    return TrainingSettings(
        model=network,
        dim=recipe["dim"],
        layers=recipe["layers"],
        heads=recipe["heads"] if network == "transformer" else None,
        optimizer=rule,
        learning_rate=recipe["rates"][optimizer],
        rate_schedule="constant",
        reduction="mean",
        steps=recipe["most_steps"],
        seed=seed,
        device=recipe["device"],
    )


def _trained(text: _Text, recipe: Recipe, key: Mapping[str, Any]) -> dict[str, Any]:
    """One run: steps until each gap, the gap over training, and held-out losses."""
    began = time.monotonic()
    settings = _settings(recipe, key["network"], key["optimizer"], key["seed"])
    network = build_network(text.split.stats, settings, text.start(key["start"], key["seed"]))
    norm = float(np.linalg.norm(network.W))
    run = text.text.begin(settings, network=network)
    remaining = gaps_of(recipe["gaps"], key["text"], key["optimizer"])
    gap = text.text.loss_gap(*run.factors())
    curve, reached, held_at, held = [(0, gap)], {}, {}, [(0, text.held.of(network))]
    while remaining and run.step < recipe["most_steps"]:
        run.advance(recipe["every"])
        gap = text.text.loss_gap(*run.factors())
        if not np.isfinite(gap):
            break
        curve.append((run.step, gap))
        passed = [target for target in remaining if gap <= target]
        if passed or run.step % recipe["held_every"] == 0:
            held.append((run.step, text.held.of(network)))
        for target in passed:
            reached[f"{target:g}"], held_at[f"{target:g}"] = run.step, held[-1][1]
            remaining.remove(target)
    best = min(held, key=lambda pair: pair[1]["all"])
    return {
        "norm_W": norm,
        "steps_to": reached,
        "held_out_at": held_at,
        "best_held_out": {**best[1], "step": best[0]},
        "held_out": _thinned([(step, target["all"]) for step, target in held]),
        "curve": _thinned(curve),
        # A run that diverged would never get there.
        "steps": run.step if np.isfinite(gap) else recipe["most_steps"],
        "diverged": not np.isfinite(gap),
        "seconds": time.monotonic() - began,
    }


def _thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """About a dozen points per factor of ten in the number of steps, with the first and the last."""
    grid = np.floor(POINTS_PER_DECADE * np.log10([max(step, 1) for step, _ in points]))
    fresh = np.append(True, np.diff(grid) > 0)
    fresh[-1] = True
    return [(step, round(float(value), 7)) for (step, value), kept in zip(points, fresh, strict=True) if kept]
