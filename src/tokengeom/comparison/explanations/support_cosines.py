"""Centred supports at power 1: cosines of the supports themselves, without any factors [zhao2024]."""

from __future__ import annotations

from tokengeom.comparison.explanations.proxy import Proxy


class SupportCosines(Proxy):
    """``M = S~ = (I - 11^T/V) S``; contexts are its columns and tokens its rows."""

    name = "cos S~"
    meaning = "cosines of centred supports"
    order = 3
    power = 1.0
