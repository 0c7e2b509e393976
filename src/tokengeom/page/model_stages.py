"""Stages of a report about trained models: the text is counted with their tokenizer, and reading replaces training.

::

    statistics -> prediction -> path
                             -> model-1, model-2, ... -> at-loss-MODEL-NORM -> comparison-MODEL, rivals of the last one

The last model decides whether the BOS token is read, and is read first. The whole vocabulary takes part, so there is no
choice of a tokenizer or of next tokens; the key of a stage holds the hash of the model's files.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from tokengeom.core.progress import AbstractProgress
from tokengeom.page.compare_models import ModelTextSettings, count_for_model, predict_or_proxy, require_two_tokens
from tokengeom.page.pipeline import PREDICTION, READ, STATISTICS, Pipeline, Stage, comparing_stages, path_stage
from tokengeom.page.read_model import Models, ReadModel
from tokengeom.page.settings import ReportSettings
from tokengeom.page.text import Text
from tokengeom.statistics.cuts import support_policy
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import ProxyPrediction

READING_SECONDS = 8.0
"""Expected duration of loading and reading a model."""


def model_keys(models: Models) -> dict[str, str]:
    """Names on the page by the name that the stages of each model have."""
    return {f"{READ}{place}": name for place, name in enumerate(models.names, start=1)}


def build_model_stages(source: Text | NextTokenStatistics, models: Models) -> list[Stage]:
    """The stages of a report about trained models, in the order in which they are carried out."""
    counting = "Counting" if isinstance(source, Text) else "Saving the statistics"
    stages = [
        Stage(
            STATISTICS,
            counting,
            4.0,
            partial(_statistics, models),
            settings=partial(_statistics_settings, models),
            has_own_bars=True,
        ),
        Stage(
            PREDICTION,
            "Predicting",
            10.0,
            _prediction,
            needs=(STATISTICS,),
            settings=lambda pipeline: {"proxy": pipeline.settings.proxy, "device": pipeline.settings.device},
            has_own_bars=True,
        ),
        path_stage(),
    ]
    keys = model_keys(models)
    read_in_turn = [(models.last, True), *((place, False) for place in range(models.last))]
    stages += [_reading_stage(models, place, is_last) for place, is_last in read_in_turn]
    for place, (key, name) in enumerate(keys.items()):
        stages += comparing_stages(key, name, with_rivals=place == models.last)
    return stages


def chosen_cuts(settings: ReportSettings) -> dict[str, Any]:
    """Context length and number of contexts: as requested, or as `compare_models` has them."""
    usual = ModelTextSettings()
    return {
        "context": settings.context or usual.context,
        "top_contexts": settings.top_contexts or usual.top_contexts,
    }


def _statistics_settings(models: Models, pipeline: Pipeline) -> dict[str, Any]:
    if not isinstance(pipeline.source, Text):
        return {"given": _limited(pipeline).hash}
    return {
        "text": pipeline.text.digest,
        "reading": asdict(pipeline.text.reading),
        "tokenizer": models.folders[models.last].tokenizer_digest,
        "settings": {**chosen_cuts(pipeline.settings), "support": pipeline.settings.support},
    }


def _limited(pipeline: Pipeline) -> NextTokenStatistics:
    assert isinstance(pipeline.source, NextTokenStatistics), "only given statistics are taken as they are"
    return pipeline.source.limited(**pipeline.settings.limits)


def _statistics(models: Models, pipeline: Pipeline) -> NextTokenStatistics:
    """Statistics of the text, or the given ones."""
    if not isinstance(pipeline.source, Text):
        found = _limited(pipeline)
        require_two_tokens(found)
        return found
    return count_for_models(pipeline.text, pipeline.settings, models, pipeline.progress)


def count_for_models(
    text: Text, settings: ReportSettings, models: Models, progress: AbstractProgress
) -> NextTokenStatistics:
    """Statistics of a text with the tokenizer of the last model, and a row for each row of its head."""
    policy = support_policy(settings.support)
    chosen = ModelTextSettings(**chosen_cuts(settings))
    counted = count_for_model(text.corpus, models.load(models.last, progress), chosen, text.reading, progress)
    found = counted if policy is None else counted.cut(policy)
    require_two_tokens(found)
    return found


def _prediction(pipeline: Pipeline) -> FeaturePrediction | ProxyPrediction:
    settings = pipeline.settings
    return predict_or_proxy(pipeline.statistics, settings.proxy, pipeline.progress, settings.device)


def _reading_stage(models: Models, place: int, is_last: bool) -> Stage:
    folder = models.folders[place]

    def bos(pipeline: Pipeline) -> bool | None:
        """As requested, or as the last model was read; None where the last one is to choose."""
        if pipeline.settings.bos is not None or is_last:
            return pipeline.settings.bos
        return pipeline.result(f"{READ}{len(models)}", ReadModel).states.bos

    return Stage(
        f"{READ}{place + 1}",
        f"Reading: {folder.name}",
        READING_SECONDS,
        lambda pipeline: models.read(place, pipeline.statistics, bos(pipeline), pipeline.progress),
        needs=(STATISTICS,),
        settings=lambda pipeline: {
            "name": folder.name,
            "files": folder.digest,
            "bos": bos(pipeline),
            "device": models.device,
            "precision": models.precision,
        },
        has_own_bars=True,
    )
