"""Settings of a report: how the text is cut, and how its models are trained, or which trained ones are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from tokengeom.core.errors import InputError
from tokengeom.core.settings import option, option_of, options_of
from tokengeom.corpus.tokenizers import SUGGESTED_TOKENIZERS
from tokengeom.statistics.context_features import parse_ties
from tokengeom.statistics.cuts import CutSettings, Rest
from tokengeom.training.optimizers.base import paper_steps
from tokengeom.training.settings import TrainingSettings

if TYPE_CHECKING:
    from tokengeom.keywords import CutKeywords

Preset = Literal["small", "paper"]
UFM, TRANSFORMER = "ufm", "transformer"
MODEL_NAMES = {UFM: "unconstrained features", TRANSFORMER: "transformer"}
"""Models by the name that the page uses."""
SECONDS_PER_STEP = {UFM: 8e-4, TRANSFORMER: 5e-2}
"""Expected duration of a training step on two cores, for the estimate of the time left."""
TRAININGS: dict[str, int] = {"small": 2, "paper": 1}
"""Number of trainings of every model, by preset."""
OF_MODEL = ("bos", "proxy", "precision", "allow_pickle", "ties", "tied_contexts")
MOST_SEEDS = 100
NOT_WITH_MODEL = ("preset", "tokenizer", "vocabulary", "rest", "steps", "dim", "transformer", "seeds", "unseen")
"""Settings that need a trained model, and those that have no meaning with one."""
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
            UFM: small(model=UFM, steps=10_000, precision="float32"),
            TRANSFORMER: small(model=TRANSFORMER, steps=600, layers=2, heads=4),
        },
        "paper": {UFM: paper(model=UFM), TRANSFORMER: paper(model=TRANSFORMER, layers=4, heads=6)},
    }


CUTS = "Text (what is not given is chosen)"
MODEL_TEXT = "Model and text"
MODEL = "Trained model, instead of training"
TRAINING = "Training"
FLOORS = "Floors of agreement"


def _precisions() -> tuple[str, ...]:
    from tokengeom.models.checkpoint import PRECISIONS

    return PRECISIONS


@dataclass(frozen=True)
class ModelTextSettings:
    """How a text is counted for a model, what is predicted from it, and how the model is read."""

    context: int = option(4, "Number of tokens in a context.", panel=MODEL_TEXT, short="c")
    top_contexts: int = option(
        400,
        "Keep this many of the most frequent contexts; of those that occur once, a random choice with a fixed seed.",
        panel=MODEL_TEXT,
    )
    support: str = option_of(
        CutSettings,
        "support",
        help="Support policy of the prediction: raw, count:TAU or top-p:P. The loss is that of all windows.",
        panel=MODEL_TEXT,
    )
    proxy: bool | None = option(
        None,
        "Compare with the proxy S~ instead of L_mm; by default only where L_mm would take minutes.",
        panel=MODEL_TEXT,
    )
    bos: bool | None = option(
        None,
        "Whether the model reads its BOS token before each context; by default whichever gives the lower loss (of the "
        "last model, for all).",
        panel=MODEL_TEXT,
    )
    device: str = option("cpu", "Device for the model and for the prediction: cpu or cuda.", panel=MODEL_TEXT)
    precision: str = option(
        "auto",
        "Type of the model's weights and arithmetic. By default the one that the weights are stored in.",
        panel=MODEL_TEXT,
        choices=_precisions,
    )
    allow_pickle: bool = option(
        False, "Also read weights from pytorch_model.bin, a format that can run code.", panel=MODEL_TEXT
    )


@dataclass(frozen=True)
class SeveralModelsSettings(ModelTextSettings):
    """The same for one model or several, and what several are to each other."""

    separate_trainings: bool = option(
        False,
        "The models are separate trainings of one model, which differ in their seed, not checkpoints of one training: "
        "together they say what is reproducible.",
        panel=MODEL_TEXT,
    )


@dataclass(frozen=True)
class TiesSettings:
    """A prediction in which contexts are tied by the tokens that they share, for more contexts of a text."""

    ties: str | None = option(
        None,
        "Compare with the prediction in which contexts that share tokens share vectors: a sum of positions, pairs, "
        "suffixes and self, such as positions+pairs. The prediction without ties stands beside it.",
        panel=MODEL_TEXT,
    )
    tied_contexts: int | None = option(
        None,
        "Contexts of the prediction with ties: half of them the most frequent, half a random choice of the others "
        "with a fixed seed. By default all, or as many as some minutes and the memory allow.",
        panel=MODEL_TEXT,
    )

    def __post_init__(self) -> None:
        if self.ties is not None:
            parse_ties(self.ties, length=2)  # Refuses what cannot be used.
        if self.tied_contexts is not None and self.ties is None:
            raise InputError("tied_contexts (--tied-contexts) needs ties (--ties): give both, or leave it out.")
        if self.tied_contexts is not None and self.tied_contexts < 2:
            raise InputError(f"tied_contexts must be 2 or more; got {self.tied_contexts}.")


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
        "word, whitespace, code, character, byte, bpe:SIZE, or the path of a saved tokenizer, which also supplies the "
        "text of token ids. By default words; code where the text looks like code; characters where the script has no "
        "spaces.",
        panel=CUTS,
        short="t",
        suggestions=lambda: SUGGESTED_TOKENIZERS,
    )
    context: int | None = option(None, "Number of tokens per context.", panel=CUTS, short="c")
    top_contexts: int | None = option(None, "Keep at most this many contexts, the most frequent.", panel=CUTS)
    vocabulary: int | None = option(None, "Keep at most this many next tokens, the most frequent.", panel=CUTS)
    rest: Rest = option("merge", options_of(CutSettings)["rest"].metadata["help"], panel=CUTS)
    support: str = option_of(CutSettings, "support", panel=CUTS)
    model: tuple[str, ...] | str | Path | None = option(
        None,
        "Folder of a Hugging Face causal language model, or of its checkpoint-* folders; may be repeated. The text is "
        "counted with its tokenizer and its whole vocabulary, and nothing is trained. The last one is judged, and "
        "several give a curve over training.",
        panel=MODEL,
    )
    bos: bool | None = option_of(ModelTextSettings, "bos", panel=MODEL)
    proxy: bool | None = option_of(ModelTextSettings, "proxy", panel=MODEL)
    precision: str = option_of(ModelTextSettings, "precision", panel=MODEL)
    allow_pickle: bool = option_of(ModelTextSettings, "allow_pickle", panel=MODEL)
    ties: str | None = option_of(TiesSettings, "ties", panel=MODEL)
    tied_contexts: int | None = option_of(TiesSettings, "tied_contexts", panel=MODEL)
    steps: int | None = option(None, "Training steps of every model; by default the preset's.", panel=TRAINING)
    dim: int | None = option(None, "Embedding dimension of every model; by default the preset's.", panel=TRAINING)
    transformer: bool = option(True, "Train a transformer as well as the unconstrained features model.", panel=TRAINING)
    seeds: int | None = option(
        None,
        "Number of trainings of every model, with different seeds. Two or more show how much of the geometry is "
        "reproducible, and what share of that is explained. By default 2, and 1 with the preset paper.",
        panel=TRAINING,
    )
    device: str = option_of(
        ModelTextSettings,
        "device",
        help="Device to train on, or to read a trained model on: cpu or cuda.",
        panel=TRAINING,
    )
    seed: int = option(0, "Seed of every random choice.", panel=TRAINING)
    permutations: int = option(
        200, "Permutations behind the floors; at least 20, or 0 for no floors and no verdict.", panel=FLOORS
    )

    unseen: bool = option(
        True, "Also predict contexts that the text does not have, from the tokens that they share with others."
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
        at_least_one = dict.fromkeys(("dim", "seeds", "context", "top_contexts", "vocabulary"), 1)
        for name, smallest in {"steps": FEWEST_STEPS, "seed": 0, **at_least_one}.items():
            value = getattr(self, name)
            if value is not None and value < smallest:
                raise InputError(f"The setting {name} must be {smallest} or more; got {value}.")
        if self.seeds is not None and self.seeds > MOST_SEEDS:
            raise InputError(f"The setting seeds must be at most {MOST_SEEDS}, one training each; got {self.seeds:,}.")
        # Both refuse what cannot be used.
        CutSettings(rest=self.rest, support=self.support)
        TiesSettings(self.ties, self.tied_contexts)
        self._check_model()

    def _check_model(self) -> None:
        """Refuse settings that have no effect: those of training with a model, and those of a model without one."""
        if self.model is None:
            idle = self._changed(OF_MODEL)
            if idle:
                raise InputError(f"{_listed(idle)} is about a trained model: give its folder too (model, --model).")
            return
        given = (self.model,) if isinstance(self.model, str | Path) else tuple(self.model)
        if not given or not all(isinstance(folder, str | Path) for folder in given):
            raise InputError(
                "A trained model must be the path of its folder, or several paths; got "
                f"{type(given[0]).__name__ if given else 'none'}. For a model in memory: "
                "tg.report(tg.compare(prediction, model))."
            )
        object.__setattr__(self, "model", tuple(str(folder) for folder in given))
        idle = self._changed(NOT_WITH_MODEL)
        if idle:
            raise InputError(
                "A trained model takes the place of training, and its tokenizer and whole vocabulary are used: leave "
                f"out {_listed(idle)}."
            )

    def _changed(self, names: Sequence[str]) -> list[str]:
        """Those of the names whose setting is not the default."""
        known = options_of(ReportSettings)
        return [name for name in names if getattr(self, name) != known[name].default]

    @property
    def model_folders(self) -> tuple[str, ...]:
        """Folders of the trained models; empty where models are trained."""
        return self.model if isinstance(self.model, tuple) else ()

    @property
    def model_cuts(self) -> dict[str, Any]:
        """How a text is cut for a trained model: as requested, or as `compare_models` does."""
        usual = ModelTextSettings()
        return {
            "context": self.context or usual.context,
            "top_contexts": self.top_contexts or usual.top_contexts,
            "support": self.support,
        }

    @property
    def model_prediction(self) -> dict[str, Any]:
        """What is predicted for a trained model, and where; empty where models are trained."""
        return {"proxy": self.proxy, "device": self.device} if self.model_folders else {}

    @property
    def tying(self) -> TiesSettings:
        """How contexts are tied."""
        return TiesSettings(self.ties, self.tied_contexts)

    @property
    def draws(self) -> dict[str, Any]:
        """How floors are drawn."""
        return {"permutations": self.permutations, "seed": self.seed}

    @property
    def models_trained(self) -> list[str]:
        """The models that a report trains."""
        return [UFM] if self.why_no_transformer else [UFM, TRANSFORMER]

    @property
    def why_no_transformer(self) -> str | None:
        """Why no transformer is trained, in a sentence; None where one is."""
        if not self.transformer:
            return "No transformer was trained, as requested."
        absent = [package for package in ("torch", "transformers") if find_spec(package) is None]
        if absent:
            return (
                f"No transformer was trained: it needs {' and '.join(absent)}, which are not installed here. Install "
                "them with: pip install 'tokengeom[networks]', and make the report again; finished stages are kept."
            )
        return None

    @property
    def cuts(self) -> dict[str, str | Path | int | None]:
        """What is fixed of how the text is cut; None is left to `tokengeom.page.chosen_settings`."""
        names = ("tokenizer", "context", "top_contexts", "vocabulary", "rest", "support")
        return {name: getattr(self, name) for name in names}

    @property
    def limits(self) -> CutKeywords:
        """The cuts of given statistics: only those that were asked for."""
        cuts = {name: value for name, value in self.cuts.items() if name not in ("tokenizer", "context")}
        return cast("CutKeywords", cuts)

    @property
    def trainings(self) -> int:
        """Number of trainings of every model."""
        return self.seeds or TRAININGS[self.preset]

    def training(self, model: str, place: int = 0) -> TrainingSettings:
        """Settings of one model: the preset's, with the papers' schedule spread over its steps.

        ``place``  0 for the first training, 1 for the second, ...; each has its own seed.
        """
        preset = presets()[self.preset][model]
        steps, dim = self.steps or preset.steps, self.dim or preset.dim
        return replace(
            preset, steps=steps, dim=dim, seed=self.seed + place, device=self.device, rate_schedule=paper_steps(steps)
        )


def _listed(names: Sequence[str]) -> str:
    """Settings as they are written in Python and on the command line."""
    return ", ".join(f"{name} (--{name.replace('_', '-')})" for name in names)
