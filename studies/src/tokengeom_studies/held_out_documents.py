"""Whole documents held out: who predicts contexts that were never counted, and whose geometry of them is the networks'.

Networks and simulated ties are read where their loss gap on the training documents first falls below given values, and
*early*: at that of these values where the loss on a few documents more, which choose, is lowest. Certified predictions
are solved at the smallest of the values. All of them know the same documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_softmax

from tokengeom import predict
from tokengeom.extending import AbstractProgress, Figure, Float, HeatmapPanel
from tokengeom_studies.base import Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.corrected import Measured, corrected
from tokengeom_studies.common.document_split import KINDS, NEW, DocumentSplit
from tokengeom_studies.common.held_out_text import HELD_OUT, ITEMS, agreement, mean_geometry
from tokengeom_studies.common.measured import (
    MOST,
    AbstractMeasuredStudy,
    Hypothesis,
    Interval,
    Row,
    Rows,
    chosen,
    share_of,
)
from tokengeom_studies.common.model_runs import require_device
from tokengeom_studies.common.torch_runs import DeviceText, Reached
from tokengeom_studies.common.variants import FIRST_SEED, Variant

MAIN, KERNEL = "positions+pairs+self", "kernel"
NETWORKS: Mapping[str, Variant] = {
    "mlp": Variant(settings={"layers": 2}),
    "transformer": Variant("transformer", {"layers": 2, "heads": 4}),
}
SIMULATED: Mapping[str, Variant] = {f"simulated, {ties}": Variant().simulation(ties) for ties in (MAIN, KERNEL)}
NORMS = {"nuclear": "nuclear", "gamma2": "gamma_2"}
KNESER_NEY, FREQUENCIES = "Kneser-Ney", "frequencies of tokens"
CHOSEN, UNTIED = f"tied, gamma_2, {MAIN}", "untied, gamma_2, backed off"
EARLY = ", early"
"""What the name of a training has where it is read early."""
ORDER = (FREQUENCIES, KNESER_NEY, *(f"untied, {norm}, backed off" for norm in NORMS.values()))
ORDER += tuple(f"tied, {norm}, {ties}" for norm in NORMS.values() for ties in (MAIN, KERNEL))
ORDER += tuple(f"{name}{at}" for name in (*SIMULATED, *NETWORKS) for at in ("", EARLY))
"""Predictions, as tables have them."""
GAPS = (3.0, 2.5, 2.0, 1.5, 1.0)
"""Loss gaps, in nats, at which trainings are read."""
TOLERANCE = 5e-3
"""Proven relative gap of predictions with ties."""
NEAR, TARGET = 0.01, 0.85
"""Difference of shares of right top tokens that counts as none; corrected agreement to be reached."""
RULES = ("same loss", "early", "back-off", "top token", "variation", "geometry")
"""Hypotheses about the chosen prediction that others can be judged by."""
_SHARE = f"It holds in at least {MOST:.0%} of the cells: yes; in at most {1 - MOST:.0%}: no."
_SPLITS = f"A cell is a text and a split. {_SHARE}"
_RULE = f"A cell is a text, a split and a network. {_SHARE}"


class HeldOutDocuments(AbstractMeasuredStudy):
    """Tied, untied and smoothed predictions beside networks, on contexts of documents that were held out."""

    question = "Who predicts contexts of whole documents that were held out, and whose geometry of them is right?"
    small: ClassVar[Recipe] = {
        **{"text": "", "separator": "<|endoftext|>", "stories": 20, "seed": 0, "tokenizer": "word", "context": 2},
        **{"vocabulary": 100, "held_out": 0.2, "splits": [0, 1, 2], "dim": 64, "learning_rate": 1e-3},
        **{"gaps": list(GAPS), "seeds": 5, "replicates": 3, "seconds": 1_800},
        "device": "cpu",
    }
    paper: ClassVar[Recipe] = {**small, "text": "texts/documents_stories.txt", "device": "cuda"}
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "Kneser-Ney": Hypothesis(
            "After new contexts of held-out documents, interpolated Kneser-Ney has a lower loss than every other "
            "prediction, every simulation and every network, early or not.",
            _SPLITS,
        ),
        "same loss": Hypothesis(
            f"There the certified prediction with ties ({CHOSEN}) has a lower loss than the network at the same "
            "training loss.",
            _RULE,
        ),
        "early": Hypothesis("It has a lower loss than the network that was stopped early, too.", _RULE),
        "back-off": Hypothesis(
            f"It has a lower loss than the prediction without ties that is backed off ({UNTIED}).", _SPLITS
        ),
        "top token": Hypothesis(
            f"Its most probable token is right as often as that of Kneser-Ney, within {NEAR} of the windows.", _SPLITS
        ),
        "variation": Hypothesis(
            "Its probabilities are nearer to the network's, in total variation, than those of Kneser-Ney are.", _RULE
        ),
        "geometry": Hypothesis(
            "Its geometry of held-out contexts agrees better with the network's than that of the prediction without "
            "ties, backed off, and that of Kneser-Ney.",
            _RULE,
        ),
        "target": Hypothesis(
            f"Its corrected agreement, or that of a simulation, with the network's geometry of held-out contexts "
            f"reaches {TARGET}.",
            _RULE,
        ),
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """One split after the other; a split is measured as a whole or not at all."""
        require_device(recipe)
        name = Path(recipe["text"]).stem or "built-in"
        with progress.stage(f"Splits of {name}", float(len(recipe["splits"]))) as stage:
            for split in recipe["splits"]:
                where = {"text": name, "split": split}
                if rows.in_time and not rows.has(kind="finished", **where):
                    kept = Rows()
                    _Measurement(recipe, kept, where).run()
                    for row in [*kept.rows, {"kind": "finished", **where}]:
                        rows.add(**row)
                stage.advance(1.0, f"split {split}")

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """The cells in which each statement holds, scores of every prediction, and corrected agreement."""
        judged = _Judged(rows)
        tables = {
            "hypotheses": self.answers({name: share_of(judged.holds(name)) for name in self.hypotheses}),
            "texts": judged.sizes(),
            **{kind: judged.scores(kind) for kind in KINDS},
            "geometry": judged.geometry(),
            "early": judged.early(),
            "same rules": judged.same_rules(),
        }
        far = max(abs(row["loss_gap"] / row["target"] - 1.0) for row in chosen(rows, kind="score") if "loss_gap" in row)
        proven = max(row["relative_gap"] for row in chosen(rows, kind="score") if "relative_gap" in row)
        numbers = [
            Check("largest distance of a training from its loss gap", far, high=0.1),
            Check("largest proven relative gap of a prediction", proven, high=0.01),
        ]
        return self.findings(recipe, judged.sentence(), numbers, [judged.figure()], tables)


class _Measurement:
    """All predictions of one split, kept until networks and their probabilities are known."""

    def __init__(self, recipe: Recipe, rows: Rows, where: Mapping[str, Any]) -> None:
        self.recipe, self.rows, self.where = recipe, rows, where
        self.split = DocumentSplit(recipe, where["split"])
        self.gap, self.means = min(recipe["gaps"]), dict[str, Any]()

    def run(self) -> None:
        """Networks first: the others are compared with them."""
        split, text = self.split, self.split.text
        log_p, discount = split.kneser_ney()
        self.rows.add(kind="text", **self.where, **split.facts, discount=discount)
        networks = {name: self._trained(name, variant, self.recipe["seeds"]) for name, variant in NETWORKS.items()}
        probabilities = {name: np.array([np.exp(x) for x, _, _ in runs]) for name, runs in networks.items()}
        self.means = {name: p.mean(axis=0) for name, p in probabilities.items()}
        geometries = {name: [geometry for _, _, geometry in runs] for name, runs in networks.items()}
        for name, runs in networks.items():
            for seed, (own, facts, _) in enumerate(runs):
                others = {**self.means, name: np.delete(probabilities[name], seed, 0).mean(axis=0)}
                self._add(name, own, others, seed=seed, **facts)
            of = geometries[name]
            seeds = [[a, b, agreement(of[a], of[b])] for a in range(len(of)) for b in range(a)]
            self.rows.add(kind="run", **self.where, network=name, seeds=seeds)
        explanations = {name: [run[2] for run in self._simulated(name)] for name in SIMULATED} | geometries
        self._add(FREQUENCIES, split.frequencies())
        self._add(KNESER_NEY, log_p)
        explanations[KNESER_NEY] = [text.geometry(*DeviceText(text.trained, text.device).matrix_factors(log_p, 0.5))]
        for name, W, H, own, facts in self._certified():
            self._add(name, own, **facts)
            explanations[name] = [text.geometry(W, H)]
        for name, of in explanations.items():
            mean, reliability = mean_geometry(of)
            known = {} if len(of) == 1 else {"reliability": reliability}
            for network in set(NETWORKS) - {name}:
                with_seeds = [agreement(mean, run) for run in geometries[network]]
                cell = {**self.where, "network": network, "explanation": name}
                self.rows.add(kind="agreement", **cell, agreement=with_seeds, **known)

    def _add(self, name: str, log_p: Float, others: Mapping[str, Float] | None = None, **facts: Any) -> None:
        scores = self.split.scores(log_p, self.means if others is None else others)
        self.rows.add(kind="score", **self.where, prediction=name, **facts, **scores)

    def _trained(self, name: str, variant: Variant, count: int, first: int = 0) -> list[Any]:
        """Log-probabilities, facts and geometry of each training at the smallest loss gap; early ones are scored."""
        text, found = self.split.text, []
        for seed in range(first, first + count):
            given = (text, text.stats, self.recipe, seed, text.kept)
            reads = [(read, _log_p(read)) for read in variant.reached(*given, labels=text.labels)]
            read, log_p = reads[-1]
            if read.target == self.gap:
                early = min(reads, key=lambda one: self.split.choosing_loss(one[1]))
                self._add(f"{name}{EARLY}", early[1], {}, seed=seed, **_facts(early[0]))
                found.append((log_p, _facts(read), text.geometry(read.W, read.H)))
        return found

    def _simulated(self, name: str) -> list[Any]:
        runs = self._trained(name, SIMULATED[name], self.recipe["replicates"], FIRST_SEED)
        for seed, (log_p, facts, _) in enumerate(runs):
            self._add(name, log_p, seed=seed, **facts)
        return runs

    def _certified(self) -> Iterator[tuple[str, Any, Any, Float, dict[str, Any]]]:
        """Predictions of smallest norm at the loss gap, with ties and without: factors, log-probabilities, proof."""
        text, shares = self.split.text, self.split.backed_off()
        untied = DeviceText(text.trained, text.device)
        for norm, shown in NORMS.items():
            for ties in (MAIN, KERNEL):
                options: dict[str, Any] = {"ties": ties, "norm": norm, "tolerance": TOLERANCE}
                options |= {"device": text.device} if text.device != "cpu" else {}
                at = predict(text.trained, loss_gap=self.gap, **options)
                H = np.asarray((at.features.of(self.split.contexts).T @ at.A.T).T)
                proof = {"relative_gap": at.relative_gap, "rank": at.rank}
                yield f"tied, {shown}, {ties}", at.W, H, np.asarray(log_softmax(at.W @ H, axis=0)), proof
            alone = untied.prediction(self.gap, norm)
            p = np.asarray(np.exp(log_softmax(alone.W @ alone.H, axis=0)) @ shares)
            facts = {"relative_gap": alone.relative_gap, "rank": alone.rank}
            yield f"untied, {shown}, backed off", alone.W, np.asarray(alone.H @ shares), np.log(p), facts


def _log_p(read: Reached) -> Float:
    return np.asarray(log_softmax((read.W @ read.H).double().cpu().numpy(), axis=0))


def _facts(read: Reached) -> dict[str, Any]:
    return {"target": read.target, "loss_gap": read.loss_gap, "step": read.step}


class _Judged:
    """The rows by text, split, network and prediction."""

    def __init__(self, rows: Sequence[Row]) -> None:
        done = {(row["text"], row["split"]) for row in chosen(rows, kind="finished")}
        self.rows = [row for row in rows if (row.get("text"), row.get("split")) in done]
        self.splits = list(dict.fromkeys((row["text"], row["split"]) for row in chosen(self.rows, kind="text")))
        self.texts = list(dict.fromkeys(text for text, _ in self.splits))
        self._scores: dict[tuple[str, int], dict[str, list[Row]]] = {place: {} for place in self.splits}
        for row in chosen(self.rows, kind="score"):
            self._scores[row["text"], row["split"]].setdefault(row["prediction"], []).append(row)
        self.names = [name for name in ORDER if any(name in known for known in self._scores.values())]

    def _score(self, place: tuple[str, int], name: str, *entries: str) -> float:
        """Mean over seeds of an entry of the rows of a prediction; NaN where it is not known."""
        values: list[Any] = list(self._scores[place].get(name, []))
        for entry in entries:
            values = [value.get(entry) if value is not None else None for value in values]
        return float(np.mean([np.nan if value is None else value for value in values] or [np.nan]))

    def _agreement(self, place: tuple[str, int], network: str, name: str, kind: str) -> Interval:
        """Corrected agreement with the interval over seeds."""
        cell = {"text": place[0], "split": place[1], "network": network}
        found = chosen(self.rows, kind="agreement", explanation=name, **cell)
        runs = chosen(self.rows, kind="run", **cell)
        if not found or not runs or kind not in found[0]["agreement"][0]:
            return Interval.of([])
        own: Measured = {(): found[0].get("reliability", {}).get(kind, 1.0)}
        values: Measured = {(seed,): one[kind] for seed, one in enumerate(found[0]["agreement"])}
        return corrected(values, {(a, b): x[kind] for a, b, x in runs[0]["seeds"]}, own)

    def holds(self, hypothesis: str, own: str = CHOSEN) -> Iterator[bool]:
        """Whether a statement holds for a prediction, cell by cell; cells with nothing reproducible are left out."""
        for place in self.splits:
            loss = {name: self._score(place, name, NEW, "loss") for name in self.names}
            right = {name: self._score(place, name, NEW, "right") for name in (own, KNESER_NEY)}
            if hypothesis == "Kneser-Ney":
                yield not any(x <= loss[KNESER_NEY] for name, x in loss.items() if name != KNESER_NEY)
            if hypothesis == "back-off":
                yield loss[own] < loss[UNTIED]
            if hypothesis == "top token":
                yield right[own] >= right[KNESER_NEY] - NEAR
            for network in NETWORKS:
                names = (own, UNTIED, KNESER_NEY, *SIMULATED)
                agreed = {name: self._agreement(place, network, name, HELD_OUT).mean for name in names}
                other = loss.get(network + EARLY * (hypothesis == "early"), np.nan)
                if hypothesis in ("same loss", "early") and np.isfinite(other):
                    yield loss[own] < other
                if hypothesis == "variation":
                    near, far = (self._score(place, name, NEW, "to", network) for name in (own, KNESER_NEY))
                    yield near < far
                if hypothesis == "geometry" and np.isfinite(agreed[own]):
                    yield agreed[own] > max(agreed[UNTIED], agreed[KNESER_NEY])
                if hypothesis == "target" and np.isfinite(agreed[own]):
                    yield max(agreed[own], *(agreed[name] for name in SIMULATED)) >= TARGET

    def same_rules(self) -> Table:
        """In how many cells each statement on the chosen prediction holds for every tied one; looked at afterwards."""
        found = []
        for name in self.names:
            if name.startswith(("tied", *SIMULATED)) and EARLY not in name:
                held = {rule: list(self.holds(rule, name)) for rule in RULES}
                found.append({"prediction": name} | {rule: f"{sum(x)} of {len(x)}" for rule, x in held.items()})
        return table_of(found)

    def sizes(self) -> Table:
        """Sizes of each split."""
        return table_of([{k: x for k, x in row.items() if k != "kind"} for row in chosen(self.rows, kind="text")])

    def scores(self, kind: str) -> Table:
        """Scores of each prediction on a kind of window: means over splits and seeds."""
        found = []
        for text in self.texts:
            places = [place for place in self.splits if place[0] == text]
            for name in self.names:
                ahead = [self._score(p, name, kind, "loss") - self._score(p, KNESER_NEY, kind, "loss") for p in places]
                row: dict[str, Any] = {"text": text, "prediction": name}
                for entry in ("loss", "right", "variation"):
                    row[entry] = float(np.mean([self._score(place, name, kind, entry) for place in places]))
                for network in NETWORKS:
                    row[f"to {network}"] = float(np.mean([self._score(p, name, kind, "to", network) for p in places]))
                found.append(row | {"loss less Kneser-Ney's": str(Interval.of(ahead))})
        return table_of(found)

    def geometry(self) -> Table:
        """What two seeds agree to, and corrected agreement of each explanation: means over splits."""
        found = []
        for text in self.texts:
            for network in NETWORKS:
                runs = chosen(self.rows, kind="run", text=text, network=network)
                rho = {kind: float(np.mean([x[kind] for run in runs for *_, x in run["seeds"]])) for kind in ITEMS}
                found.append({"text": text, "network": network, "explanation": "two seeds, not corrected", **rho})
                for name in self.names:
                    means: dict[str, Any] = {kind: self._mean_agreement(text, network, name, kind) for kind in ITEMS}
                    if np.isfinite(list(means.values())).any():
                        means[HELD_OUT] = str(Interval.of(self._agreements(text, network, name, HELD_OUT)))
                        found.append({"text": text, "network": network, "explanation": name, **means})
        return table_of(found)

    def _mean_agreement(self, text: str, network: str, name: str, kind: str) -> float:
        return float(np.mean(self._agreements(text, network, name, kind)))

    def _agreements(self, text: str, network: str, name: str, kind: str) -> list[float]:
        return [self._agreement(place, network, name, kind).mean for place in self.splits if place[0] == text]

    def early(self) -> Table:
        """How many trainings are read early at the largest and at the smallest loss gap that was tried."""
        found = []
        rows = [row for row in chosen(self.rows, kind="score") if row["prediction"].endswith(EARLY)]
        for text in self.texts:
            for name in dict.fromkeys(row["prediction"] for row in rows):
                gaps = [row["target"] for row in chosen(rows, text=text, prediction=name)]
                ends = {f"at {end:g}": gaps.count(end) for end in (max(GAPS), min(GAPS))}
                found.append({"text": text, "training": name.removesuffix(EARLY), "trainings": len(gaps)} | ends)
        return table_of(found)

    def sentence(self) -> str:
        """Losses and agreement of the chosen prediction, of Kneser-Ney and of networks."""
        loss = {
            name: np.mean([self._score(place, name, NEW, "loss") for place in self.splits])
            for name in (CHOSEN, KNESER_NEY, *NETWORKS, *(f"{network}{EARLY}" for network in NETWORKS))
        }
        parts = ", ".join(f"{name} {x:.2f}" for name, x in loss.items())
        return f"Loss in nats after new contexts of held-out documents, mean over {len(self.splits)} splits: {parts}."

    def figure(self) -> Figure:
        """Loss less Kneser-Ney's, and corrected agreement of held-out contexts."""
        names = [name for name in self.names if name != FREQUENCIES]
        table = self.scores(NEW)
        loss = dict(zip(zip(table["text"], table["prediction"], strict=True), table["loss"], strict=True))
        less = np.array([[loss[text, name] - loss[text, KNESER_NEY] for text in self.texts] for name in names])
        cells = [(text, network) for text in self.texts for network in NETWORKS]
        agreed = [name for name in names if EARLY not in name]
        values = np.array([[self._mean_agreement(*cell, name, HELD_OUT) for cell in cells] for name in agreed])
        texts = [text.removeprefix("documents_") for text in self.texts]
        columns = [f"{text}, {network}" for text in texts for network in NETWORKS]
        panels = [
            HeatmapPanel(
                "Loss after new contexts", less, "text", "prediction", texts, names, [], [], -1.0, 1.0,
                "nats above Kneser-Ney",
            ),
            HeatmapPanel(
                "Geometry of held-out contexts", values, "text, network", "explanation", columns, agreed, [], [], 0.0,
                1.0, "corrected agreement",
            ),
        ]  # fmt: skip
        caption = (
            "Left: loss after contexts of held-out documents that were not counted in training, less that of "
            "Kneser-Ney. Right: corrected agreement of their geometry with that of the networks. Grey: not known."
        )
        return Figure("documents", "Whole documents held out", caption, panels)
