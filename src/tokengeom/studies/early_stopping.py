"""Windows that training does not see: documents dealt to two sides, and the loss on the held-out side over training.

``loss = -sum_{j,z} c_{jz} log softmax_z(L_j) / sum_{j,z} c_{jz}``

where ``c_{jz}`` counts held-out windows of context j followed by token z, and ``L`` are the logits, V x m. Only windows
of contexts and tokens that training knows can be judged. Pairs that training saw are *known*; a pair (j, z) with z off
the training support S_j is *new*: training drives its probability to 0, so that its loss has no bound.

Agreement with L_mm, margin and held-out loss over training: where would one stop, and what is there by then.

The predicted geometry is a limit of ``CE -> H`` on the training text: every margin grows without bound. A text is a
sample, and some tokens that may follow a context have not followed it yet: on other windows of the same contexts such
a zero costs as much as the margin is large. Held-out loss therefore falls, turns and grows, while the direction goes on
to L_mm. Documents are dealt to two sides; held-out windows are judged where training knows their context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tokengeom.corpus.documents import AbstractTextSource
from tokengeom.corpus.locate import ReadingOptions, open_corpus
from tokengeom.corpus.stories import stories
from tokengeom.corpus.tokenizers import WordTokenizer
from tokengeom.errors import InputError
from tokengeom.figures.base import Curve, Figure, LinePanel
from tokengeom.numerics import Float, Int, log_sum_exp
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import AbstractStudy, Check, Findings, Recipe
from tokengeom.studies.feature_runs import over_training
from tokengeom.studies.network_runs import Trained, agreement_table, gain_checks, require_device, trained_network
from tokengeom.theory.features import FeaturePrediction, predict_features
from tokengeom.training.loop import Probe, State


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out windows of known contexts that end in known tokens, one entry a distinct pair.

    ``column``, ``token``, ``windows``
        Context and token of each pair, in the places that training gives them, and how often it came.
    ``new``
        Whether training never saw the pair.
    ``all_windows``
        Every held-out window, judged or not.
    """

    column: Int
    token: Int
    windows: Int
    new: NDArray[np.bool_]
    all_windows: int

    @property
    def n(self) -> int:
        """Windows that are judged."""
        return int(self.windows.sum())

    @property
    def n_new(self) -> int:
        """Windows among them whose pair training never saw."""
        return int(self.windows[self.new].sum())

    def losses(self, L: Float) -> dict[str, float]:
        """Mean loss in nats under logits L (V x m): of all windows, of the known pairs, and of the new ones if any."""
        each = log_sum_exp(L)[self.column] - L[self.token, self.column]
        parts = {"loss": np.ones_like(self.new), "known": ~self.new, "new": self.new}
        some = {name: part for name, part in parts.items() if part.any()}
        return {name: float(np.average(each[part], weights=self.windows[part])) for name, part in some.items()}

    def known_limit(self, stats: NextTokenStatistics) -> float:
        """Loss of the known pairs under the training frequencies, where ``CE -> H`` leads; 0 where there are none."""
        known = ~self.new
        shares = stats.P.toarray()[self.token[known], self.column[known]]
        return float(np.average(-np.log(shares), weights=self.windows[known])) if known.any() else 0.0

    def probe(self) -> dict[str, Probe]:
        """The losses at every record, as ``held_out.loss``, ``held_out.known`` and ``held_out.new``."""

        def measure(state: State) -> dict[str, float]:
            return self.losses(state.L)

        return {"held_out": measure}


def split_text(recipe: Recipe, progress: AbstractProgress) -> tuple[NextTokenStatistics, HeldOut]:
    """Deal the documents of a text to two sides; count and cut the one, and find the other's windows among it."""
    documents = _documents(recipe)
    share, number = recipe["held_out"], len(documents)
    held = round(share * number)
    if not 0 < held < number:
        raise InputError(
            f"Both sides need at least one document; got {number} documents and held_out={share}. Take a text of "
            "several documents, or another separator between them, and a share near 0.5."
        )
    order = np.random.default_rng(recipe["seed"]).permutation(number)
    # One tokenizer for both sides, so that ids mean the same; tokens of the other side alone have no window on this.
    tokenizer = WordTokenizer()
    tokenizer.encode(documents)
    tokens = tokenizer.freeze()
    rest, kept = (
        count([documents[i] for i in sorted(part)], context=recipe["context"], tokenizer=tokens, progress=progress)
        for part in (order[:held], order[held:])
    )
    stats = kept.limited(contexts=recipe["contexts"], vocabulary=recipe["vocabulary"])
    return stats, find_windows(stats, rest)


