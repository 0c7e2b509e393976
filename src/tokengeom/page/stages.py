"""The stages of a report, each kept by what went in: choice, statistics, prediction, runs, comparisons, page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokengeom.folders import as_json, read_manifest, write_manifest, written_beside
from tokengeom.geometry.compare import compare
from tokengeom.geometry.comparison import Comparison, load_comparison, save_comparison
from tokengeom.geometry.probes import feature_probes
from tokengeom.geometry.rival_table import load_rivals, save_rivals
from tokengeom.geometry.rivals import Rivals, rivals
from tokengeom.page.cache import Kept, Results
from tokengeom.page.choice import Wishes, choose
from tokengeom.page.contents import Choice
from tokengeom.page.recipe import NAMES, Recipe, rate_schedule
from tokengeom.page.text import Text
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics, standard_cuts
from tokengeom.theory.features import FeaturePrediction, load_features, predict_features
from tokengeom.training.run import Run
from tokengeom.training.train import train

CHOICE, STATISTICS, PREDICTION = "choice", "statistics", "prediction"
CHOICE_FORMAT, CHOICE_VERSION = "tokengeom-choice", 1
SNAPSHOT_SECONDS = 10.0


@dataclass(frozen=True)
class Stages:
    """The stages over one folder of results.

    Every method returns a stage's result, made or loaded. ``used`` gathers the keys that went into this report.
    """

    results: Results
    recipe: Recipe
    progress: AbstractProgress
    used: dict[str, str] = field(default_factory=dict)

    def choice(self, text: Text, wishes: Wishes) -> Choice:
        """Settings for the text, and why."""
        inputs = {"text": text.digest, "reading": vars(text.reading), "wishes": asdict(wishes)}
        return self._keep(
            CHOICE, inputs, lambda folder: _save_choice(choose(text, wishes, self.progress), folder), _load_choice
        )

    def statistics(self, text: Text, choice: Choice) -> NextTokenStatistics:
        """What follows what, counted on the whole text with the chosen settings."""
        inputs = {"text": text.digest, "reading": vars(text.reading), "settings": dict(choice.settings)}

        def make(folder: Path) -> NextTokenStatistics:
            chosen = choice.settings
            stats = count(
                text.corpus,
                context=chosen["context"],
                tokenizer=chosen["tokenizer"],
                cuts=standard_cuts(chosen["top_contexts"], chosen["vocabulary"]),
                reading=text.reading,
                progress=self.progress,
            )
            stats.save(folder)
            return stats

        return self._keep(STATISTICS, inputs, make, NextTokenStatistics.load)

    def given_statistics(self, stats: NextTokenStatistics, digest: str) -> NextTokenStatistics:
        """Statistics that were counted before."""

        def make(folder: Path) -> NextTokenStatistics:
            stats.save(folder)
            return stats

        return self._keep(STATISTICS, {"given": digest}, make, NextTokenStatistics.load)

    def prediction(self, stats: NextTokenStatistics) -> FeaturePrediction:
        """The limit of training, with its proof."""

        def make(folder: Path) -> FeaturePrediction:
            with self.progress.stage("Predicting", None):
                prediction = predict_features(stats)
                prediction.save(folder)
            return prediction

        return self._keep(PREDICTION, self._after(STATISTICS), make, load_features)

    def run(self, model: str, stats: NextTokenStatistics, prediction: FeaturePrediction) -> Run:
        """One trained model, measured against the prediction along the way; a stopped training goes on."""
        name, options = f"run-{model}", self.recipe.training(model)
        inputs = {**self._after(STATISTICS, PREDICTION), "training": options}

        def make(folder: Path) -> Run:
            run = train(
                stats,
                **options,
                rate_schedule=rate_schedule(options),
                probes=feature_probes(prediction),
                progress=self.progress,
                checkpoint=self.results.snapshots(name, inputs),
                checkpoint_seconds=SNAPSHOT_SECONDS,
                resume=True,
            )
            # Training answers Ctrl-C with what it has so far; a report that goes on from there would be half a report.
            if run.status == "interrupted":
                raise KeyboardInterrupt
            run.save(folder)
            self.results.forget_snapshots(name, inputs)
            return run

        return self._keep(name, inputs, make, Run.load)

    def comparison(self, model: str, prediction: FeaturePrediction, run: Run) -> Comparison:
        """How well the model agrees with the prediction."""
        draws, seed = self.recipe.draws, self.recipe.seed
        inputs = {**self._after(PREDICTION, f"run-{model}"), "draws": draws, "seed": seed}

        def make(folder: Path) -> Comparison:
            with self.progress.stage(f"Comparing ({NAMES[model]})", None):
                comparison = compare(prediction, run, resamples=draws, permutations=draws, seed=seed)
                save_comparison(comparison, folder)
            return comparison

        return self._keep(f"comparison-{model}", inputs, make, load_comparison)

    def rivals(self, model: str, stats: NextTokenStatistics, prediction: FeaturePrediction, run: Run) -> Rivals:
        """Which of several explanations gives the model's geometry best."""
        draws, seed = self.recipe.draws, self.recipe.seed
        inputs = {**self._after(STATISTICS, PREDICTION, f"run-{model}"), "draws": draws, "seed": seed}

        def make(folder: Path) -> Rivals:
            with self.progress.stage(f"Rival explanations ({NAMES[model]})", None):
                table = rivals(stats, run, prediction, resamples=draws, permutations=draws, seed=seed)
                save_rivals(table, folder)
            return table

        return self._keep(f"rivals-{model}", inputs, make, load_rivals)

    def _keep(
        self, name: str, inputs: dict[str, Any], make: Callable[[Path], Kept], load: Callable[[Path], Kept]
    ) -> Kept:
        value = self.results.keep(name, inputs, make, load)
        self.used[name] = self.results.stages[name]["key"]
        return value

    def _after(self, *names: str) -> dict[str, Any]:
        """Inputs that say which results a stage builds on."""
        return {"stages": {name: self.used[name] for name in names}}


def why_no_transformer(recipe: Recipe) -> str | None:
    """A sentence where a transformer is not trained; None where it is."""
    if not recipe.transformer:
        return "No transformer was trained, as asked for."
    absent = [package for package in ("torch", "transformers") if find_spec(package) is None]
    if absent:
        return (
            f"No transformer was trained: it needs {' and '.join(absent)}, which this environment lacks. Install with: "
            "pip install 'tokengeom[networks]', and make the report again; what is finished is kept."
        )
    return None


def _save_choice(choice: Choice, folder: Path) -> Choice:
    with written_beside(folder, CHOICE_FORMAT) as work:
        (work / "choice.json").write_bytes(as_json(asdict(choice)))
        write_manifest(work, CHOICE_FORMAT, CHOICE_VERSION, {})
    return choice


def _load_choice(folder: Path) -> Choice:
    read_manifest(folder, CHOICE_FORMAT, CHOICE_VERSION)
    content = json.loads((folder / "choice.json").read_text(encoding="utf-8"))
    return Choice(content["settings"], tuple(content["reasons"]), tuple(content["candidates"]))
