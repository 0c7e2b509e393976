"""Settings of a report: presets, limits, and the papers' schedule."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from tokengeom.core.errors import InputError, StatisticsError
from tokengeom.core.settings import options_of
from tokengeom.corpus.tokenizers import WordTokenizer
from tokengeom.page.settings import MODEL_NAMES, TRANSFORMER, UFM, Preset, ReportSettings, presets
from tokengeom.statistics.cuts import CutSettings
from tokengeom.training.optimizers.base import paper_steps


@pytest.mark.parametrize("preset", get_args(Preset))
@pytest.mark.parametrize("model", MODEL_NAMES)
def test_presets_train_with_adamw_on_the_summed_loss(preset: Any, model: str) -> None:
    settings = ReportSettings(preset=preset).training(model)
    assert (settings.model, settings.optimizer, settings.reduction) == (model, "adamw", "sum")
    assert settings.rate_schedule == paper_steps(settings.steps)


def test_importing_the_settings_does_not_import_compiled_code() -> None:
    code = "import sys, tokengeom.page.settings; raise SystemExit('numba' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_paper_preset_has_the_papers_sizes() -> None:
    ufm, network = (ReportSettings(preset="paper").training(model) for model in (UFM, TRANSFORMER))
    assert (ufm.dim, ufm.steps, ufm.learning_rate, ufm.weight_decay) == (128, 30_000, 1e-4, 1e-6)
    assert (network.dim, network.steps, network.layers, network.heads) == (128, 30_000, 4, 6)
    assert ufm.rate_schedule == paper_steps()


def test_given_steps_dim_seed_and_device_replace_those_of_the_preset() -> None:
    settings = ReportSettings(steps=60, dim=7, seed=3, device="cuda").training(UFM)
    assert (settings.steps, settings.dim, settings.seed, settings.device) == (60, 7, 3, "cuda")
    assert settings.rate_schedule == paper_steps(60)
    assert settings.learning_rate == presets()["small"][UFM].learning_rate


def test_the_path_of_a_tokenizer_is_kept_as_text() -> None:
    assert ReportSettings(tokenizer=Path("saved/tokenizer.json")).tokenizer == str(Path("saved/tokenizer.json"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"preset": "huge"}, "preset must be one of small, paper"),
        ({"steps": 5}, "steps must be 6 or more; got 5"),
        ({"dim": 0}, "dim must be 1 or more"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"context": 0}, "context must be 1 or more"),
        ({"top_contexts": 0}, "top_contexts must be 1 or more"),
        ({"vocabulary": 0}, "vocabulary must be 1 or more"),
        ({"seeds": 2**31}, "seeds must be at most 100"),
        ({"model": "m", "steps": 60}, r"leave out steps \(--steps\)"),
        ({"model": "m", "tokenizer": "word", "seeds": 2}, r"leave out tokenizer \(--tokenizer\), seeds"),
        ({"model": ()}, "must be the path of its folder, or several paths; got none"),
        ({"model": (3,)}, "must be the path of its folder, or several paths; got int"),
        ({"bos": False}, r"bos \(--bos\) is about a trained model: give its folder"),
        ({"allow_pickle": True}, r"allow_pickle \(--allow-pickle\) is about a trained model"),
        ({"tokenizer": WordTokenizer()}, "must be a name or the path of a saved tokenizer; got WordTokenizer"),
    ],
)
def test_settings_out_of_range_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ReportSettings(**given)


def test_trained_models_are_one_or_several_folders() -> None:
    assert ReportSettings().model_folders == ()
    assert ReportSettings(model="a").model_folders == ReportSettings(model=Path("a")).model_folders == ("a",)
    assert ReportSettings(model=("a", Path("b")), bos=True).model_folders == ("a", "b")  # type: ignore[arg-type]


def test_cuts_are_those_of_count_with_rare_tokens_merged() -> None:
    settings = ReportSettings(vocabulary=9)
    assert (settings.rest, settings.support) == ("merge", "raw")
    assert settings.limits == {"top_contexts": None, "vocabulary": 9, "rest": "merge", "support": "raw"}
    report, count = options_of(ReportSettings), options_of(CutSettings)
    for name in ("rest", "support"):
        assert report[name].metadata["help"] == count[name].metadata["help"]
    for wrong in ({"rest": "keep"}, {"support": "best"}):
        with pytest.raises(StatisticsError, match="must be"):
            ReportSettings(**wrong)  # type: ignore[arg-type]
