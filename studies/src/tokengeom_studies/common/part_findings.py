"""Findings about parts of a text: intervals over draws and seeds, answers, tables and figures, from measured rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from tokengeom.extending import Figure, LinePanel
from tokengeom_studies.base import Check, Table, table_of
from tokengeom_studies.common.corrected import Measured, corrected, shown
from tokengeom_studies.common.measured import (
    Answer,
    Decision,
    Interval,
    Row,
    chosen,
    decided,
    decided_together,
    interval_curve,
)
from tokengeom_studies.common.text_parts import LIMIT, NORMS, PROBABILITIES

AT_LOSS = "nuclear 0.05"
"""The prediction at a loss that hypotheses are about."""
QUARTER = 0.25
ITEMS = ("contexts", "tokens")
SAME = (0.95, 0.9)
"""Agreement of contexts and of tokens above which two predictions count as the same."""
DIFFERENT = 0.9
FACTOR = 1.25
CONTAINED = 0.8
LARGEST_GAP = 3e-2

GROWTH = (
    ("missing_share", "windows outside, estimated"),
    ("missing_in_twin", "in a second part"),
    ("missing_in_rest", "in the rest"),
    ("new_pairs", "new pairs, estimated"),
    ("new_pairs_in_twin", "in the second part"),
    ("zeros_seen_later", "zeros seen later"),
    ("growing_share", "growing contexts, estimated"),
    ("grew_in_twin", "grew in the second part"),
    ("contexts", "contexts"),
    ("windows", "windows"),
)
"""Numbers of a part, and their columns in the table."""

Values = dict[int, float]
"""Draw -> number."""


class PartFindings:
    """What rows say, by text, size and prediction."""

    def __init__(self, rows: Sequence[Row]) -> None:
        rows = [{**row, "text": row["text"].replace("_windows_", " ")} for row in rows]
        self.growth = chosen(rows, kind="growth")
        self.change = [{**row, **compared} for row in chosen(rows, kind="change") for compared in row["compared"]]
        self.seeds = chosen(rows, kind="seeds")
        self.model = [{**row, **compared} for row in chosen(rows, kind="model") for compared in row["compared"]]
        self.texts = list(dict.fromkeys(row["text"] for row in self.growth))
        self.predictions = list(dict.fromkeys(row["prediction"] for row in self.change))

    def shares(self, text: str) -> list[float]:
        """Sizes of the parts of a text, as shares of it."""
        return sorted({row["share"] for row in self.growth if row["text"] == text})

    def by_draw(self, item: str, text: str, share: float, prediction: str, part: int = 1, whole: int = 1) -> Values:
        """Agreement of each draw."""
        at = {"text": text, "share": share, "prediction": prediction}
        rows = chosen(self.change, **at, part_threshold=part, whole_threshold=whole)
        return {row["draw"]: row[item] for row in rows if row[item] is not None and np.isfinite(row[item])}

    def answers(self) -> dict[str, Answer]:
        """What is decided about each hypothesis."""
        sizes = [(text, share) for text in self.texts for share in self.shares(text)]
        quarters = [(text, QUARTER) for text in self.texts if QUARTER in self.shares(text)]
        thresholds = [(text, share) for text, share in quarters if self.by_draw("contexts", text, share, LIMIT, 2, 2)]

        def contexts(*which: Any) -> Callable[[str, float], Values]:
            return lambda text, share: self.by_draw("contexts", text, share, *which)

        ratios = [self._ratio(*size) for size in sizes]
        quarter = [
            (self.by_draw(item, *at, AT_LOSS), least)
            for at in quarters
            for item, least in zip(ITEMS, SAME, strict=True)
        ]
        return {
            "good-turing": Answer(
                "yes" if ratios and min(ratios) >= 1 / FACTOR and max(ratios) <= FACTOR else "no",
                f"estimate / share that happened: {min(ratios):.2f} to {max(ratios):.2f} over sizes and texts",
            ),
            "good-turing interval": self._contained("missing_share", "missing_error", "missing_in_twin"),
            "good-toulmin interval": self._contained("new_pairs", "new_pairs_error", "new_pairs_in_twin"),
            "stable at a loss": _paired(sizes, contexts(AT_LOSS), contexts(LIMIT)),
            "a quarter suffices": _above([(Interval.of(values.values()), least) for values, least in quarter]),
            "the limit needs more": _below([Interval.of(contexts(LIMIT)(*at).values()) for at in quarters], DIFFERENT),
            "probabilities change least": _paired(sizes, contexts(PROBABILITIES), contexts(AT_LOSS)),
            "thresholds on both sides": _paired(thresholds, contexts(LIMIT, 2, 2), contexts(LIMIT, 1, 1)),
            "a threshold on the part": _paired(thresholds, contexts(LIMIT, 2, 1), contexts(LIMIT, 1, 1)),
            "the model notices": _every([(norm, self.noticed(QUARTER, norm)) for norm in NORMS]),
        }

    def _ratio(self, text: str, share: float) -> float:
        """Estimated share of windows outside the supports, divided by the share that happened."""
        rows = self._of(text, share)
        happened = _mean(row["missing_in_twin"] for row in rows)
        return _mean(row["missing_share"] for row in rows) / max(happened, 1e-12)

    def _of(self, text: str, share: float) -> list[Row]:
        return chosen(self.growth, text=text, share=share)

    def _contained(self, estimate: str, error: str, happened: str) -> Answer:
        inside = [abs(row[estimate] - row[happened]) <= 1.96 * row[error] for row in self.growth]
        return Answer(
            "yes" if sum(inside) >= CONTAINED * len(inside) else "no", f"{sum(inside)} of {len(inside)} parts"
        )

    def noticed(self, share: float, prediction: str) -> Interval:
        """How much better a model agrees with the prediction from the whole text, over seeds."""
        rows = chosen(self.model, share=share, prediction=prediction)
        seeds = sorted({row["seed"] for row in rows})
        return Interval.of(
            float(np.mean([row["from_whole"] - row["from_part"] for row in chosen(rows, seed=seed)])) for seed in seeds
        )

    def growth_table(self) -> Table:
        """Supports: estimates and what happened, means over draws."""
        return table_of(
            [
                {"text": text, "share": share, "draws": len(self._of(text, share))}
                | {column: _rounded(row[name] for row in self._of(text, share)) for name, column in GROWTH}
                for text in self.texts
                for share in self.shares(text)
            ]
        )

    def change_table(self) -> Table:
        """Agreement of each prediction of a part with that of the whole text, one column per size of the part."""
        return table_of(
            [
                {"text": text, "agreement of": item, "prediction": name}
                | {f"{share:g}": _shown(self.by_draw(item, text, share, name).values()) for share in self.shares(text)}
                for text in self.texts
                for item in ITEMS
                for name in self.predictions
            ]
        )

    def threshold_table(self) -> Table:
        """Agreement of contexts by the counts below which pairs are left out; empty without thresholds."""
        lines = []
        for text in self.texts:
            pairs = {(row["part_threshold"], row["whole_threshold"]) for row in chosen(self.change, text=text)}
            for name, (part, whole) in product((LIMIT, AT_LOSS), sorted(pairs) if len(pairs) > 1 else []):
                values = {
                    share: self.by_draw("contexts", text, share, name, part, whole) for share in self.shares(text)
                }
                line = {"text": text, "prediction": name, "part, at least": part, "whole text, at least": whole}
                lines.append(line | {f"{share:g}": _shown(agreements.values()) for share, agreements in values.items()})
        return table_of(lines) if lines else {}

    def model_table(self) -> Table:
        """Agreement of the models with predictions at their loss, from parts of the text and from the whole."""
        keys = dict.fromkeys((row["text"], row["prediction"]) for row in self.model)
        lines = []
        for text, name in keys:
            shares = sorted({row["share"] for row in chosen(self.model, text=text)})
            of_parts = {
                f"from {share:g}": str(self._model_agreement(text, share, name, "from_part")) for share in shares
            }
            whole = str(self._model_agreement(text, shares[-1], name, "from_whole"))
            corrected_line = {
                "corrected, from a quarter": shown(self._corrected(text, QUARTER, name, "from_part")),
                "corrected, whole": shown(self._corrected(text, shares[-1], name, "from_whole")),
            }
            gap = _mean(row["loss_gap"] for row in chosen(self.model, text=text))
            line: dict[str, Any] = {"text": text, "loss gap": round(gap, 4), "prediction": name}
            lines.append(line | of_parts | {"from the whole text": whole} | corrected_line)
        return table_of(lines)

    def _model_agreement(self, text: str, share: float, name: str, side: str) -> Interval:
        return Interval.of(self._by_seed(text, share, name, side).values())

    def _by_seed(self, text: str, share: float, name: str, side: str) -> Measured:
        """Agreement of each model, mean over draws."""
        rows = chosen(self.model, text=text, share=share, prediction=name)
        seeds = sorted({row["seed"] for row in rows})
        return {(seed,): float(np.mean([row[side] for row in chosen(rows, seed=seed)])) for seed in seeds}

    def _corrected(self, text: str, share: float, name: str, side: str) -> Interval:
        """The same, divided by the root of what the models agree to."""
        pairs: Measured = {(a, b): value for row in chosen(self.seeds, text=text) for a, b, value in row["contexts"]}
        return corrected(self._by_seed(text, share, name, side), pairs)

    def checks(self) -> list[Check]:
        """Whether predictions are proven and the models trained."""
        gaps = [row["gap"] for row in (*self.change, *self.model)]
        return [
            Check("largest proven gap of a prediction", max(gaps), high=LARGEST_GAP),
            Check("largest loss gap of a model (nats)", max(row["loss_gap"] for row in self.model), high=0.5),
            Check("parts measured", float(len(self.growth)), low=1.0),
        ]

    def sentence(self) -> str:
        """The answer with its main numbers, for the first text."""
        text, shares = self.texts[0], self.shares(self.texts[0])
        share = QUARTER if QUARTER in shares else shares[0]
        rows = self._of(text, share)
        at_loss, limit = (_mean(self.by_draw("contexts", text, share, name).values()) for name in (AT_LOSS, LIMIT))
        answers = self.answers()
        no = [name for name, answer in answers.items() if answer.decision != "yes"]
        return (
            f"From {share:.0%} of the text, {_mean(r['missing_in_twin'] for r in rows):.1%} of further windows have a "
            f"token outside the supports (Good-Turing estimates {_mean(r['missing_share'] for r in rows):.1%}). "
            f"Predictions from it agree with those of the whole text at {at_loss:.3f} (loss gap 0.05) and "
            f"{limit:.3f} (L_mm) over contexts. Of {len(answers)} hypotheses {len(answers) - len(no)} hold"
            + (f"; not, or not decided: {', '.join(no)}." if no else ".")
        )

    def figures(self) -> list[Figure]:
        """Agreement, growth of supports, and models, each against the size of the part."""
        change = [self._change_panel(text, item) for text in self.texts for item in ITEMS]
        growing = [self._growth_panel(text) for text in self.texts]
        return [
            Figure(
                "change",
                "Predictions from a part of a text, compared with the whole",
                "Correlation of cosines between the prediction from a random part of the documents and that from all "
                "of them, over pairs of contexts with different supports, and of different tokens. Bands are 95% "
                "intervals over random parts.",
                change,
            ),
            Figure(
                "growth",
                "Windows outside the supports",
                "Share of the windows of a second part of the same size whose token is outside the supports of the "
                "first, and Good-Turing's estimate from the first part alone.",
                growing,
            ),
            Figure(
                "model",
                "A model of the whole text",
                "Agreement of models trained on the whole text with predictions at their loss, made from a part of the "
                "text (solid) and from all of it (dashed), on the contexts that the part has.",
                [self._model_panel(text) for text in dict.fromkeys(row["text"] for row in self.model)],
            ),
        ]

    def _change_panel(self, text: str, item: str) -> LinePanel:
        x, curves = self.shares(text), []
        plain = [name for name in self.predictions if not name.startswith(NORMS[1])]
        for name in self.predictions:
            intervals = [Interval.of(self.by_draw(item, text, share, name).values()) for share in x]
            # The two norms at one loss have one colour, so that colours suffice.
            twin = name.replace(NORMS[1], NORMS[0])
            curves.append(interval_curve(name, x, intervals, dashed=name != twin, colour=plain.index(twin)))
        return LinePanel(f"{text}: {item}", "share of the text", "agreement", curves, "log")

    def _growth_panel(self, text: str) -> LinePanel:
        x, curves = self.shares(text), []
        for name, label in (("missing_in_twin", "happened"), ("missing_share", "Good-Turing")):
            intervals = [Interval.of(row[name] for row in self._of(text, share)) for share in x]
            curves.append(interval_curve(label, x, intervals, dashed=name == "missing_share"))
        return LinePanel(text, "share of the text", "share of windows", curves, "log", "log")

    def _model_panel(self, text: str) -> LinePanel:
        x, curves = sorted({row["share"] for row in chosen(self.model, text=text)}), []
        for colour, name in enumerate(dict.fromkeys(row["prediction"] for row in self.model)):
            for side, dashed in (("from_part", False), ("from_whole", True)):
                intervals = [self._model_agreement(text, share, name, side) for share in x]
                label = f"{name}, {side.replace('_', ' ')}" if dashed else name
                curves.append(interval_curve(label, x, intervals, dashed=dashed, colour=colour, in_legend=not dashed))
        return LinePanel(text, "share of the text", "agreement over contexts", curves, "log")


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _rounded(values: Iterable[float]) -> float:
    """Mean with three digits; a whole number from 100 on."""
    mean = _mean(values)
    return round(mean) if mean >= 100 else float(f"{mean:.3g}")


def _shown(values: Iterable[float]) -> str:
    """Mean and half of the 95% interval."""
    interval = Interval.of(values)
    return f"{interval.mean:.3f} +- {interval.half:.3f}" if interval.count > 1 else f"{interval.mean:.3f}"


def _every(differences: Sequence[tuple[str, Interval]]) -> Answer:
    """Yes where every difference is above 0, no where one is below."""
    decisions: list[Decision] = [decided(difference) for _, difference in differences]
    because = "; ".join(f"{name}: {difference}" for name, difference in differences) or "not measured"
    return Answer(decided_together(decisions), because)


def _paired(
    sizes: Sequence[tuple[str, float]], more: Callable[[str, float], Values], less: Callable[[str, float], Values]
) -> Answer:
    """Whether one agreement is above another for every size, with the difference of each draw."""
    differences = []
    for text, share in sizes:
        a, b = more(text, share), less(text, share)
        differences.append(
            (f"{text}, {share:.3g}", Interval.of(a[draw] - b[draw] for draw in sorted(a.keys() & b.keys())))
        )
    return _every(differences)


def _above(cases: Sequence[tuple[Interval, float]]) -> Answer:
    decisions: list[Decision] = [decided(interval, least) for interval, least in cases]
    return Answer(
        decided_together(decisions),
        "; ".join(f"{interval} (above {least:g})" for interval, least in cases) or "not measured",
    )


def _below(intervals: Sequence[Interval], most: float) -> Answer:
    decisions: list[Decision] = [
        "yes" if interval.high < most else "no" if interval.low >= most else "undecided" for interval in intervals
    ]
    return Answer(
        decided_together(decisions),
        "; ".join(f"{interval} (below {most:g})" for interval in intervals) or "not measured",
    )
