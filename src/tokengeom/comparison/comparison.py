"""`Comparison`: agreement of a run with a prediction, at the loss reached and in the limit, with a verdict."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast, get_args

from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.disagreement import Disagreement
from tokengeom.comparison.made_from import MadeFrom
from tokengeom.comparison.rival_numbers import RivalRow
from tokengeom.comparison.verdict import Circumstances, Evidence, Outcome, Verdict, judge, judge_decoder
from tokengeom.core.checks import Entries
from tokengeom.core.errors import ProblemError
from tokengeom.results.contract import ALONE, AbstractResult, NearbyResults, data_frame, html_table
from tokengeom.results.manifests import as_json

if TYPE_CHECKING:
    from pandas import DataFrame

    from tokengeom.theory.at_loss import LossPrediction

PredictionKind = Literal["features", "linear"]

MEANINGS = {
    "context_agreement": "correlation of context cosines over pairs with different supports, 1 is best",
    "token_agreement": "correlation of token cosines over pairs of different tokens, 1 is best",
    "context_cka": "centred kernel alignment of contexts with different supports (norms matter), 1 is best",
    "token_cka": "centred kernel alignment of different tokens (norms matter), 1 is best",
    "logit_cosine": "cosine of the centred logits, 1 is best",
    "context_similarity": "the papers' SIM of context cosines, 1 is best",
    "token_similarity": "the papers' SIM of token cosines, 1 is best",
    "finite_distance": "||P_F(L) - L_in||, 0 is best",
    "collapse": "ratio of the scatter of context directions within support groups to that between them, 0 is best",
    "cosine": "cos(W, W_mm), 1 is best",
    "cosine_without_finite": "cos(W - W_star, W_mm), 1 is best",
    "finite_error": "||P_F(W) - W_star|| / ||W_star||, 0 is best",
    "margin_frobenius": "smallest margin per unit of Frobenius norm, larger is better",
    "margin_max": "smallest margin per unit of the largest entry, larger is better",
    "margin_spectral": "smallest margin per unit of spectral norm, larger is better",
    "margin_nuclear": "smallest margin per unit of nuclear norm, larger is better",
    "margin_sum": "smallest margin per unit of the sum of absolute entries, larger is better",
}
"""What each number is."""
PREFIXES = {
    "nuclear_": "at the loss reached, nuclear norm",
    "gamma2_": "at the loss reached, gamma_2 norm",
    "limit_": "in the limit of training",
    "proxy_": "with the proxy",
}
"""Beginning of a number's name -> what the run is compared with."""
TARGETS = {
    "nuclear_": "prediction at the loss reached (nuclear norm)",
    "gamma2_": "prediction at the loss reached (gamma_2 norm)",
    "limit_": "prediction in the limit of training",
    "proxy_": "proxy",
}
"""What a run is compared with, in a sentence, by the beginning of the numbers' names."""
NORM_PREFIX = {"nuclear": "nuclear_", "gamma2": "gamma2_"}

