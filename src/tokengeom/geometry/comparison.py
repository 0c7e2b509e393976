"""What a comparison says: agreement numbers with intervals and a null, and what they must not be taken for.

A comparison on disk: its numbers in one JSON file, under a manifest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokengeom.errors import InputError, ProblemError, missing_extra
from tokengeom.folders import as_json, read_manifest, write_manifest, written_beside
from tokengeom.geometry.agreement import Agreement
from tokengeom.html_table import html_table

MEANINGS = {
    "context_similarity": "SIM of context cosines with L_mm's, 1 is best",
    "token_similarity": "SIM of token cosines with L_mm's, 1 is best",
    "context_cka": "linear CKA of contexts (norms count), 1 is best",
    "token_cka": "linear CKA of tokens (norms count), 1 is best",
    "context_pearson": "correlation of off-diagonal context cosines, 1 is best",
    "token_pearson": "correlation of off-diagonal token cosines, 1 is best",
    "context_spearman": "rank correlation of off-diagonal context cosines, 1 is best",
    "token_spearman": "rank correlation of off-diagonal token cosines, 1 is best",
    "logit_distance": "distance of centred normalised logits, 0 is best, sqrt(2) is unrelated",
    "finite_distance": "||P_F(L) - L_in||, 0 is best",
    "collapse": "scatter of context directions within support groups over between, 0 is best",
    "cosine": "cos(W, W_mm), 1 is best",
    "cosine_without_finite": "cos(W - W_star, W_mm), 1 is best",
    "finite_error": "||P_F(W) - W_star|| / ||W_star||, 0 is best",
    "margin_frobenius": "smallest margin per unit of Frobenius norm, larger is better",
    "margin_max": "smallest margin per unit of the largest entry",
    "margin_spectral": "smallest margin per unit of spectral norm",
    "margin_sum": "smallest margin per unit of the sum of absolute entries",
}
"""What each number is; ``proxy_`` before a name holds the run against the proxy S~ instead of L_mm."""


@dataclass(frozen=True)
class Comparison:
    """Agreement of a run with a prediction.

    ``agreements``
        Name -> number with interval and null; ``comparison["context_cka"]`` is one of them.
    ``kind``
        "features" (tokens and contexts learned) or "linear" (embeddings fixed).
    ``caveats``
        Plain sentences: what is not pinned down, what was left out, what the numbers must not be taken for.
    ``resamples``, ``permutations``, ``seed``
        The draws behind intervals and null.
    ``compared``
        The prediction and the run themselves, for a page; None in a comparison that was loaded.
    """

    agreements: Mapping[str, Agreement]
    kind: str
    caveats: tuple[str, ...]
    resamples: int
    permutations: int
    seed: int
    compared: tuple[Any, Any] | None = field(default=None, repr=False, compare=False)

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
                f"This comparison ({self.kind}) has no number {name!r}; it has {', '.join(self.agreements)}."
            )
        return self.agreements[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.agreements)

    def __len__(self) -> int:
        return len(self.agreements)

    def to_dict(self) -> dict[str, Any]:
        """Each number by name, as plain data, then ``kind``, ``caveats`` and the draws."""
        found: dict[str, Any] = {name: number.to_dict() for name, number in self.agreements.items()}
        settings = {name: getattr(self, name) for name in ("kind", "resamples", "permutations", "seed")}
        return found | settings | {"caveats": list(self.caveats)}

    def to_frame(self) -> Any:
        """Table with one row a number: value, low, high, null, null_mean, better, items, meaning."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            missing_extra("pandas", "pandas", "A data frame of the comparison (to_dict needs nothing)")
        rows = [{"number": n, **a.to_dict(), "meaning": meaning(n)} for n, a in self.agreements.items()]
        return pd.DataFrame(rows).set_index("number")

    def _repr_html_(self) -> str:
        columns = ("number", "value", "95% interval", "chance", "meaning")
        rows = [(name, *number.cells(), meaning(name)) for name, number in self.agreements.items()]
        return html_table("Comparison", rows, [*self._verdict(), *self.caveats], columns)

    def summary(self) -> str:
        """Put the comparison in plain words."""
        lines = [f"{name}: {number} ({meaning(name)})" for name, number in self.agreements.items()]
        draws = f"Brackets: 95% of {self.resamples} resamples. " if self.resamples else ""
        if self.permutations:
            draws += f"Chance: what 1 in 20 of {self.permutations} permutations reaches."
        return "\n".join([*self._verdict(), *lines, *([draws.strip()] if draws else []), *self.caveats])

    def report(self, out: str | Path = "report.html") -> Path:
        """Write one page on this comparison; `tokengeom.report` makes one from a text, with all results kept."""
        import tokengeom

        # By the front door: the room of pages is on a floor above this one.
        return tokengeom.report(self, out).page

    def _verdict(self) -> list[str]:
        if self.kind == "linear":
            return [f"Once W_star is taken off, the decoder's cosine with W_mm is {self['cosine_without_finite']}."]
        prefix = "" if "context_similarity" in self.agreements else "proxy_"
        chosen = {"contexts": f"{prefix}context_similarity", "tokens": f"{prefix}token_similarity"}
        return [_sentence(items, self[name], "proxy" if prefix else "prediction") for items, name in chosen.items()]


def meaning(name: str) -> str:
    """What a number is, in words."""
    if name.startswith("proxy_"):
        return f"against the proxy: {MEANINGS[name.removeprefix('proxy_')].replace('L_mm', 'S~')}"
    return MEANINGS[name]


def _sentence(items: str, number: Agreement, other: str) -> str:
    if math.isnan(number.value):
        return f"The {other} gives {items} no geometry to compare with."
    if math.isnan(number.null):
        return f"SIM of the run's {items} with the {other}: {number}."
    verdict = "more than chance" if number.beats_chance else "no more than chance"
    return f"The run's {items} agree with the {other} {verdict}: SIM {number}."


FORMAT, FORMAT_VERSION = "tokengeom-comparison", 1
NUMBERS = "comparison.json"
_SETTINGS = ("kind", "resamples", "permutations", "seed")


def save_comparison(comparison: Comparison, folder: str | Path) -> None:
    """Write a comparison; an older one of that name is replaced only once the new one is whole."""
    agreements = {name: with_null(number.to_dict()) for name, number in comparison.agreements.items()}
    settings = {name: getattr(comparison, name) for name in _SETTINGS}
    with written_beside(Path(folder), FORMAT) as work:
        content = {"agreements": agreements, "caveats": list(comparison.caveats), **settings}
        (work / NUMBERS).write_bytes(as_json(content))
        write_manifest(work, FORMAT, FORMAT_VERSION, settings)


def load_comparison(folder: str | Path) -> Comparison:
    """Read a comparison back, refusing what is broken, foreign or from a newer version."""
    folder = Path(folder)
    read_manifest(folder, FORMAT, FORMAT_VERSION)
    try:
        content = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))
        agreements = {name: Agreement(**with_nan(number)) for name, number in content["agreements"].items()}
        return Comparison(agreements, caveats=tuple(content["caveats"]), **{name: content[name] for name in _SETTINGS})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder} is incomplete or damaged: {error!r}. Compare again.") from error


def with_null(number: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no NaN: a number that is not defined is null there."""
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in number.items()}


def with_nan(number: dict[str, Any]) -> dict[str, Any]:
    """What `with_null` was made from."""
    return {name: float("nan") if x is None else x for name, x in number.items()}
