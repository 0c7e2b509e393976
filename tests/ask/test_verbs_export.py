"""Exported embeddings: other programs read the same vectors, names and neighbours."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import tokengeom as tg
from tokengeom.ask.named_vectors import WRITERS, Format, numbered, one_line, one_word
from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.core.errors import InputError, ResourceError
from tokengeom.core.factors import Factors

# As in the vocabulary of a byte-level tokenizer: control characters, white space, pieces of characters, equal names.
NAMES = [*map(chr, range(256)), " the", "the", "▁the", "the", "", "", '"', "\u2028", "\ufffd", "\ufffd", "\\u0020"]
V, M, D = len(NAMES), 40, 6
RNG = np.random.default_rng(0)
COUNTS = RNG.integers(0, 3, size=(V, M))
COUNTS[0] = 1
COUNTS[:, 0] += 1
STATS = tg.NextTokenStatistics.from_counts(COUNTS, [f"after\t{j}" for j in range(M)], NAMES)
# The mean of the tokens is far from 0: neighbours by raw rows of W would be others.
W, H, BIAS = RNG.normal(size=(V, D)) + 3.0, RNG.normal(size=(D, M)), RNG.normal(size=V)
FACTORS = Factors(W, H, BIAS)


@pytest.mark.parametrize("items", ["tokens", "contexts"])
def test_gensim_finds_the_neighbours_that_our_cosines_give(items: str, tmp_path: Path) -> None:
    from gensim.models import KeyedVectors

    tg.export(FACTORS, tmp_path / "out", stats=STATS, format="word2vec")
    read = KeyedVectors.load_word2vec_format(tmp_path / "out" / f"{items}.txt")
    directions = FACTORS.token_directions if items == "tokens" else FACTORS.context_directions
    names = NAMES if items == "tokens" else [STATS.context_text(j) for j in range(M)]
    words = numbered(map(one_word, names))
    assert read.index_to_key == words
    for i in range(0, len(words), 7):
        mine = directions.T @ directions[:, i]
        mine[i] = -2.0
        nearest = [(words[k], mine[k]) for k in np.argsort(-mine)[:5]]
        assert [word for word, _ in read.most_similar(words[i], topn=5)] == [word for word, _ in nearest]
        np.testing.assert_allclose([c for _, c in read.most_similar(words[i], topn=5)], [c for _, c in nearest], 1e-4)


def test_the_projector_reads_vectors_and_metadata(tmp_path: Path) -> None:
    """By the rules of TensorBoard's plugin: lines end at a line feed, fields at a tab, and a tab makes a header."""
    folder = tg.export(FACTORS, tmp_path / "out", stats=STATS)
    header, *rows = (folder / "tokens_metadata.tsv").read_bytes().decode().removesuffix("\n").split("\n")
    fields = [row.split("\t") for row in rows]
    assert header.split("\t") == ["name", "frequency", "contexts"]
    assert [name for name, _, _ in fields] == list(map(one_line, NAMES))
    assert all(row.strip() and name for row, (name, _, _) in zip(rows, fields, strict=True))
    np.testing.assert_allclose([float(share) for _, share, _ in fields], COUNTS.sum(axis=1) / COUNTS.sum())
    assert [int(number) for _, _, number in fields] == (COUNTS > 0).sum(axis=1).tolist()
    vectors = [line.split("\t") for line in (folder / "tokens_vectors.tsv").read_text().splitlines()]
    np.testing.assert_allclose(np.array(vectors, dtype=float), W - W.mean(axis=0), rtol=1e-6, atol=1e-7)
    config = (folder / "projector_config.pbtxt").read_text()
    assert config.count("embeddings {") == 2
    for name in ("tokens_vectors.tsv", "tokens_metadata.tsv", "contexts_vectors.tsv", "contexts_metadata.tsv"):
        assert f'"{name}"' in config
        assert (folder / name).is_file()


def test_the_projector_gets_at_least_two_dimensions(tmp_path: Path) -> None:
    folder = tg.export((W[:, :1], H[:1]), tmp_path / "out", items="contexts")
    assert {line.count("\t") for line in (folder / "contexts_vectors.tsv").read_text().splitlines()} == {1}
    assert (folder / "contexts_metadata.tsv").read_text().splitlines()[:2] == ["context 0", "context 1"]


