"""`Comparison`: agreement of a run with a prediction, with intervals, a permutation null and limitations."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from tokengeom.errors import ProblemError, missing_extra
from tokengeom.folders import as_json
from tokengeom.geometry.agreement import Agreement
from tokengeom.results import AbstractResult, html_table

if TYPE_CHECKING:
    from pandas import DataFrame

PredictionKind = Literal["features", "linear"]

MEANINGS = {
    "context_similarity": "SIM of context cosines with L_mm's, 1 is best",
    "token_similarity": "SIM of token cosines with L_mm's, 1 is best",
    "context_cka": "linear CKA of contexts (norms matter), 1 is best",
    "token_cka": "linear CKA of tokens (norms matter), 1 is best",
    "context_pearson": "correlation of off-diagonal context cosines, 1 is best",
    "token_pearson": "correlation of off-diagonal token cosines, 1 is best",
    "context_spearman": "rank correlation of off-diagonal context cosines, 1 is best",
    "token_spearman": "rank correlation of off-diagonal token cosines, 1 is best",
    "logit_distance": "distance of centred normalised logits, 0 is best, sqrt(2) is unrelated",
    "finite_distance": "||P_F(L) - L_in||, 0 is best",
    "collapse": "ratio of the scatter of context directions within support groups to that between them, 0 is best",
    "cosine": "cos(W, W_mm), 1 is best",
    "cosine_without_finite": "cos(W - W_star, W_mm), 1 is best",
    "finite_error": "||P_F(W) - W_star|| / ||W_star||, 0 is best",
    "margin_frobenius": "smallest margin per unit of Frobenius norm, larger is better",
    "margin_max": "smallest margin per unit of the largest entry, larger is better",
    "margin_spectral": "smallest margin per unit of spectral norm, larger is better",
    "margin_sum": "smallest margin per unit of the sum of absolute entries, larger is better",
}
"""What each number is, where the run is compared with L_mm."""
PREFIXES = {
    "": ("", "L_mm", "prediction"),
    "at_loss_": ("at a loss: ", "L_g", "prediction at a loss gap"),
    "proxy_": ("compared with the proxy: ", "S~", "proxy"),
}
"""Beginning of a number's name -> what stands before its meaning, what the run is compared with, and that in words."""