def find_windows(stats: NextTokenStatistics, rest: NextTokenStatistics) -> HeldOut:
    """Find the pairs of held-out statistics among the contexts and tokens of the training statistics."""
    place = {tuple(row): j for j, row in enumerate(np.asarray(stats.contexts).tolist())}
    columns = np.array([place.get(tuple(row), -1) for row in np.asarray(rest.contexts).tolist()], np.int64)
    row_of = {token: z for z, token in enumerate(stats.vocabulary)}
    rows = np.array([row_of.get(token, -1) for token in rest.vocabulary], np.int64)
    column = np.repeat(columns, rest.support_sizes)
    token = rows[rest.counts.indices]
    judged = (column >= 0) & (token >= 0)
    if not judged.any():
        raise InputError(
            f"No held-out window has one of the {stats.m} contexts and {stats.V} tokens of training. The text is too "
            "short, or its contexts too long: give more text, or a smaller context."
        )
    column, token = column[judged], token[judged]
    new = stats.S.toarray()[token, column] == 0
    return HeldOut(column, token, rest.counts.data[judged].astype(np.int64), new, rest.n)


def _documents(recipe: Recipe) -> list[str]:
    if not recipe["text"]:
        return list(islice(stories(recipe["seed"]), recipe["stories"]))
    found: list[str] = []
    for source in open_corpus(recipe["text"], ReadingOptions(separator=recipe["separator"])):
        if not isinstance(source, AbstractTextSource):
            raise InputError(f"This study reads text; {source.name} holds token ids. Give the text itself.")
        found += _joined(source)
    return found


def _joined(source: AbstractTextSource) -> Sequence[str]:
    """Whole documents: a long one arrives in pieces."""
    found: list[list[str]] = []
    for piece in source.pieces():
        if piece.starts or not found:
            found.append([])
        found[-1].append(piece.text)
    return ["".join(parts) for parts in found]


TRANSFORMER, UFM = "transformer", "UFM"
LOSS, KNOWN, NEW = "held_out.loss", "held_out.known", "held_out.new"
MOVED = 0.02
"""Rise of SIM after the turn from which on the geometry is said to have gone on."""
NEAR = 1.3
"""Held-out losses up to so many times the lowest are drawn."""


@dataclass(frozen=True, eq=False)
class Stopped:
    """A trained model, and the record at which its held-out loss was lowest."""

    trained: Trained

    @property
    def best(self) -> int:
        """Number of that record."""
        return int(np.argmin(self.trained.run.trajectory[LOSS]))

    @property
    def best_step(self) -> int:
        """Its step."""
        return int(self.trained.run.trajectory.steps[self.best])

    @property
    def turned(self) -> bool:
        """Whether the lowest held-out loss is not the last."""
        return self.best < len(self.trained.run.trajectory) - 1

    def at_best(self, column: str) -> float:
        """A measurement at that record."""
        return float(self.trained.run.trajectory[column][self.best])

    def at_end(self, column: str) -> float:
        """A measurement at the last record."""
        return self.trained.run.trajectory.last(column)

    def gained(self, column: str) -> float:
        """How far a measurement rose from that record to the last."""
        return self.at_end(column) - self.at_best(column)


@dataclass(frozen=True, eq=False)
class EarlyStopping:
    """What was found: both sides of the text, the prediction from one, and the models."""

    text: str
    stats: NextTokenStatistics
    held_out: HeldOut
    prediction: FeaturePrediction
    models: Mapping[str, Stopped]


