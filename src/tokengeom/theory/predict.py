"""The verb `predict`: from statistics to the limit of training, with a proof."""

from __future__ import annotations

from pathlib import Path
from typing import Any, overload

from tokengeom.folders import read_kind
from tokengeom.numerics import Float
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory import features as feature_storage
from tokengeom.theory import linear as linear_storage
from tokengeom.theory.features import FeaturePrediction, predict_features
from tokengeom.theory.linear import LinearPrediction, predict_linear
from tokengeom.theory.proxy import ProxyPrediction, predict_proxy

Prediction = FeaturePrediction | LinearPrediction | ProxyPrediction


@overload
def predict(stats: NextTokenStatistics, *, embeddings: Float, **options: Any) -> LinearPrediction: ...


@overload
def predict(stats: NextTokenStatistics, *, embeddings: None = None, **options: Any) -> FeaturePrediction: ...


def predict(
    stats: NextTokenStatistics, *, embeddings: Float | None = None, proxy: bool = False, **options: Any
) -> Prediction:
    """Predict where next-token training converges.

    Parameters
    ----------
    stats
        What follows what in the text.
    embeddings
        H, d x m, with columns in the order of ``stats``: the linear model, in which only the decoder is trained.
        Without them both factors are learned, and the geometry follows from the supports alone.
    proxy
        The proxy ``S~`` alone, for statistics beyond the solver's size; it is stated as such.
    **options
        Of `predict_linear`, `predict_features` or `predict_proxy`.
    """
    if embeddings is not None:
        return predict_linear(stats, embeddings, **options)
    if proxy:
        return predict_proxy(stats.S, **options)
    return predict_features(stats, **options)


def load_prediction(folder: str | Path) -> FeaturePrediction | LinearPrediction:
    """Read a saved prediction of either kind."""
    if read_kind(Path(folder)) == linear_storage.FORMAT:
        return linear_storage.load_linear(folder)
    return feature_storage.load_features(folder)
