"""Settings of a report: how the text is cut, and how its models are trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Literal, get_args

from tokengeom.errors import InputError
from tokengeom.settings import option
from tokengeom.training.optimizers.base import paper_steps
from tokengeom.training.settings import TrainingSettings

Preset = Literal["small", "paper"]
UFM, TRANSFORMER = "ufm", "transformer"
MODEL_NAMES = {UFM: "unconstrained features", TRANSFORMER: "transformer"}
"""Models by the name that the page uses."""
SECONDS_PER_STEP = {UFM: 5e-4, TRANSFORMER: 7e-2}
"""Expected duration of a training step on two cores, for the estimate of the time left."""
FEWEST_STEPS = 6
"""The learning rate falls after each sixth of a run."""


@cache
def presets() -> dict[str, dict[str, TrainingSettings]]:
    """Settings by preset and model: AdamW on the summed loss, as in the papers.

    They are built when they are first needed: checking them imports the compiled optimizers, which takes half a second.
    """
    adamw = partial(TrainingSettings, optimizer="adamw", reduction="sum", dim=128, weight_decay=1e-6)
    small, paper = partial(adamw, learning_rate=3e-3), partial(adamw, learning_rate=1e-4, steps=30_000)
    return {
        "small": {
            UFM: small(model=UFM, steps=20_000, precision="float32"),
            TRANSFORMER: small(model=TRANSFORMER, steps=800, layers=2, heads=4),
        },
        "paper": {UFM: paper(model=UFM), TRANSFORMER: paper(model=TRANSFORMER, layers=4, heads=6)},
    }


CUTS = "Text (what is not given is chosen)"
TRAINING = "Training"
INTERVALS = "Intervals and permutation test"


@dataclass(frozen=True)
class ReportSettings:
    """Settings of `tokengeom.report`, apart from how files are read."""

    preset: Preset = option(
        "small",
        "Sizes of the models: small takes minutes on two cores, paper has the papers' sizes and steps.",
        choices=lambda: get_args(Preset),
    )
    tokenizer: str | Path | None = option(
        None,
        "word, whitespace, character, byte, bpe:SIZE, or the path of a saved tokenizer. By default words, or "
        "characters where the script has no spaces.",
        panel=CUTS,
        short="t",
        suggestions=lambda: ["word", "whitespace", "character", "byte", "bpe", "bpe:4096"],
    )
    context: int | None = option(None, "Number of tokens per context.", panel=CUTS, short="c")
    top_contexts: int | None = option(None, "Keep at most this many contexts, the most frequent.", panel=CUTS)
    vocabulary: int | None = option(None, "Keep at most this many next tokens, the most frequent.", panel=CUTS)
    steps: int | None = option(None, "Training steps of every model; by default the preset's.", panel=TRAINING)
    dim: int | None = option(None, "Embedding dimension of every model; by default the preset's.", panel=TRAINING)
    transformer: bool = option(True, "Train a transformer as well as the unconstrained features model.", panel=TRAINING)
    device: str = option("cpu", "Device to train on: cpu or cuda.", panel=TRAINING)
    seed: int = option(0, "Seed of every random choice.", panel=TRAINING)
    draws: int = option(
        200, "Bootstrap resamples per interval, and permutations per permutation test.", panel=INTERVALS
    )

    def __post_init__(self) -> None:
        if self.preset not in get_args(Preset):
            raise InputError(f"The preset must be one of {', '.join(get_args(Preset))}; got {self.preset!r}.")
        if isinstance(self.tokenizer, Path):
            object.__setattr__(self, "tokenizer", str(self.tokenizer))
        if self.tokenizer is not None and not isinstance(self.tokenizer, str):
            raise InputError(
                "The tokenizer of a report must be a name or the path of a saved tokenizer; got "
                f"{type(self.tokenizer).__name__}. Save it, or count with it and make the report from the statistics."
            )
        least = {"steps": FEWEST_STEPS, "dim": 1, "seed": 0, "context": 1, "top_contexts": 1, "vocabulary": 1}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and value < smallest:
                raise InputError(f"The setting {name} must be {smallest} or more; got {value}.")

    @property
    def cuts(self) -> dict[str, str | Path | int | None]:
        """What is fixed of how the text is cut; None is left to `tokengeom.page.choice`."""
        names = ("tokenizer", "context", "top_contexts", "vocabulary")
        return {name: getattr(self, name) for name in names}

    def training(self, model: str) -> TrainingSettings:
        """Settings of one model: the preset's, with the papers' schedule spread over its steps."""
        preset = presets()[self.preset][model]
        steps, dim = self.steps or preset.steps, self.dim or preset.dim
        return replace(
            preset, steps=steps, dim=dim, seed=self.seed, device=self.device, rate_schedule=paper_steps(steps)
        )