class EarlyStoppingStudy(AbstractStudy):
    """Where held-out loss turns, and what the geometry and the margin do there and after."""

    name: ClassVar[str] = "early-stopping"
    question: ClassVar[str] = "Is the predicted geometry there when the held-out loss is lowest?"

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Split, count, predict from the one side, train on it and judge on the other."""
        require_device(recipe)
        stats, held_out = split_text(recipe, progress)
        prediction = predict_features(stats)
        if prediction.rank == 0:
            raise InputError(
                f"A geometry is predicted only where some token never follows a context; here all {stats.V} tokens "
                f"follow each of the {stats.m} contexts. Take a longer context or a larger vocabulary."
            )
        models = {
            name: Stopped(_trained(stats, prediction, held_out, recipe, name, progress)) for name in (TRANSFORMER, UFM)
        }
        found = EarlyStopping(recipe["text"], stats, held_out, prediction, models)
        trained = {name: one.trained for name, one in models.items()}
        tables = {"turn": _turn_table(found), "agreement": agreement_table(trained)}
        return Findings(_sentence(found), _checks(found), [_figure(found)], tables)


def _trained(
    stats: NextTokenStatistics,
    prediction: FeaturePrediction,
    held_out: HeldOut,
    recipe: Recipe,
    name: str,
    progress: AbstractProgress,
) -> Trained:
    changes: dict[str, Any] = {"records_per_decade": recipe["records_per_decade"]}
    if name == UFM:
        changes |= {"steps": recipe["ufm_steps"], "learning_rate": recipe["ufm_learning_rate"], "layers": None}
        changes |= {"optimizer": "adamw", "reduction": "sum", "device": "cpu"}
    return trained_network(
        stats, prediction, recipe, model=name.lower(), probes=held_out.probe(), progress=progress, **changes
    )


def _checks(found: EarlyStopping) -> list[Check]:
    limit = found.held_out.known_limit(found.stats)
    checks = [
        Check("relative gap of L_mm", found.prediction.certificate.relative_gap, high=1e-6),
        Check("held-out windows that training never saw", float(found.held_out.n_new), low=1),
    ]
    for name, one in found.models.items():
        checks += gain_checks(name, one.trained, loss_gap=5e-2)
        away = abs(one.at_end(KNOWN) - limit) if KNOWN in one.trained.run.trajectory.names else float("nan")
        checks += [
            Check(f"{name}: held-out loss risen since its lowest", one.gained(LOSS), low=1e-3),
            Check(f"{name}: margin grown since then", one.gained("margin"), low=0.0),
            Check(f"{name}: loss of known pairs, distance to that of the training frequencies", away, high=0.1),
        ]
    return checks


def _sentence(found: EarlyStopping) -> str:
    held, stats = found.held_out, found.stats
    ends = " ".join(_ending(name, one) for name, one in found.models.items())
    return (
        f"{_verdict(found.models)} Of {held.all_windows:,} held-out windows of {_source(found.text)}, {held.n:,} have "
        f"one of the {stats.m} contexts and {stats.V} tokens of training, and {held.n_new:,} of these "
        f"({held.n_new / held.n:.1%}) follow in a way that training never saw: their loss has no bound. {ends}"
    )


def _verdict(models: Mapping[str, Stopped]) -> str:
    if not all(one.turned for one in models.values()):
        still = ", ".join(name for name, one in models.items() if not one.turned)
        return f"Held-out loss was still falling at the last step ({still})."
    on = [name for name, one in models.items() if one.gained("context_similarity") > MOVED]
    if len(on) == len(models):
        return "Not all of it: after the held-out loss has turned, the geometry goes on towards L_mm."
    if not on:
        return "Yes, as far as it comes: after the held-out loss has turned, the geometry gets no nearer to L_mm."
    return f"It depends: after the held-out loss has turned, the geometry goes on towards L_mm in {', '.join(on)} only."


def _source(text: str) -> str:
    return Path(text).name if text else "the built-in stories"


def _ending(name: str, one: Stopped) -> str:
    def both(column: str, form: str) -> str:
        return f"{one.at_best(column):{form}} there, {one.at_end(column):{form}} at the end"

    new = f" (new pairs: {both(NEW, '.2f')})" if NEW in one.trained.run.trajectory.names else ""
    return (
        f"The {name}'s held-out loss is lowest at step {one.best_step:,} of {one.trained.run.steps:,}: "
        f"{both(LOSS, '.3f')}, in nats{new}; SIM with L_mm of contexts {both('context_similarity', '.3f')}; of tokens "
        f"{both('token_similarity', '.3f')}; smallest margin {both('margin', '.1f')}; CE - H "
        f"{both('loss_gap', '.1e')}."
    )


def _turn_table(found: EarlyStopping) -> Mapping[str, Sequence[Any]]:
    columns = (LOSS, KNOWN, NEW, "loss_gap", "margin", "context_similarity", "token_similarity", "collapse")
    table: dict[str, list[Any]] = {"model": [], "where": [], "step": []}
    for name, one in found.models.items():
        for where, step in (("lowest held-out loss", one.best_step), ("end", one.trained.run.steps)):
            table["model"].append(name)
            table["where"].append(where)
            table["step"].append(step)
            for column in columns:
                if column in one.trained.run.trajectory.names:
                    value = one.at_end(column) if where == "end" else one.at_best(column)
                    table.setdefault(column.replace(".", "_"), []).append(value)
    return table


def _figure(found: EarlyStopping) -> Figure:
    runs = {name: one.trained.run for name, one in found.models.items()}
    marks = [(f"lowest: {name}", float(max(one.best_step, 1))) for name, one in found.models.items()]
    limit = found.held_out.known_limit(found.stats)
    new = [column for column in (KNOWN, NEW) if all(column in run.trajectory.names for run in runs.values())]
    panels = [
        _turn_panel(found, marks),
        _parts_panel(found, new, [("known pairs, limit", limit)] if KNOWN in new else []),
        _marked(over_training("Loss on the training text", "CE - H, nats", runs, ["loss_gap"], y_scale="log"), marks),
        _marked(over_training("Smallest margin", "logits", runs, ["margin"]), marks),
        _marked(over_training("Contexts: SIM with L_mm", "SIM", runs, ["context_similarity"]), marks),
        _marked(over_training("Tokens: SIM with L_mm", "SIM", runs, ["token_similarity"]), marks),
    ]
    caption = (
        "Training on one part of the documents, judged on the others: held-out loss, and its two parts (known: pairs "
        "of context and token that training saw, whose limit is the loss of the training frequencies; new: pairs that "
        "it never saw, whose loss grows with the margin); loss above the entropy of the training text; smallest "
        "in-support minus largest off-support logit; structural similarity of cosines with those of L_mm. Vertical "
        "lines: where the held-out loss is lowest."
    )
    return Figure("early-stopping", "Held-out loss and geometry over training", caption, panels)


def _marked(panel: LinePanel, marks: Sequence[tuple[str, float]]) -> LinePanel:
    return LinePanel(
        panel.title, panel.x_label, panel.y_label, panel.curves, panel.x_scale, panel.y_scale, panel.levels, marks
    )


def _turn_panel(found: EarlyStopping, marks: Sequence[tuple[str, float]]) -> LinePanel:
    """Held-out loss near its lowest: all of its way down would leave no room for the turn."""
    curves = []
    for name, one in found.models.items():
        steps, loss = one.trained.run.trajectory["step"], one.trained.run.trajectory[LOSS]
        near = (steps > 0) & (loss <= NEAR * one.at_best(LOSS))
        curves.append(Curve(name, steps[near], loss[near]))
    return LinePanel("Held-out loss, near its lowest", "step", "nats", curves, "log", "linear", (), marks)


def _parts_panel(found: EarlyStopping, columns: Sequence[str], levels: Sequence[tuple[str, float]]) -> LinePanel:
    curves = []
    for place, (name, one) in enumerate(found.models.items()):
        steps: Float = one.trained.run.trajectory["step"]
        for column in columns:
            y, part = one.trained.run.trajectory[column], column.removeprefix("held_out.")
            dotted = column == NEW
            curves.append(Curve(f"{name}, {part}", steps[steps > 0], y[steps > 0], dotted=dotted, colour=place))
    return LinePanel("Held-out loss of known and of new pairs", "step", "nats", curves, "log", "linear", levels)
