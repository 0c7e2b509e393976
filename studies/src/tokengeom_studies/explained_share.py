"""What share of the reproducible geometry each explanation has: six kinds of network, contexts seen and held out.

Networks are trained with AdamW on nine tenths of the contexts of a text and read where their loss gap first falls below
given values. Every explanation knows the same nine tenths. Agreement is divided by the root of what two seeds of the
network agree to, and by the root of the reliability of an explanation that is a mean of trainings (`corrected`), so 1
is all that is reproducible; its square is the explained share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from tokengeom import TrainingSettings, predict
from tokengeom.extending import (
    AbstractMatrixRival,
    AbstractProgress,
    ContextStatistics,
    FitInputs,
    Network,
    architecture_named,
    explanation_classes,
)
from tokengeom_studies.base import Findings, Recipe
from tokengeom_studies.common import last_norms
from tokengeom_studies.common.compared_trainings import without_last_norm
from tokengeom_studies.common.explained_cells import (
    FREE,
    KERNEL,
    MAIN,
    NEAR,
    WITHOUT,
    WITHOUT_NORM,
    ExplainedCells,
    simulated,
    started,
)
from tokengeom_studies.common.held_out_text import ONE, SEVERAL, TOKENS, Geometry, HeldOutText, agreement, mean_geometry
from tokengeom_studies.common.measured import (
    MOST,
    AbstractMeasuredStudy,
    Hypothesis,
    Row,
    Rows,
    checks_of,
    chosen,
    ranks,
    share_of,
    text_table,
)
from tokengeom_studies.common.model_runs import require_device
from tokengeom_studies.common.stepped_training import SteppedTraining
from tokengeom_studies.common.torch_runs import DeviceText, first_below, load_text, release

FIRST_SEED = 500
"""Seed of the first replicate of a simulation; no network has it."""
BARE_SEED = 100
"""First seed of a network without a last norm."""


class ExplainedShare(AbstractMeasuredStudy):
    """Predictions, simulations and rivals beside six kinds of network, corrected for what is reproducible."""

    question = "What share of the reproducible geometry of trained networks does each explanation have?"
    small: ClassVar[Recipe] = {
        "text": "stories",
        "stories": 200,
        "context": 3,
        "contexts": 120,
        "vocabulary": 40,
        "seed": 0,
        "held_out": 0.1,
        "networks": ["mlp", "lstm", WITHOUT_NORM],
        "ties": [MAIN, KERNEL, FREE],
        "certified": [MAIN],
        "starts": [1.0],
        "untied": True,
        "replicates": 2,
        "dim": 32,
        "gaps": [0.2],
        "learning_rate": 1e-2,
        "seeds": 2,
        "seconds": 30,
        "device": "cpu",
    }
    paper: ClassVar[Recipe] = {
        **small,
        "text": "texts/tinystories_1000x4000.npz",
        "networks": ["mlp", "transformer", "lstm", "mamba", "xlstm", WITHOUT_NORM],
        "ties": [MAIN, "positions+suffixes+self", KERNEL, FREE],
        "starts": [1.0, 0.3],
        "replicates": 5,
        "dim": 256,
        "learning_rate": 1e-3,
        "seeds": 5,
        "seconds": 120,
        "device": "cuda",
    }
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "ties": Hypothesis(
            f"Contexts agree better with the simulation of tied features ({MAIN}, trained as the network was) than "
            "with every explanation without ties: the limit, both norms at the loss, unconstrained features trained "
            "alike, and every rival, Kneser-Ney among them.",
            "A cell is a text, a network, a loss gap and a kind of context that is trained on (with several next "
            f"tokens, with one). Its corrected agreement is higher in at least {MOST:.0%} of the cells: yes; in at "
            f"most {1 - MOST:.0%}: no.",
        ),
        "targets": Hypothesis(
            "That simulation reaches 0.95 for contexts with several next tokens, and 0.85 for those with one and for "
            "those held out.",
            "The same rule: corrected agreement at least the number, over cells of these three kinds of context.",
        ),
        "kernel": Hypothesis(
            "For MLPs, the ties that are derived from the network's kernel at its start agree with contexts at least "
            f"as well as the chosen ones ({MAIN}), within {NEAR}.",
            "The same rule, over cells of the MLP and all three kinds of contexts.",
        ),
        "one geometry": Hypothesis(
            "Transformer and MLP have one geometry, as far as it is reproducible: they agree to 0.95 after correction.",
            "The same rule, over texts, loss gaps, and the four kinds of items.",
        ),
        "last norm": Hypothesis(
            "The simulation follows the last norm: for the MLP without one, contexts agree better with the simulation "
            "without a last norm than with the one with it.",
            "The same rule, over texts, loss gaps and the three kinds of contexts.",
        ),
        "last norm, others": Hypothesis(
            "It does so for the transformer and the LSTM without one, too.",
            "The same rule, over texts, these two networks, loss gaps and the three kinds of contexts.",
        ),
        "one geometry without": Hypothesis(
            "MLP, transformer and LSTM without a last norm have one geometry: they agree to 0.95 after correction.",
            "The same rule, over texts, loss gaps, ordered pairs of these networks and the four kinds of items.",
        ),
        "norm or kind": Hypothesis(
            "The last norm separates more than the kind of network: a network without one agrees better with the other "
            "kinds without one, on average, than with its own kind with one.",
            "The same rule, over texts, loss gaps, networks without a last norm and the four kinds of items.",
        ),
        "held-out loss": Hypothesis(
            "On contexts that were held out, that simulation has a lower loss than the network at the same loss in "
            "training.",
            "The same rule, over texts, networks and loss gaps.",
        ),
        "Kneser-Ney": Hypothesis(
            "On contexts that were held out, interpolated Kneser-Ney with its best discount has a lower loss than "
            "every network and every simulation.",
            "The same rule, over texts, networks and loss gaps.",
        ),
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Train the networks on the recipe's text, then make one explanation after the other and compare."""
        require_device(recipe)
        name = recipe["text"] if recipe["text"] == "stories" else Path(recipe["text"]).stem
        if rows.has(kind="finished", text=name):
            return
        text = HeldOutText.drawn(load_text(recipe), recipe["held_out"], recipe["device"])
        stats = text.stats
        facts = {"tokens": stats.V, "contexts": stats.m, "windows": stats.n, "entropy": text.entropy}
        one = float(np.mean(np.diff(sparse.csc_array(stats.table).indptr) == 1))
        rows.add(kind="text", text=name, **facts, one_next_token=one, held_out=int((~text.kept).sum()))
        measured = _Measurement(name, text, recipe, rows)
        with progress.stage(f"Networks on {name}", float(len(recipe["networks"]))) as stage:
            for network in recipe["networks"]:
                stage.advance(1.0, network)
                measured.train(network)
        measured.compare_networks()
        with progress.stage(f"Explanations on {name}", None) as stage:
            for explanation in measured.explanations():
                stage.advance(1.0, explanation)
        rows.add(kind="finished", text=name)

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Corrected agreement of every explanation, and the cells in which each statement holds."""
        judged = ExplainedCells(rows)
        answers = {
            "ties": share_of(judged.ties()),
            "targets": share_of(judged.targets()),
            "kernel": share_of(judged.kernel()),
            "one geometry": share_of(judged.one_geometry()),
            "last norm": share_of(judged.last_norm()),
            "last norm, others": share_of(last_norms.simulations_follow(judged)),
            "one geometry without": share_of(last_norms.one_geometry(judged)),
            "norm or kind": share_of(last_norms.norm_or_kind(judged)),
            "held-out loss": share_of(judged.held_out_loss()),
            "Kneser-Ney": share_of(judged.kneser_ney()),
        }
        tables = {
            "hypotheses": self.answers(answers),
            "overview": judged.overview(),
            "over texts": judged.intervals(),
            "explanations": judged.table(),
            "networks": judged.networks(),
            "last norms": last_norms.table(judged),
            "reproducible": judged.reproducible(),
            "held out": judged.unseen(),
            "texts": text_table(judged.rows),
            "ahead": judged.ahead(),
            "untied": judged.untied(),
            "edges": judged.edges(),
            "top tokens": judged.top_tokens(),
            "ranks": ranks(_solved(judged.rows), recipe["dim"]),
        }
        return self.findings(recipe, judged.sentence(), checks_of(judged.rows), [judged.figure()], tables)


def _solved(rows: Sequence[Row]) -> list[tuple[str, Row]]:
    """Each certified prediction once, by its name."""
    found = {
        (row["text"], row["target"], row["explanation"]): row for row in chosen(rows, kind="agreement") if "rank" in row
    }
    return [(name, row) for (_, _, name), row in found.items()]


@dataclass(frozen=True, eq=False)
class _Read:
    """A training where it reached a loss gap: its geometry, its top tokens, its logits if asked for, and its losses."""

    geometry: Geometry
    top: Any
    logits: Any
    unseen: Mapping[str, Any]
    loss_gap: float
    step: int


class _Measurement:
    """Networks of one text in memory, and the explanations that are compared with them."""

    def __init__(self, name: str, text: HeldOutText, recipe: Recipe, rows: Rows) -> None:
        self.name, self.text, self.recipe, self.rows = name, text, recipe, rows
        self.read: dict[tuple[str, float], list[_Read]] = {}

    def train(self, network: str) -> None:
        """Train every seed of a network, and keep where it reached each loss gap."""
        for seed in range(self.recipe["seeds"]):
            bare = network.endswith(WITHOUT)
            # Networks with and without a last norm must not start from the same weights.
            settings = self._settings(network.removesuffix(WITHOUT), seed + BARE_SEED * bare)
            built = without_last_norm(self.text.stats, settings) if bare else None
            for target, read in self._reads(settings, built):
                self.read.setdefault((network, target), []).append(read)
        for gap in self.recipe["gaps"]:
            runs = self.read.get((network, gap), [])
            if len(runs) < 2:
                self.read.pop((network, gap), None)
                continue
            pairs = [[a, b, agreement(runs[a].geometry, runs[b].geometry)] for a in range(len(runs)) for b in range(a)]
            facts = {"loss_gaps": [run.loss_gap for run in runs], "steps": [run.step for run in runs]}
            self.rows.add(**self._key("run", network, gap), **facts, seeds=pairs, unseen=[run.unseen for run in runs])

    def _settings(self, model: str, seed: int) -> TrainingSettings:
        shared: dict[str, Any] = {"optimizer": "adamw", "precision": "float32", "rate_schedule": "constant"}
        rate = self.recipe["learning_rate"]
        return TrainingSettings(model=model, dim=self.recipe["dim"], seed=seed, learning_rate=rate, **shared)

    def _reads(
        self, settings: TrainingSettings, network: Network | None, *, logits: bool = False
    ) -> list[tuple[float, _Read]]:
        """Each loss gap that a training reached, and what was read there."""
        text, reads = self.text, []
        run = SteppedTraining(text.stats, settings, device=text.device, network=network, labels=text.labels)
        for reached in first_below(run, text, self.recipe["gaps"], seconds=self.recipe["seconds"]):
            L = reached.W @ reached.H
            found = text.unseen(L, {})
            geometry, unseen = text.geometry(reached.W, reached.H), {"loss": found["loss"], "right": found["right"]}
            read = _Read(geometry, L.argmax(0), L if logits else None, unseen, reached.loss_gap, reached.step)
            reads.append((reached.target, read))
        del run
        release(text)
        return reads

    def _key(self, kind: str, network: str, gap: float) -> dict[str, Any]:
        return {"kind": kind, "text": self.name, "network": network, "target": gap}

    def compare_networks(self) -> None:
        """Compare each network with the mean of the seeds of every other one."""
        for (network, gap), runs in self.read.items():
            self._compare(f"network {network}", gap, [run.geometry for run in runs], leave_out=network)

    def explanations(self) -> Iterator[str]:
        """Make each explanation while there is time, compare it with every network, and yield its name."""
        makers: list[Callable[[], str]] = [self._at_loss, self._limit, self._rivals] if self.recipe["untied"] else []
        norms = sorted({not name.endswith(WITHOUT) for name in self.recipe["networks"]}, reverse=True)
        for start in self.recipe["starts"]:
            for ties in self.recipe["ties"]:
                makers += [partial(self._simulate, ties, norm, start) for norm in norms]
        for ties in self.recipe["certified"]:
            makers += [partial(self._tied, ties, norm) for norm in ("nuclear", "gamma2")]
        for make in makers:
            if not self.rows.in_time:
                return
            yield make()

    def _compare(
        self, name: str, gap: float, replicates: Sequence[Geometry], leave_out: str = "", **facts: Any
    ) -> None:
        """One row per network: its agreement with an explanation, seed by seed."""
        mean, reliability = mean_geometry(replicates)
        known = {} if len(replicates) == 1 else {"reliability": reliability}
        for (network, target), runs in self.read.items():
            if target == gap and network != leave_out:
                values = [agreement(mean, run.geometry) for run in runs]
                of = {kind: [value[kind] for value in values] for kind in values[0]}
                key = self._key("agreement", network, gap)
                self.rows.add(**key, explanation=name, replicates=len(replicates), agreement=of, **known, **facts)

    def _at_loss(self) -> str:
        device = DeviceText(self.text.trained, self.text.device)
        for gap in self.recipe["gaps"]:
            for norm, name in (("nuclear", "at the loss, nuclear"), ("gamma2", "at the loss, gamma_2")):
                at = device.prediction(gap, norm)
                facts: dict[str, Any] = at.facts()
                self._compare(name, gap, [self._seen(at.W, at.H)], **facts)
        return "at the loss"

    def _limit(self) -> str:
        limit = DeviceText(self.text.trained, self.text.device).limit
        for gap in self.recipe["gaps"]:
            self._compare("in the limit", gap, [self._seen(limit.W, limit.H)], relative_gap=limit.relative_gap)
        return "in the limit"

    def _seen(self, W: Any, H: Any) -> Geometry:
        """The geometry of an explanation that knows nothing about contexts that were held out."""
        return self.text.geometry(W, self.text.everywhere(np.asarray(H)), (SEVERAL, ONE, TOKENS))

    def _rivals(self) -> str:
        """Every rival that needs no training, each with the parameters that suit a network's items best."""
        known = FitInputs().on(self.text.trained)
        for kind in explanation_classes(None):
            if kind.quick and not kind.ours:
                made = [(rival.chosen, *self._rival(rival)) for rival in kind.candidates(known)]
                if made:
                    self._compare_best(kind.name, made)
        return "rivals"

    def _rival(self, rival: Any) -> tuple[Geometry, dict[str, Any]]:
        trained, text = self.text.trained, self.text
        if not isinstance(rival, AbstractMatrixRival):
            fit, tokens = rival.fit(trained), np.arange(trained.V)
            return self._seen(fit.tokens(tokens).T, fit.contexts(np.arange(trained.m))), {}
        rule = rival.rule(trained)
        M = np.asarray(rule(ContextStatistics.of(trained)).toarray())
        device = DeviceText(trained, text.device)
        W, H = device.matrix_factors(M, rival.power)
        if rival.name != "Kneser-Ney":
            return self._seen(W.cpu(), H.cpu()), {}
        out = np.asarray(text.stats.contexts)[~text.kept]
        nothing = ContextStatistics(sparse.csc_array((trained.V, len(out))), np.zeros(len(out), np.int64), out)
        whole = np.zeros((trained.V, text.stats.m))
        whole[:, text.kept], whole[:, ~text.kept] = M, rule(nothing).toarray()
        both = device.matrix_factors(whole, rival.power)
        return text.geometry(*both), text.unseen(text.placed(whole), {})

    def _compare_best(self, name: str, made: Sequence[tuple[str, Geometry, dict[str, Any]]]) -> None:
        """One row per network with, for each kind of item, the candidate that agrees best with all of its seeds."""
        losses = any(facts for _, _, facts in made)
        for (network, gap), runs in self.read.items():
            scored = [[agreement(geometry, run.geometry) for run in runs] for _, geometry, _ in made]
            best, parameters = {}, {}
            for kind in scored[0][0]:
                means = [np.mean([one[kind] for one in candidate]) for candidate in scored]
                k = int(np.argmax(means))
                best[kind], parameters[kind] = [one[kind] for one in scored[k]], made[k][0]
            facts = {"unseen": min((x for _, _, x in made if x), key=lambda x: float(x["loss"]))} if losses else {}
            key = self._key("agreement", network, gap)
            self.rows.add(**key, explanation=name, replicates=1, agreement=best, chosen=parameters, **facts)

    def _simulate(self, ties: str, norm: bool, start: float | Sequence[float]) -> str:
        """Tied features trained as the networks are, mean over replicates; head and features may start differently."""
        head, features = (start, start) if isinstance(start, float) else start
        reads: dict[float, list[_Read]] = {gap: [] for gap in self.recipe["gaps"]}
        for r in range(self.recipe["replicates"]):
            seed = FIRST_SEED + r
            options: dict[str, Any] = {"ties": ties, "last_norm": norm, "head_start": head, "feature_start": features}
            network = Network(architecture_named("tied"), self.text.stats, dim=self.recipe["dim"], seed=seed, **options)
            self._silence_unknown(network)
            for target, read in self._reads(self._settings("tied", seed), network, logits=True):
                reads[target].append(read)
        name = simulated(ties, "" if norm else WITHOUT_NORM) + started(head, features)
        for gap, replicates in reads.items():
            if len(replicates) > 1:
                mean = sum(self.text.torch.softmax(one.logits, 0) for one in replicates).log()
                tops = {
                    f"{network} {seed}": run.top
                    for (network, target), runs in self.read.items()
                    if target == gap
                    for seed, run in enumerate(runs)
                }
                unseen = self.text.unseen(mean, tops)
                unseen["one"] = float(np.mean([one.unseen["loss"] for one in replicates]))
                self._compare(name, gap, [one.geometry for one in replicates], unseen=unseen)
        return name

    def _silence_unknown(self, network: Network) -> None:
        """Features that no context of the training has are 0: a held-out context is placed by its other features."""
        known = np.zeros(network.inputs.tokens, dtype=bool)
        known[np.unique(network.inputs.rows[network.inputs.row[self.text.kept]])] = True
        with self.text.torch.no_grad():
            network.decoder.body.features.weight[self.text.torch.as_tensor(~known)] = 0.0

    def _tied(self, ties: str, norm: str) -> str:
        """The prediction of smallest norm with tied contexts, proven."""
        for gap in self.recipe["gaps"]:
            device = {"device": self.text.device} if self.text.device != "cpu" else {}
            at = predict(self.text.trained, loss_gap=gap, ties=ties, norm=norm, tolerance=5e-3, **device)  # type: ignore[call-overload]
            H = np.asarray((at.features.of(np.asarray(self.text.stats.contexts)).T @ at.A.T).T)
            unseen = self.text.unseen(self.text.placed(at.W) @ self.text.placed(H), {})
            facts = {"relative_gap": at.relative_gap, "rank": at.rank, "unseen": unseen}
            name = f"tied, {'gamma_2' if norm == 'gamma2' else norm}, {ties}"
            self._compare(name, gap, [self.text.geometry(at.W, H)], **facts)
        return f"tied, {norm}, {ties}"