FILE = "comparison.json"
_STORED = ("prediction_kind", "verdict", "better_explanation", "norm", "loss_gap", "runs", "permutations", "seed")


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(AbstractResult):
    """Agreement of a run with a prediction.

    ``agreements``
        Name -> number with interval, floors and ceiling; ``comparison["limit_context_cka"]`` is one of them. Names
        start with what the run is compared with (`PREFIXES`).
    ``verdict``, ``reasons``
        The outcome (`tokengeom.comparison.verdict`), and the sentences behind it; the first is the verdict in full.
    ``better_explanation``
        Name of the explanation that fits better, where the verdict says that one does.
    ``prediction_kind``
        "features" (tokens and contexts learned) or "linear" (embeddings fixed).
    ``norm``
        Norm of the prediction at the loss that the verdict is about; None where there is none.
    ``loss_gap``
        ``CE - H`` of the run in nats on the statistics of the prediction; None where not known.
    ``disagreement``
        Efficiency and split; None where they were not computed.
    ``rows``
        Explanations that need no solver, beside the prediction, for contexts and tokens.
    ``runs``
        Number of runs: the first was compared, the others give the ceiling.
    ``limitations``
        Sentences: what is not unique, what was left out, how the numbers must not be read.
    ``permutations``, ``seed``
        Number of permutations behind the floors, and the seed of every random choice.
    ``circumstances``
        What the verdict depends on besides the numbers; None for a decoder with fixed embeddings.
    ``made_from``
        Hashes of the saved results behind it, and the settings; None where they are not known.
    ``compared``, ``at``
        Prediction and run, and the predictions at the loss, for a page; empty in a comparison that was loaded.
    """

    kind: ClassVar[str] = "tokengeom-comparison"
    title: ClassVar[str] = "Comparison"

    agreements: Mapping[str, Agreement]
    prediction_kind: PredictionKind
    verdict: Outcome
    reasons: tuple[str, ...]
    limitations: tuple[str, ...]
    permutations: int
    seed: int
    better_explanation: str | None = None
    norm: str | None = None
    loss_gap: float | None = None
    disagreement: Disagreement | None = None
    rows: tuple[RivalRow, ...] = ()
    runs: int = 1
    circumstances: Circumstances | None = None
    made_from: MadeFrom | None = None
    compared: tuple[object, object] | None = None
    at: tuple[LossPrediction, ...] = ()

    @property
    def prefix(self) -> str:
        """Beginning of the names of the numbers that the verdict is about."""
        if self.norm is not None:
            return NORM_PREFIX[self.norm]
        return next((p for p in PREFIXES if f"{p}context_agreement" in self.agreements), "")

    @property
    def at_loss(self) -> dict[str, Agreement]:
        """Numbers at the loss reached, without their prefix, in the norm of the verdict; empty where there are none."""
        return {} if self.norm is None else self._table(NORM_PREFIX[self.norm])

    @property
    def in_limit(self) -> dict[str, Agreement]:
        """Numbers in the limit of training, without their prefix; empty where there are none."""
        return self._table("limit_")

    def _table(self, prefix: str) -> dict[str, Agreement]:
        named = {name: one for name, one in self.agreements.items() if name.startswith(prefix)}
        return {name.removeprefix(prefix): one for name, one in named.items()}

    @property
    def context_agreement(self) -> Agreement:
        """Agreement of the contexts across supports, at the loss reached where it is known."""
        return self[f"{self.prefix}context_agreement"]

    @property
    def token_agreement(self) -> Agreement:
        """Agreement of different tokens, at the loss reached where it is known."""
        return self[f"{self.prefix}token_agreement"]

    @property
    def context_similarity(self) -> Agreement:
        """The papers' SIM of the contexts: with L_mm, or with what the run was compared with instead."""
        return self[f"{self._papers}context_similarity"]

    @property
    def token_similarity(self) -> Agreement:
        """The papers' SIM of the tokens: with L_mm, or with what the run was compared with instead."""
        return self[f"{self._papers}token_similarity"]

    @property
    def _papers(self) -> str:
        return "limit_" if "limit_context_similarity" in self.agreements else self.prefix

    @property
    def efficiency(self) -> float:
        """Smallest norm of logits with this loss over that of the run's: a proven lower bound; NaN if unknown."""
        return float("nan") if self.disagreement is None else self.disagreement.efficiency

    @property
    def split(self) -> dict[str, float]:
        """Agreement of contexts and tokens with the balanced factors of the run's own logits, and the exponent."""
        one = self.disagreement
        if one is None:
            return {}
        return {"contexts": one.split_contexts, "tokens": one.split_tokens, "exponent": one.split_exponent}

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
        """Verdict and headline numbers, then every number by name, explanations, draws and limitations."""
        found: dict[str, Any] = {name: getattr(self, name) for name in _STORED} | {"reasons": list(self.reasons)}
        if self.prediction_kind == "features":
            names = ("context_agreement", "token_agreement", "context_similarity", "token_similarity")
            found |= {name: getattr(self, name).to_dict() for name in names}
            found["in_limit"] = {n: one.to_dict() for n, one in self.in_limit.items() if n in names[:2]}
            found |= {"efficiency": self.efficiency, "split": self.split}
        found["numbers"] = {name: number.to_dict() for name, number in self.agreements.items()}
        found["explanations"] = [row.to_dict() for row in self.rows]
        return found | {"limitations": list(self.limitations)}

    def to_frame(self) -> DataFrame:
        """Data frame with one row per number: value, interval, floors, ceiling, and what it means."""
        rows = [{"number": n, **a.to_dict(), "meaning": meaning(n)} for n, a in self.agreements.items()]
        return data_frame(rows).set_index("number")

    def summary(self) -> str:
        """The verdict with its reasons, every number with its meaning, and the limitations, one per line."""
        numbers = [f"{name}: {number} ({meaning(name)})" for name, number in self.agreements.items()]
        sources = [] if self.disagreement is None else self.disagreement.sentences()
        return "\n".join([*self.reasons, *sources, *numbers, *describe_scale(self.permutations), *self.limitations])

    def _headline(self) -> dict[str, Agreement]:
        """The numbers that the verdict is about, and those in the limit."""
        if self.prediction_kind == "linear":
            names = ["cosine_without_finite"]
        else:
            prefixes = dict.fromkeys([self.prefix, *(["limit_"] if self.in_limit else [])])
            names = [f"{prefix}{item}_agreement" for prefix in prefixes for item in ("context", "token")]
        return {name: self[name] for name in names}

    def _facts(self) -> list[tuple[str, str]]:
        headline = [(name, str(number)) for name, number in self._headline().items()]
        efficiency = [] if math.isnan(self.efficiency) else [("efficiency", f"{self.efficiency:.3f}")]
        return [("verdict", self.verdict), *headline, *efficiency, ("numbers", str(len(self)))]

    def _repr_html_(self) -> str:
        columns = ("number", "value", "95% interval", "floor", "ceiling", "meaning")
        rows = [(name, *number.cells(), meaning(name)) for name, number in self.agreements.items()]
        return html_table(self.title, rows, [*self.reasons, *self.limitations], columns)

    def checks(self, beside: NearbyResults = ALONE) -> dict[str, bool | None]:
        """Whether intervals and verdict fit the numbers, and whether everything is the same when computed again."""
        # That module compares, and so imports this one.
        from tokengeom.comparison.computed_again import compare_again

        numbers = [*self.agreements.values(), *(row.agreement for row in self.rows)]
        inside = {"every interval contains its value": all(one.is_inside for one in numbers)}
        return {**inside, **self._check_verdict(), **compare_again(self, beside)}

    def _check_verdict(self) -> dict[str, bool | None]:
        verdict = self.judged()
        if verdict is None:
            return {"the verdict was not derived again: what it depends on is not recorded": None}
        claimed = self.verdict, self.reasons[: len(verdict.reasons)], self.better_explanation
        follows = claimed == (verdict.outcome, verdict.reasons, verdict.better)
        return {"the verdict and its reasons follow from the numbers": follows}

    def judged(self) -> Verdict | None:
        """The verdict that the numbers give; None where it cannot be derived from them."""
        return self.judged_as("run")

    def judged_as(self, noun: str) -> Verdict | None:
        """The same in sentences that call what was compared by this noun: "run" or "model"."""
        if self.prediction_kind == "linear":
            return judge_decoder(self["cosine_without_finite"])
        if self.circumstances is None:
            return None
        return judge(evidence_of(self.agreements, self.rows, self.prefix, self.loss_gap, self.circumstances), noun)

    def _write(self, folder: Path) -> dict[str, Any]:
        (folder / FILE).write_bytes(as_json(self.to_json()))
        return {name: nan_to_none(getattr(self, name)) for name in _STORED}

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        content = Entries(json.loads((folder / FILE).read_text(encoding="utf-8")), folder)
        for name in _STORED:
            if name not in manifest or content.value(name) != manifest[name]:
                raise content.damaged(f"{name} is not the same in {FILE} and in the manifest")
        return cls.from_json(content)

    def to_json(self) -> dict[str, Any]:
        """Everything that is saved, as valid JSON: NaN is null."""
        content: dict[str, Any] = {name: getattr(self, name) for name in _STORED}
        content["agreements"] = {name: number.to_dict() for name, number in self.agreements.items()}
        content["rows"] = [row.to_dict() for row in self.rows]
        content["disagreement"] = None if self.disagreement is None else self.disagreement.to_dict()
        content["circumstances"] = None if self.circumstances is None else asdict(self.circumstances)
        content["made_from"] = None if self.made_from is None else self.made_from.to_dict()
        content |= {"reasons": list(self.reasons), "limitations": list(self.limitations)}
        found: dict[str, Any] = nan_to_none(content)
        return found

    @classmethod
    def from_json(cls, stored: Entries) -> Self:
        """The comparison that `to_json` described."""
        more = ("agreements", "rows", "disagreement", "circumstances", "made_from", "reasons", "limitations")
        stored.only(*_STORED, *more)
        numbers = stored.inside("agreements")
        found = cls(
            {name: Agreement.read(numbers.inside(name)) for name in numbers.names},
            prediction_kind=cast(PredictionKind, stored.text("prediction_kind", get_args(PredictionKind))),
            verdict=cast(Outcome, stored.text("verdict", get_args(Outcome))),
            reasons=stored.texts("reasons"),
            limitations=stored.texts("limitations"),
            permutations=stored.whole("permutations"),
            seed=stored.whole("seed"),
            better_explanation=stored.text("better_explanation") if stored.has("better_explanation") else None,
            norm=stored.text("norm", NORM_PREFIX) if stored.has("norm") else None,
            loss_gap=stored.number("loss_gap") if stored.has("loss_gap") else None,
            disagreement=Disagreement.read(stored.inside("disagreement")) if stored.has("disagreement") else None,
            rows=tuple(map(RivalRow.read, stored.several("rows"))),
            runs=stored.whole("runs", 1),
            circumstances=Circumstances.read(stored.inside("circumstances")) if stored.has("circumstances") else None,
            made_from=MadeFrom.read(stored.inside("made_from")) if stored.has("made_from") else None,
        )
        found._require_complete(stored)
        return found

    def _require_complete(self, stored: Entries) -> None:
        """Refuse a saved comparison without a number that its verdict is about, or with one that has no meaning."""
        for name in self.agreements:
            if name.removeprefix(prefix_of(name)) not in MEANINGS:
                raise stored.damaged(f"it has a number {name!r}, which does not exist")
        needed = ["cosine_without_finite"]
        if self.prediction_kind == "features":
            numbers = ("context_agreement", "token_agreement")
            needed = [f"{self.prefix}{name}" for name in numbers]
            needed += [f"{self._papers}{name}" for name in ("context_similarity", "token_similarity")]
            needed += [f"limit_{name}" for name in numbers if self.in_limit]
        missing = [name for name in needed if name not in self.agreements]
        if missing or not self.reasons:
            raise stored.damaged(f"{missing[0] if missing else 'the reason of the verdict'} is missing")


