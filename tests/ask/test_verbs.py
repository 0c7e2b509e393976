"""The verbs `neighbours` and `explain` on everything that can be asked: objects, arrays, saved folders, models."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

import tokengeom as tg
from feature_cases import random_counts
from tiny_models import ROWS, build, save, sentences
from tokengeom.ask.verbs import explain, neighbours, similar_pairs, statistics_beside
from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.comparison.compare import compare
from tokengeom.comparison.model_states import read_model
from tokengeom.core.errors import InputError, StatisticsError
from tokengeom.models.checkpoint import load_checkpoint
from tokengeom.results.registry import load
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import NORMS
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import predict_proxy
from tokengeom.training.train import train

STATS = NextTokenStatistics.from_counts(random_counts(10, 16, 3, 0))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved results side by side, and a prediction without its statistics."""
    folder = tmp_path_factory.mktemp("saved")
    prediction = predict(STATS)
    STATS.save(folder / "all" / "stats")
    prediction.save(folder / "all" / "prediction")
    prediction.save(folder / "alone" / "prediction")
    prediction.at(0.1).save(folder / "all" / "at-loss")
    predict_proxy(STATS, components=3).save(folder / "all" / "proxy")
    train(STATS, "ufm", dim=4, steps=10).save(folder / "all" / "run")
    return folder


@pytest.mark.parametrize("name", ["prediction", "at-loss", "proxy", "run"])
def test_a_saved_result_finds_its_statistics_beside_it(saved: Path, name: str) -> None:
    result = load(saved / "all" / name)
    found = neighbours(saved / "all" / name, "token 3", k=4)
    expected = neighbours(result, "token 3", k=4, stats=STATS)  # type: ignore[arg-type]
    assert found.to_dict() == expected.to_dict()
    assert explain(str(saved / "all" / name), "context 2").to_dict()["support"]["size"] == 3
    assert statistics_beside(saved / "all" / name).hash == STATS.hash  # type: ignore[union-attr]


def test_statistics_that_are_elsewhere_are_named(saved: Path) -> None:
    with pytest.raises(InputError, match=r"none are known for .*alone/prediction.* --stats FOLDER"):
        neighbours(saved / "alone" / "prediction", "token 3")
    found = neighbours(saved / "alone" / "prediction", "token 3", stats=saved / "all" / "stats")
    assert len(found.rows) == 9
    other = NextTokenStatistics.from_counts(random_counts(10, 16, 3, 1))
    with pytest.raises(InputError, match="are for other statistics"):
        neighbours(saved / "all" / "prediction", "token 3", stats=other)
    assert statistics_beside(saved / "alone" / "prediction") is None
    assert statistics_beside(None) is None
    assert statistics_beside(None, saved / "all" / "stats").hash == STATS.hash  # type: ignore[union-attr]


def test_a_report_is_asked_about_its_prediction(saved: Path, tmp_path: Path) -> None:
    copytree(saved / "all", tmp_path / "page-results")
    (tmp_path / "page-results" / "manifest.json").write_text('{"format": "tokengeom-report", "format_version": 1}')
    found = neighbours(tmp_path / "page-results", "token 3")
    assert found.to_dict() == neighbours(saved / "all" / "prediction", "token 3").to_dict()
    run = neighbours(tmp_path / "page-results" / "run", "token 3")
    assert run.to_dict() == neighbours(saved / "all" / "run", "token 3").to_dict()


def test_a_comparison_and_its_report_are_asked_about_the_prediction_that_is_judged(saved: Path, tmp_path: Path) -> None:
    results = copytree(saved / "all", tmp_path / "page-results")
    train(STATS, "ufm", dim=6, steps=200, learning_rate=0.03).save(results / "longer")
    made = compare(results / "prediction", results / "longer", permutations=0)
    made.save(results / "comparison-ufm")
    (judged,) = (at for at in made.at if at.norm == made.norm)
    in_memory = neighbours(made, "token 3", stats=STATS)
    assert in_memory.rows == judged.neighbours("token 3", stats=STATS).rows
    assert in_memory.source == f"predicted at a loss gap of {judged.loss_gap:.3g} nats ({NORMS[judged.norm]})"
    assert "the one that the model reached" in in_memory.notes[-1]
    from_folder = neighbours(results / "comparison-ufm", "token 3")
    assert from_folder.source.endswith(f"nats ({NORMS[judged.norm]})")
    cosines = {row.name: row.cosine for row in in_memory.rows}
    assert max(abs(row.cosine - cosines[row.name]) for row in from_folder.rows) < 0.02
    (results / "manifest.json").write_text('{"format": "tokengeom-report", "format_version": 1}')
    assert neighbours(results, "token 3").to_dict() == from_folder.to_dict()
    assert similar_pairs(results).source == from_folder.source
    in_limit = neighbours(results, "token 3", loss_gap=0)
    assert in_limit.to_dict() == neighbours(results / "prediction", "token 3").to_dict()
    made.save(tmp_path / "alone" / "comparison")
    with pytest.raises(InputError, match="the prediction that it was made from is not beside it"):
        neighbours(tmp_path / "alone" / "comparison", "token 3")