def test_numpy_files_have_exact_vectors_and_no_pickles(tmp_path: Path) -> None:
    folder = tg.export(FACTORS, tmp_path / "out", stats=STATS, format="numpy", items="tokens")
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "tokens.npz"]
    with np.load(folder / "tokens.npz", allow_pickle=False) as found:
        np.testing.assert_array_equal(found["vectors"], W - W.mean(axis=0))
        np.testing.assert_array_equal(found["bias"], BIAS)
        assert found["names"].tolist() == list(map(one_line, NAMES))
        assert found["contexts"].tolist() == (COUNTS > 0).sum(axis=1).tolist()


@pytest.mark.parametrize("files", ["word2vec", "numpy"])
def test_a_run_read_back_compares_as_the_run_itself(files: Format, tmp_path: Path) -> None:
    counts = RNG.integers(0, 2, size=(8, 12)) * RNG.integers(1, 4, size=(8, 12))
    counts[0] += 1
    stats = tg.NextTokenStatistics.from_counts(counts, [f"a {j}" for j in range(12)], [f" b{z}" for z in range(8)])
    prediction, run = tg.predict(stats), tg.train(stats, "ufm", dim=8, steps=200)
    run.save(tmp_path / "run")
    stats.save(tmp_path / "stats")
    tg.export(tmp_path / "run", tmp_path / "out", stats=tmp_path / "stats", format=files)
    again = tg.load_arrays(tmp_path / "out", stats)
    direct, through = (tg.compare(prediction, one, permutations=0) for one in ((run.W, run.H), again))
    for name in direct:
        assert through[name].value == pytest.approx(direct[name].value, abs=1e-5, nan_ok=True), name


def test_predictions_name_their_own_items(tmp_path: Path) -> None:
    counts = np.array([[3, 1, 0, 2], [2, 0, 4, 0], [0, 5, 1, 0], [1, 0, 0, 1], [0, 1, 1, 1]])
    stats = tg.NextTokenStatistics.from_counts(counts, ["e", "f", "g", "h"], ["a", "b", "c", "d", "x"])
    prediction = tg.predict(stats)
    for one in (prediction, prediction.at(0.1), tg.predict(stats, loss_gap=0.1), tg.predict_proxy(stats, components=2)):
        folder = tg.export(one, tmp_path / "out", format="word2vec")
        names = [line.split()[0] for line in (folder / "tokens.txt").read_text().splitlines()[1:]]
        assert names == ["a", "b", "c", "d", "x"]
        assert list(one.to_frame("contexts").index) == ["e", "f", "g", "h"]
    prediction.save(tmp_path / "saved")
    with pytest.raises(InputError, match="has no names of tokens and contexts: pass the statistics"):
        tg.export(tmp_path / "saved", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    stats.save(tmp_path / "stats")
    tg.export(tmp_path / "saved", tmp_path / "new", format="numpy")
    assert np.load(tmp_path / "new" / "tokens.npz")["names"].tolist() == ["a", "b", "c", "d", "x"], "found beside it"


def test_the_last_checkpoint_of_a_curve_is_exported(tmp_path: Path) -> None:
    points = cast(Any, tuple(SimpleNamespace(W=W, H=k * H, model=f"step {k}") for k in (1, 2)))
    tg.export(CheckpointCurve(points, None, STATS), tmp_path / "out", format="numpy")
    np.testing.assert_array_equal(tg.load_arrays(tmp_path / "out").H, 2 * H)
    with pytest.raises(InputError, match="CheckpointCurve has no names"):
        tg.export(CheckpointCurve(points), tmp_path / "out")


def test_a_folder_appears_complete_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tg.export(FACTORS, tmp_path / "out", stats=STATS, format="numpy")
    assert tg.verify(target)

    def full_disk(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(cast(Any, WRITERS), "word2vec", full_disk)
    with pytest.raises(ResourceError, match="could not be written"):
        tg.export(FACTORS, target, stats=STATS, format="word2vec")
    assert tg.verify(target), "the older export is intact"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (target / "tokens.npz").write_bytes(b"")
    assert not tg.verify(tmp_path)
    with pytest.raises(InputError, match=r"tokens\.npz is missing, was changed"):
        tg.load_arrays(target)


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/dear.txt").write_text("dear")
    with pytest.raises(InputError, match=r"dear\.txt"):
        tg.export(tmp_path / "missing", tmp_path / "letters", stats=STATS)
    with pytest.raises(InputError, match="Statistics have no vectors of tokens and contexts"):
        tg.export(cast(Any, STATS), tmp_path / "out")
    with pytest.raises(InputError, match=r"W\[0, 0\]=nan"):
        tg.export((W * np.nan, H), tmp_path / "out")
    with pytest.raises(InputError, match=r"format must be one of .*got 'word2vek'. Did you mean 'word2vec'"):
        tg.export(FACTORS, tmp_path / "out", format="word2vek")  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["letters"]