def evidence_of(
    agreements: Mapping[str, Agreement],
    rows: Sequence[RivalRow],
    prefix: str,
    loss_gap: float | None,
    circumstances: Circumstances,
) -> Evidence:
    """What the verdict on learned features is based on; ``prefix`` begins the names of the numbers it is about."""
    return Evidence(
        contexts=agreements[f"{prefix}context_agreement"],
        tokens=agreements[f"{prefix}token_agreement"],
        collapse=agreements.get("collapse"),
        rows=rows,
        target=TARGETS[prefix],
        loss_gap=loss_gap,
        **asdict(circumstances),
    )


def meaning(name: str) -> str:
    """What a number is, in a phrase."""
    prefix = prefix_of(name)
    said = MEANINGS[name.removeprefix(prefix)]
    return f"{PREFIXES[prefix]}: {said}" if prefix else said


def prefix_of(name: str) -> str:
    """The beginning of a number's name that says what the run is compared with; empty where there is none."""
    return next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")


def describe_scale(permutations: int) -> list[str]:
    """How to read the brackets, the floor and the ceiling behind a number."""
    found = "Brackets: 95% interval, leaving out support groups (or tokens) in turn."
    if permutations:
        found += (
            f" Floor: the largest of the 95th percentile over {permutations} permutations of the groups, that of "
            "Gaussian embeddings, and the model before training (5th and smallest where lower is better). Ceiling: "
            "another training."
        )
    return [found]


def nan_to_none(content: Any) -> Any:
    """Plain data with None for numbers that are not finite, which JSON does not have."""
    if isinstance(content, dict):
        return {name: nan_to_none(x) for name, x in content.items()}
    if isinstance(content, list | tuple):
        return [nan_to_none(x) for x in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
