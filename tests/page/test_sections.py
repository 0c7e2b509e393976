"""What the sections of the page show, as data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from page_cases import RUN, story_contents, untrained_contents
from tokengeom import count
from tokengeom.core.citation import cite
from tokengeom.page.formatting import DASH, number
from tokengeom.page.sections import corpus, summary
from tokengeom.page.sections.base import Page
from tokengeom.page.sections.corpus import flattened, methods
from tokengeom.page.sections.measurement import agreement, group_cosines, training
from tokengeom.page.sections.prediction import equally_strong, prediction


def test_cosines_of_groups_are_those_of_all_pairs() -> None:
    contents = story_contents()
    run, groups = contents.runs[RUN], contents.stats.groups
    X = run.H / np.linalg.norm(run.H, axis=0)
    cosines, found = X.T @ X, group_cosines(run, contents)
    for g in range(groups.count):
        mine, others = groups.members(g), np.flatnonzero(groups.label != g)
        np.testing.assert_allclose(found.outside[g], cosines[np.ix_(mine, others)].mean(), atol=1e-12)
        pairs = cosines[np.ix_(mine, mine)][~np.eye(mine.size, dtype=bool)]
        if pairs.size:
            np.testing.assert_allclose(found.inside[g], pairs.mean(), atol=1e-12)
        else:
            assert np.isnan(found.inside[g])


def test_equally_strong_concepts_are_named() -> None:
    said = equally_strong(np.array([5.0, 3.0, 1.0, 1.0, 1.0]), 4)
    assert said.startswith("Concepts 3 and 4 are as strong as another one")
    assert equally_strong(np.array([5.0, 3.0, 3.0 - 1e-9]), 2).startswith("Concept 2 is as strong")
    assert equally_strong(np.array([5.0, 3.0, 1.0]), 3) == ""
    assert equally_strong(np.array([5.0]), 1) == ""


def test_the_summary_has_a_scale_per_agreement() -> None:
    contents = story_contents()
    (answer,) = summary.summary(Page(contents)).view["answers"]
    assert (answer["run"], answer["outcome"]) == (RUN, contents.comparisons[RUN].verdict)
    assert [scale["name"] for scale in answer["scales"]] == ["contexts", "tokens"]
    assert all(scale["floor_label"].startswith("floor: chance ") for scale in answer["scales"])
    assert all(scale["attainable_label"].startswith("attainable ") for scale in answer["scales"])
    judged = contents.comparisons[RUN].judged_agreements
    assert judged["contexts"].items == "supports"
    assert [scale["share"] for scale in answer["scales"]] == [
        f"explains {one.explained_text()}" for one in judged.values()
    ]
    assert [float(scale["value"]) for scale in answer["scales"]] == [round(one.mean, 2) for one in judged.values()]
    pairs = contents.comparisons[RUN].context_agreement
    said = f"with each pair of contexts counted once, the prediction explains {pairs.explained_text()}"
    assert said in answer["scales"][0]["sentence"]
    (answer,) = summary.summary(Page(untrained_contents())).view["answers"]
    assert "No model was trained" in answer["verdict"]


def test_agreement_is_shown_at_the_loss_then_in_the_limit_and_the_papers_measure_last() -> None:
    contents = story_contents()
    (table,) = agreement(Page(contents)).view["tables"]
    titles = [title for title, _ in table["parts"]]
    assert titles == [
        "At the loss reached, gamma_2 norm",
        "In the limit of training",
        "All explanations by counts together",
        "Finite part and collapse",
        "The papers' measure: structural similarity (SIM)",
    ]
    keys = [[row["key"] for row in rows] for _, rows in table["parts"]]
    items = ("support", "context", "token")
    for part, target in enumerate(("gamma2", "limit", "counts")):
        assert keys[part][:3] == [f"{target}_{item}_agreement" for item in items]
    assert keys[4] == [f"limit_{item}_similarity" for item in items]
    assert [title for title, _ in table["folded"]] == ["The same at the loss reached, nuclear norm"]
    comparison = contents.comparisons[RUN]
    row, one = table["parts"][0][1][0], comparison.support_agreement
    assert row["scale"] == {
        "value": number(one.value),
        "95% interval": f"{number(one.low)} to {number(one.high)}",
        "mean": number(one.mean),
        "floor": number(one.floor),
        "attainable": number(np.sqrt(one.reproducible)),
        "explained": one.explained_text(),
    }
    distance = next(row for _, rows in table["parts"] for row in rows if row["key"] == "finite_distance")
    assert distance["scale"]["attainable"] == DASH, "lower is better, and nothing is attainable in this sense"
    assert table["norms"] == [comparison.reasons[-1]]
    assert table["norms"][0] not in summary.summary(Page(contents)).view["answers"][0]["notes"], (
        "one norm is summarised"
    )


def test_the_predictions_at_the_loss_are_described_with_their_proofs() -> None:
    contents = story_contents()
    said = prediction(Page(contents)).view["answers"][0]
    for one in contents.at_loss[RUN]:
        assert (
            f"{one.norm_value:.4g}, proven within {one.relative_gap:.1e} of the smallest, rank {one.rank}"
            in said.reason
        )
    without = prediction(Page(replace(contents, at_loss={}))).view["answers"]
    assert without[0].question.startswith("Separable")


def test_the_second_training_is_among_the_runs() -> None:
    rows = training(Page(story_contents())).view["runs"]
    assert [row["model"] for row in rows] == [RUN, f"{RUN}, training 2"]


def test_the_head_of_the_page_says_what_share_of_the_windows_the_cuts_kept() -> None:
    contents = story_contents()
    whole = count(["a b c a b d a c b", "c a b a c b b a"], context=1)
    cut = whole.limited(top_contexts=2).limited(vocabulary=2)
    assert len(cut.effects) == 2
    kept = np.prod([effect.after.n / effect.before.n for effect in cut.effects])
    assert kept < 1
    for stats, share in ((whole, "all of the text's"), (cut, f"{100 * kept:.3g}% of the text's")):
        said = summary.summary(Page(replace(contents, stats=stats, runs={}))).view["text"]
        assert said.startswith(f"{stats.n} windows ({share}), {stats.m} distinct contexts")


def test_markup_that_takes_part_in_many_windows_is_named_in_the_summary() -> None:
    contents = story_contents()

    def said(text: str, tokenizer: str = "word") -> list[str]:
        stats = count([text], context=2, tokenizer=tokenizer)
        return list(summary.summary(Page(replace(contents, stats=stats, runs={}))).view["missing"])

    # Nine tokens per round, < and > two apart: windows of three miss both where they begin at b, c, d or e.
    tagged = "a <p> b c d e f " * 400
    (warning,) = said(tagged)
    tokens = ["a", "<", "p", ">", "b", "c", "d", "e", "f"] * 400
    windows = [tokens[at : at + 3] for at in range(len(tokens) - 2)]
    share = sum("<" in window or ">" in window for window in windows) / len(windows)
    assert warning.startswith(f"{100 * share:.3g}% of the windows kept have a token that usually belongs to markup")
    assert "“>” and “<”" in warning or "“<” and “>”" in warning
    assert "--tokenizer whitespace" in warning
    (whole,) = said(tagged, tokenizer="whitespace")
    assert "“<p>”" in whole
    assert "--tokenizer" not in whole
    assert said(tagged, tokenizer="code") == []
    (typeset,) = said(r"a \bold b c d e f " * 400)
    assert "usually belongs to markup (most often “\\”)" in typeset
    assert said("a b c d e f. " * 400 + "x <b> y") == []
    (replaced,) = said("a <unk> b c d e f " * 400, tokenizer="whitespace")
    assert "stands for rare words or belongs to markup (most often “<unk>”)" in replaced
    assert "remove it" not in replaced


def test_all_explanations_together_are_left_out_where_one_of_them_explains_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    comparison = story_contents().comparisons[RUN]
    agreement = comparison.token_agreement
    for least, said in ((0.1, True), (-0.1, False)):
        together = replace(agreement, value=agreement.value + least, mean=agreement.fair + least)
        monkeypatch.setattr(summary, "together_of", lambda comparison, together=together: {"tokens": together})
        assert ("all explanations by counts together" in summary._sentence("tokens", agreement, comparison)) is said


def test_settings_of_a_run_are_shown_once() -> None:
    contents = story_contents()
    training = {"ufm": contents.trained[RUN].settings, "transformer": {"layers": 2}}
    contents = replace(contents, provenance={"settings": {"permutations": 20, "training": training}})
    view = methods(Page(contents)).view
    assert view["tables"] == [
        {"title": "Settings", "rows": [("permutations", "20"), ("training.transformer.layers", "2")]}
    ]
    assert [table["title"] for table in view["runs"]] == [f"Training settings: {RUN}"]
    assert view["bibtex"] == cite()


def test_a_source_is_shown_without_its_folder() -> None:
    assert corpus._source("/home/someone/private/stories.txt") == "stories.txt"
    assert corpus._source("built-in stories") == "built-in stories"


def test_nested_settings_become_rows_with_dotted_names() -> None:
    assert flattened({"a": {"b": 1.5, "c": None}, "d": [1, "x"]}) == [("a.b", "1.5"), ("a.c", "none"), ("d", "1, x")]