FILE = "comparison.json"
_STORED = ("prediction_kind", "resamples", "permutations", "seed")


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(AbstractResult):
    """Agreement of a run with a prediction.

    ``agreements``
        Name -> number with interval and null; ``comparison["context_cka"]`` is one of them.
    ``prediction_kind``
        "features" (tokens and contexts learned) or "linear" (embeddings fixed).
    ``limitations``
        Sentences: what is not unique, what was left out, how the numbers must not be read.
    ``resamples``, ``permutations``, ``seed``
        Draws behind intervals and null.
    ``compared``
        The prediction and the run, for a page; None in a comparison that was loaded.
    """

    kind: ClassVar[str] = "tokengeom-comparison"
    title: ClassVar[str] = "Comparison"

    agreements: Mapping[str, Agreement]
    prediction_kind: PredictionKind
    limitations: tuple[str, ...]
    resamples: int
    permutations: int
    seed: int
    compared: tuple[object, object] | None = None

    @property
    def context_similarity(self) -> Agreement:
        """SIM of the contexts' cosines with those of L_mm."""
        return self["context_similarity"]

    @property
    def token_similarity(self) -> Agreement:
        """SIM of the tokens' cosines with those of L_mm."""
        return self["token_similarity"]

    def __getitem__(self, name: str) -> Agreement:
        if name not in self.agreements:
            raise ProblemError(
                f"This comparison ({self.prediction_kind}) has no number {name!r}; it has {', '.join(self.agreements)}."
            )
        return self.agreements[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.agreements)

    def __len__(self) -> int:
        return len(self.agreements)

    def to_dict(self) -> dict[str, Any]:
        """Each number by name, then the kind of prediction, the draws and the limitations."""
        numbers: dict[str, Any] = {name: number.to_dict() for name, number in self.agreements.items()}
        return numbers | {name: getattr(self, name) for name in _STORED} | {"limitations": list(self.limitations)}

    def to_frame(self) -> DataFrame:
        """Data frame with one row per number: value, low, high, null, null_mean, better, items, meaning."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            missing_extra("pandas", "pandas", "A data frame of the comparison (to_dict needs nothing)")
        rows = [{"number": n, **a.to_dict(), "meaning": meaning(n)} for n, a in self.agreements.items()]
        return pd.DataFrame(rows).set_index("number")

    def summary(self) -> str:
        """The verdict, every number with its meaning, and the limitations, one per line."""
        numbers = [f"{name}: {number} ({meaning(name)})" for name, number in self.agreements.items()]
        draws = describe_draws(self.resamples, self.permutations)
        return "\n".join([*self._verdict(), *numbers, *draws, *self.limitations])

    def _headline(self) -> dict[str, Agreement]:
        """The numbers that the verdict is about."""
        if self.prediction_kind == "linear":
            names = ["cosine_without_finite"]
        else:
            prefix = next(prefix for prefix in PREFIXES if f"{prefix}context_similarity" in self.agreements)
            names = [f"{prefix}context_similarity", f"{prefix}token_similarity"]
        return {name: self[name] for name in names}

    def _verdict(self) -> list[str]:
        if self.prediction_kind == "linear":
            return [f"After subtracting W_star, the decoder's cosine with W_mm is {self['cosine_without_finite']}."]
        return [_sentence(name, number) for name, number in self._headline().items()]

    def _facts(self) -> list[tuple[str, str]]:
        headline = [(name, str(number)) for name, number in self._headline().items()]
        return [("prediction", self.prediction_kind), *headline, ("numbers", str(len(self)))]

    def _repr_html_(self) -> str:
        columns = ("number", "value", "95% interval", "chance", "meaning")
        rows = [(name, *number.cells(), meaning(name)) for name, number in self.agreements.items()]
        return html_table(self.title, rows, [*self._verdict(), *self.limitations], columns)

    def _write(self, folder: Path) -> dict[str, Any]:
        settings = {name: getattr(self, name) for name in _STORED}
        (folder / FILE).write_bytes(as_json(self.to_json()))
        return settings

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        return cls.from_json(json.loads((folder / FILE).read_text(encoding="utf-8")))

    def to_json(self) -> dict[str, Any]:
        """Everything that is saved, as valid JSON: NaN is null."""
        numbers = {name: nan_to_none(number.to_dict()) for name, number in self.agreements.items()}
        settings = {name: getattr(self, name) for name in _STORED}
        return {"agreements": numbers, "limitations": list(self.limitations), **settings}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The comparison that `to_json` described."""
        numbers = {name: Agreement(**none_to_nan(number)) for name, number in content["agreements"].items()}
        settings = {name: content[name] for name in _STORED}
        return cls(numbers, limitations=tuple(content["limitations"]), **settings)


def meaning(name: str) -> str:
    """What a number is, in a phrase."""
    prefix = prefix_of(name)
    before, other, _ = PREFIXES[prefix]
    return f"{before}{MEANINGS[name.removeprefix(prefix)].replace('L_mm', other)}"


def prefix_of(name: str) -> str:
    """The beginning of a number's name that says what the run is compared with."""
    return next((prefix for prefix in PREFIXES if prefix and name.startswith(prefix)), "")


def describe_draws(resamples: int, permutations: int) -> list[str]:
    """How to read the brackets and "chance" behind a number; nothing where neither was asked for."""
    parts = []
    if resamples:
        parts.append(f"Brackets: 95% interval over {resamples} bootstrap resamples.")
    if permutations:
        parts.append(f"Chance: 95th percentile of {permutations} permutations (5th where lower is better).")
    return [" ".join(parts)] if parts else []


def nan_to_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with None for numbers that are not finite, which JSON does not have."""
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in fields.items()}


def none_to_nan(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `nan_to_none`."""
    return {name: float("nan") if x is None else x for name, x in fields.items()}


def _sentence(name: str, number: Agreement) -> str:
    """How well one kind of items agrees with what the run is compared with."""
    other = PREFIXES[prefix_of(name)][2]
    if math.isnan(number.value):
        return f"The {other} gives {number.items} no geometry to compare with."
    if math.isnan(number.null):
        return f"SIM of the run's {number.items} with the {other}: {number}."
    verdict = "more than chance" if number.beats_chance else "no more than chance"
    return f"The run's {number.items} agree with the {other} {verdict}: SIM {number}."
