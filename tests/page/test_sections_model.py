"""Every sentence of a page about trained models is true of them: nothing was trained, and there is no ceiling."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest

import tokengeom as tg
from tiny_models import ROWS, build, fit_head, save, sentences
from tokengeom.page.contents import Contents
from tokengeom.page.formatting import about_model
from tokengeom.page.render import render
from tokengeom.page.sections.base import Page
from tokengeom.page.sections.methods import methods
from tokengeom.page.sections.model import model
from tokengeom.page.sections.summary import summary

NOT_TRUE = (
    "How training went",
    "trained once",
    "second seed",
    "--seeds",
    "Training settings",
    "transformer was trained",
    "Train for more steps",
    "learning rate",
    "goes with the optimizer",
    "the run",
    "The run",
    "and the model before training",
    "No model was trained",
    "trainings",
)


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """Two checkpoints of a small model."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for step, share in ((10, 0.3), (200, 1.0)):
        saved = save(build("llama"), folder / f"checkpoint-{step}")
        fit_head(saved, tg.count(sentences(), context=2, tokenizer=saved, vocabulary_size=ROWS), share)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokengeom.page.report._render", lambda contents, progress: "")
        return tg.report(sentences(), folder / "page.html", model=folder, context=2, permutations=20).contents


@pytest.fixture(scope="module")
def page(contents: Contents) -> str:
    shown = re.sub(r"<(script|style)\b.*?</\1>|<[^>]+>", " ", render(contents), flags=re.DOTALL)
    return " ".join(unescape(shown).split("How to cite")[0].split())


def test_nothing_is_said_about_training_that_did_not_happen(page: str) -> None:
    assert [words for words in NOT_TRUE if words in page] == []


def test_the_page_says_what_was_read_and_what_is_missing(contents: Contents, page: str) -> None:
    last = contents.models["checkpoint-200"]
    for words in (
        "checkpoint-10, checkpoint-200 on 40 documents",
        f"12 possible next tokens, out of {ROWS} in the model's vocabulary",
        "W: the 40 rows of the head of LlamaForCausalLM",
        last.bos_sentence(),
        "saved at training step 200",
        "Nothing was trained",
        "There is no ceiling: it would be the agreement with a second training of the model",
        "The optimizer is not known",
        "Geometry over training",
        "The rest of this page is about the last one",
    ):
        assert words in page, words
    assert "/tmp" not in page, "folders are private"


def test_a_single_model_has_no_curve_and_no_table_of_checkpoints(contents: Contents) -> None:
    last = contents.models["checkpoint-200"]
    unknown = replace(last, states=replace(last.states, step=None))
    one = replace(contents, models={"checkpoint-200": unknown})
    section = model(Page(one))
    assert (section.title, section.view["curve"]) == ("The model", None)
    assert any("for how long the model was trained is not known" in said for said in section.view["sentences"])
    both = model(Page(contents))
    assert both.title == "The checkpoints"
    assert [row["step"] for row in both.view["rows"]] == [10, 200]
    assert both.view["rows"][0]["gap"] > both.view["rows"][1]["gap"]


def test_settings_and_hashes_are_those_of_reading(contents: Contents) -> None:
    tables = {table["title"]: dict(table["rows"]) for table in methods(Page(contents)).view["tables"]}
    assert tables["Settings"]["model"] == "checkpoint-10, checkpoint-200"
    assert not {"steps", "dim", "preset", "training"} & set(tables["Settings"])
    assert tables["Seeds"] == {"seed": "0"}
    (hashes,) = [rows for title, rows in tables.items() if title.startswith("Hashes")]
    assert "files of checkpoint-200" in hashes
    assert {"torch", "transformers"} <= set(tables["Versions"])
    assert len(summary(Page(contents)).view["answers"]) == 1, "the last checkpoint is judged"


def test_sentences_about_a_run_are_about_the_model() -> None:
    assert about_model("The run's loss; a run of this run.") == "The model's loss; a model of this model."
    assert about_model("a second run and runs") == "a second run and runs"


def test_diagnosis_names_no_change_of_training(contents: Contents) -> None:
    found = Page(contents).diagnosis
    assert {one.check.run for one in found.findings} == {"checkpoint-200"}
    said = " ".join(sentence for one in found.misfits for sentence in (*one.causes, *one.remedies))
    assert "that the model was trained on" in said
    assert "rain with" not in said