def test_the_prediction_at_a_loss_is_made_from_the_one_in_the_limit(saved: Path) -> None:
    found = explain(saved / "all" / "prediction", "context 2", loss_gap=0.1)
    assert found.source.startswith("predicted at a loss gap of 0.")
    direct = predict(STATS).at(0.1, tolerance=1e-3).neighbours("context 2", other_supports=True)
    assert [row.name for row in found.neighbours.rows] == [row.name for row in direct.rows]
    with pytest.raises(InputError, match="for the prediction in the limit alone; got a Run"):
        explain(saved / "all" / "run", "context 2", loss_gap=0.1)
    with pytest.raises(InputError, match="norm must be one of nuclear, gamma2; got 'gamma'"):
        explain(saved / "all" / "prediction", "context 2", loss_gap=0.1, norm="gamma")


def test_runs_are_measured_beside_it(saved: Path) -> None:
    found = explain(saved / "all" / "prediction", "token 3", measured=[saved / "all" / "run"])
    assert list(found.measured) == ["run"]
    with pytest.raises(InputError, match="A run must come from training"):
        explain(saved / "all" / "prediction", "token 3", measured=saved / "all" / "prediction")


def test_what_has_no_vectors_is_refused_with_a_remedy(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tokengeom predict .*stats --out prediction"):
        neighbours(saved / "all" / "stats", "token 3")
    with pytest.raises(InputError, match="holds at-loss, prediction, proxy, run, stats: name one of them"):
        neighbours(saved / "all", "token 3")
    with pytest.raises(InputError, match="missing does not exist"):
        neighbours(saved / "missing", "token 3")
    with pytest.raises(InputError, match="holds no saved result"):
        neighbours(tmp_path, "token 3")
    with pytest.raises(InputError, match="A dict has no vectors"):
        neighbours({}, "token 3", stats=STATS)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="none are known for the tuple"):
        neighbours((np.eye(3), np.eye(3)), "token 3")
    with pytest.raises(StatisticsError, match="does not exist"):
        neighbours(saved / "all" / "prediction", "token 3", stats="nowhere")
    with pytest.raises(InputError, match=r"neighbours has no setting 'number'\. There are: items, k"):
        neighbours(saved / "all" / "prediction", "token 3", number=3)  # type: ignore[call-arg]


def test_a_language_model_is_asked_on_disk_in_memory_and_as_read(tmp_path: Path) -> None:
    folder = save(build("llama"), tmp_path / "model")
    model = load_checkpoint(folder)
    stats = tg.count(sentences(), context=2, tokenizer=model.tokenizer, vocabulary_size=ROWS)
    states = read_model(model, stats)
    word = stats.vocabulary[int(stats.P.indices[0])]
    expected = states.neighbours(word, 3, stats=stats).to_dict()
    assert len(expected["neighbours"]) == 3
    assert neighbours(folder, word, k=3, stats=stats).to_dict() == expected
    assert neighbours(model, word, k=3, stats=stats).to_dict() == expected
    context = stats.context_text(0)
    found = explain(states, context, stats=stats, items="contexts")
    assert found.source == f"in {states.name}"
    assert found.context_gap is not None
    assert list(explain(predict(stats), context, items="contexts", measured=states).measured) == [states.name]
    with pytest.raises(InputError, match="none are known for the model in"):
        neighbours(folder, word)


def test_the_last_of_compared_checkpoints_is_asked(tmp_path: Path) -> None:
    folder = save(build("llama"), tmp_path / "model")
    curve = tg.compare_models(folder, sentences(), context=2, top_contexts=20, permutations=0, at_loss=False)
    assert isinstance(curve, CheckpointCurve)
    assert curve.stats is not None
    word = curve.stats.vocabulary[int(curve.stats.P.indices[0])]
    last = curve.points[-1]
    expected = neighbours((last.W, last.H), word, k=3, stats=curve.stats)
    found = neighbours(curve, word, k=3)
    assert found.rows == expected.rows
    assert found.source == f"in {last.model}"
    # What is saved keeps the statistics, which name tokens and contexts.
    curve.save(tmp_path / "curve")
    assert neighbours(tmp_path / "curve", word, k=3).rows == expected.rows
    next((tmp_path / "curve" / "statistics").iterdir()).unlink()
    with pytest.raises(InputError, match="damaged"):
        neighbours(tmp_path / "curve", word)
