"""`MadeFrom`: which saved results a comparison was made from, so that `tokengeom.verify` can compute it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tokengeom.comparison.model_states import ModelStates
from tokengeom.results.contract import AbstractResult, NearbyResults, saved_hash
from tokengeom.results.registry import result_class
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.run import Run

if TYPE_CHECKING:
    from tokengeom.comparison.inputs import Observed, Prediction
    from tokengeom.core.checks import Entries

NOT_SAVED = "not saved"
"""In place of the hash of something that was not a saved result, such as a pair of arrays."""


@dataclass(frozen=True, eq=False)
class Sources:
    """The results themselves: ``prediction`` is None where none was given, ``at`` are those at the loss."""

    prediction: Prediction | None
    runs: list[Observed]
    at: list[LossPrediction]
    stats: NextTokenStatistics | None


@dataclass(frozen=True)
class MadeFrom:
    """What a comparison or a table of explanations was made from.

    ``prediction``, ``runs``, ``at``
        Hashes of the saved prediction, runs, and predictions at the loss; `NOT_SAVED` for what was not saved, None and
        empty for what was not given.
    ``statistics``
        Hash of the statistics, where their counts were used; None where the prediction's probabilities were.
    ``settings``
        Settings and numbers that were given.
    """

    prediction: str | None = None
    runs: tuple[str, ...] = ()
    at: tuple[str, ...] = ()
    statistics: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(
        prediction: object,
        runs: Sequence[object],
        at: Sequence[LossPrediction],
        stats: NextTokenStatistics | None,
        settings: Mapping[str, Any],
    ) -> MadeFrom:
        """The hashes of what was given."""
        return MadeFrom(
            None if prediction is None else _hash(prediction),
            tuple(map(_hash, runs)),
            tuple(map(_hash, at)),
            None if stats is None else stats.hash,
            dict(settings),
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as plain data."""
        return asdict(self) | {"runs": list(self.runs), "at": list(self.at)}

    @staticmethod
    def read(stored: Entries) -> MadeFrom:
        """What `to_dict` described."""
        stored.only("prediction", "runs", "at", "statistics", "settings")
        return MadeFrom(
            stored.text("prediction") if stored.has("prediction") else None,
            stored.texts("runs"),
            stored.texts("at"),
            stored.digest("statistics") if stored.has("statistics") else None,
            _settings(stored.inside("settings")),
        )

    def find(self, beside: NearbyResults) -> Sources | str:
        """The results that this was made from; where one is not there, a sentence that says which."""
        stats = self._statistics(beside)
        prediction = None if self.prediction is None else _prediction(beside, self.prediction)
        runs = [_run(beside, seal) for seal in self.runs]
        at = [beside.find(LossPrediction, seal=seal) for seal in self.at]
        missing = [("statistics", self.statistics)] if self.statistics is not None and stats is None else []
        if self.prediction is not None and prediction is None:
            missing.append(("prediction", self.prediction))
        missing += [("run", seal) for seal, run in zip(self.runs, runs, strict=True) if run is None]
        missing += [("prediction at the loss", seal) for seal, one in zip(self.at, at, strict=True) if one is None]
        if missing or not runs:
            return _why(missing)
        if stats is not None and isinstance(prediction, FeaturePrediction | ProxyPrediction):
            prediction = replace(prediction, stats=stats)
        return Sources(
            prediction, [run for run in runs if run is not None], [one for one in at if one is not None], stats
        )

    def _statistics(self, beside: NearbyResults) -> NextTokenStatistics | None:
        found = beside.find(NextTokenStatistics, hash=self.statistics)
        return found if found is not None and found.hash == self.statistics else None

    @property
    def hashes(self) -> list[str]:
        """Hashes of every saved result but the statistics."""
        named = [*([] if self.prediction is None else [self.prediction]), *self.runs, *self.at]
        return [one for one in named if one != NOT_SAVED]


def _settings(stored: Entries) -> dict[str, Any]:
    """Saved settings of a comparison, each of its type."""
    found: dict[str, Any] = {}
    for name in stored.names:
        if not stored.has(name):
            found[name] = None
        elif name == "at_loss":
            found[name] = stored.flag(name)
        elif name == "explanations":
            found[name] = stored.texts(name)
        elif name in ("tolerance", "loss_gap", "held_out"):
            found[name] = stored.number(name)
        else:
            raise stored.damaged(f"{name!r} is not the name of a setting")
    return found


def _hash(result: object) -> str:
    return (saved_hash(result) if isinstance(result, AbstractResult | ModelStates) else None) or NOT_SAVED


def _prediction(beside: NearbyResults, seal: str) -> Prediction | None:
    return (
        beside.find(FeaturePrediction, seal=seal)
        or beside.find(LossPrediction, seal=seal)
        or beside.find(ProxyPrediction, seal=seal)
        or beside.find(LinearPrediction, seal=seal)
    )


def _run(beside: NearbyResults, seal: str) -> Observed | None:
    """A run, or the states of a model that was read, which are what is compared."""
    run = beside.find(Run, seal=seal)
    if run is not None:
        return run
    model = beside.find(result_class("tokengeom-model"), seal=seal)
    return None if model is None else getattr(model, "states")  # noqa: B009 - its class belongs to a later package


def _why(missing: Sequence[tuple[str, str]]) -> str:
    """Why nothing was computed again, as the end of a sentence."""
    if not missing:
        return "what it was made from is not recorded"
    # With something that was not saved, no folder helps.
    for name, seal in missing:
        if seal == NOT_SAVED:
            return f"the {name} was not a saved result"
    name, seal = missing[0]
    if name == "statistics":
        return f"the statistics with the hash {seal[:8]} are not beside it (give their folder: --with FOLDER)"
    return f"the {name} with the hash {seal[:8]} is not beside it (give its folder: --with FOLDER)"
