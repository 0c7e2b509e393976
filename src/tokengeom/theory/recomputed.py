"""What the checks of all predictions share: comparison with the statistics, with certificates and with sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Protocol

import numpy as np
from scipy.sparse import csc_array

from tokengeom.core.checks import Entries
from tokengeom.core.numerics import Float, x_log_x
from tokengeom.problems.base import Certificate
from tokengeom.results.contract import NearbyResults, close
from tokengeom.statistics.next_token import NextTokenStatistics

SAME_PROBABILITY = 1e-12
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_NOISE = 1e-7
"""Numbers in sentences below this are rounding, which differs from machine to machine."""


class ForStatistics(Protocol):
    """A prediction that says which statistics it is for."""

    @property
    def statistics_hash(self) -> str | None:
        """Hash of the statistics."""

    @property
    def stats(self) -> NextTokenStatistics | None:
        """The statistics themselves, where they are at hand."""


def against_statistics(
    prediction: ForStatistics, beside: NearbyResults, compare: Callable[[NextTokenStatistics], dict[str, bool | None]]
) -> dict[str, bool | None]:
    """The checks of a prediction against its statistics, where these are at hand or lie beside it."""
    stats, wanted = prediction.stats, prediction.statistics_hash
    if wanted is None:
        return {"that the probabilities are those of statistics: the prediction was made from arrays": None}
    if stats is None:
        stats = beside.find(NextTokenStatistics, hash=wanted)
    if stats is None:
        return {
            "that the prediction is for its statistics: they are not beside it; name their folder with --with": None
        }
    return {"the statistics have the hash that the prediction names": stats.hash == wanted, **compare(stats)}


def same_shares(found: Float, expected: Float) -> bool:
    """Whether shares of contexts are equal, up to rounding."""
    return found.shape == expected.shape and bool(np.abs(found - expected).max(initial=0.0) <= SAME_PROBABILITY)


def same_probabilities(found: csc_array, expected: csc_array) -> bool:
    """Whether sparse probabilities are equal, up to rounding."""
    return (
        found.shape == expected.shape
        and np.array_equal(found.indptr, expected.indptr)
        and np.array_equal(found.indices, expected.indices)
        and bool(np.abs(found.data - expected.data).max(initial=0.0) <= SAME_PROBABILITY)
    )


def entropy_of(P: csc_array, pi: Float) -> float:
    """The entropy floor of probabilities, V x m, and shares, m, in nats."""
    return -float(np.repeat(pi, np.diff(P.indptr)) @ x_log_x(P.data))


def read_certificate(saved: Entries, *, finite: bool = True) -> Certificate:
    """A certificate from a manifest, without NaN; ``finite`` refuses infinite numbers too."""
    for name in ("primal_residual", "dual_residual", "value", "bound"):
        if math.isnan(saved.number(name, finite=finite)):
            raise saved.damaged(f"{name} of a certificate is not a number")
    if saved.number("primal_residual", finite=finite) < 0 or saved.number("dual_residual", finite=finite) < 0:
        raise saved.damaged("a residual of a certificate is below 0")
    read = Certificate(
        *(saved.number(name, finite=finite) for name in ("primal_residual", "dual_residual", "value", "bound"))
    )
    if not close(saved.number("relative_gap", finite=finite), read.relative_gap):
        raise saved.damaged("the relative gap of a certificate is not that of its value and its bound")
    return read


def same_certificate(found: Certificate, claimed: Certificate) -> bool:
    """Whether residuals, value and bound agree, as far as two machines do."""
    return all(
        close(one, other)
        for one, other in (
            (found.primal_residual, claimed.primal_residual),
            (found.dual_residual, claimed.dual_residual),
            (found.value, claimed.value),
            (found.bound, claimed.bound),
        )
    )


def same_sentence(found: str, claimed: str) -> bool:
    """Whether sentences agree: in their words, and in their numbers up to what is rounded away in them."""
    if _NUMBER.sub("#", found) != _NUMBER.sub("#", claimed):
        return False
    pairs = zip(map(float, _NUMBER.findall(found)), map(float, _NUMBER.findall(claimed)), strict=True)
    return all(one == other or abs(one - other) <= max(_NOISE, 0.02 * abs(one)) for one, other in pairs)
