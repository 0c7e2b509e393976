"""W and H of a model of any framework are read from plain arrays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tokengeom import NextTokenStatistics
from tokengeom.core.errors import CheckpointError, InputError, ResourceError
from tokengeom.models.saved_arrays import load_arrays, read_file

RNG = np.random.default_rng(0)
W, H, BIAS = RNG.normal(size=(5, 3)), RNG.normal(size=(3, 7)), RNG.normal(size=5)


def test_safetensors_and_npy_give_the_same_arrays(tmp_path: Path) -> None:
    save_file({"W": W, "H": H, "bias": BIAS}, tmp_path / "model.safetensors")
    for name, array in (("W", W), ("H", H), ("bias", BIAS)):
        np.save(tmp_path / f"{name}.npy", array)
    for path in (tmp_path / "model.safetensors", tmp_path, tmp_path / "W.npy"):
        found = load_arrays(path)
        np.testing.assert_allclose(found.logits, W @ H + BIAS[:, None])
    (tmp_path / "bias.npy").unlink()
    assert load_arrays(tmp_path).bias is None


def test_float16_becomes_float64(tmp_path: Path) -> None:
    save_file({"W": W.astype(np.float16), "H": H.astype(np.float32)}, tmp_path / "a.safetensors")
    assert load_arrays(tmp_path / "a.safetensors").W.dtype == np.float64


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"W": W}, "H is missing. It has: W"),
        ({"weights": W}, "W and H are missing"),
        ({"W": W, "H": H.T.copy()}, "H looks transposed"),
        ({"W": W, "H": H, "bias": BIAS[:3]}, r"bias must have V=5 entries; got shape \(3,\)"),
        ({"W": W, "H": H[0]}, "H must be a matrix"),
        ({"W": W * np.nan, "H": H}, "W must be finite"),
        ({"W": W > 0, "H": H}, "must have real numbers; it has bool"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, tensors: dict[str, Any], reason: str) -> None:
    save_file(tensors, tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match=reason):
        load_arrays(tmp_path / "a.safetensors")


def test_pickles_and_broken_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "W.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "H.npy", H)
    with pytest.raises(CheckpointError, match="pickled objects are refused"):
        load_arrays(tmp_path)
    (tmp_path / "a.safetensors").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"cannot be read as safetensors.*Likely truncated or damaged") as said:
        load_arrays(tmp_path / "a.safetensors")
    assert "bfloat16" not in str(said.value)
    with pytest.raises(CheckpointError, match="does not exist"):
        load_arrays(tmp_path / "absent.safetensors")
    with pytest.raises(CheckpointError, match="another kind of file"):
        load_arrays(tmp_path / "H.npy")
    (tmp_path / "a.npz").write_bytes(b"PK nothing")
    with pytest.raises(CheckpointError, match="cannot be read as arrays of numbers"):
        load_arrays(tmp_path / "a.npz")


def npy(header: str) -> bytes:
    """A file in NumPy's format with this header and 96 bytes of numbers."""
    content = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(content).to_bytes(2, "little") + content + bytes(96)


@pytest.mark.parametrize(
    "content",
    [
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 3), }"),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-4, 3), }"),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (4, 3), }"),
        npy("(" * 3000),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4, 3), }")[:-20],
        b"",
    ],
    ids=["more than the file has", "negative", "objects", "deep", "truncated", "empty"],
)
def test_a_header_that_claims_too_much_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "W.npy").write_bytes(content)
    np.save(tmp_path / "H.npy", H)
    with pytest.raises(CheckpointError, match=r"W\.npy cannot be read as arrays of numbers"):
        load_arrays(tmp_path)


def test_only_plain_files_of_the_kind_that_they_claim_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.safetensors")
    with pytest.raises(InputError, match=r"a\.safetensors is a named pipe"):
        read_file(tmp_path / "a.safetensors")
    np.save(tmp_path / "H.npy", H)
    with (tmp_path / "W.npy").open("wb") as file:
        np.savez(file, other=W)
    with pytest.raises(CheckpointError, match="W is missing"):
        load_arrays(tmp_path)


def test_an_archive_larger_than_memory_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "a.npz", W=np.zeros((1000, 1000)), H=H)
    monkeypatch.setattr("tokengeom.core.resources.free_memory", lambda device=None: 1_000_000)
    with pytest.raises(ResourceError, match=r"a\.npz, unpacked, must fit in memory: 0\.00745 GiB are needed"):
        load_arrays(tmp_path / "a.npz")


def test_vectors_and_names_must_belong_together(tmp_path: Path) -> None:
    np.savez(tmp_path / "tokens.npz", vectors=W[:3], names=np.array(TOKENS))
    np.savez(tmp_path / "contexts.npz", vectors=H.T, names=np.array(CONTEXTS))
    with pytest.raises(CheckpointError, match=r"one vector per name: .* got vectors \(3, 3\), names \(5,\)"):
        load_arrays(tmp_path, STATS)


@pytest.mark.parametrize(
    "content", ["4 1000000000000\na 1 2 3\n", f"{'9' * 5000} 3\na 1 2 3\n", "0 0\n", "4 3\na 1 2\n", "4 3\n", "4 3"]
)
def test_a_first_line_that_claims_too_much_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokens.txt").write_text(content)
    write_word2vec(tmp_path / "contexts.txt", dict(zip(CONTEXTS, H.T, strict=True)))
    with pytest.raises(CheckpointError, match=r"tokens\.txt must"):
        load_arrays(tmp_path)


def test_one_npz_file_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "model.npz", W=W, H=H, bias=BIAS)
    np.testing.assert_allclose(load_arrays(tmp_path / "model.npz").logits, W @ H + BIAS[:, None])


def write_word2vec(path: Path, vectors: dict[str, Any], end: str = "\n") -> None:
    """A file as other programs write it: names as they are, in any order."""
    lines = [f"{len(vectors)} 3", *(f"{name} {' '.join(map(repr, x.tolist()))}" for name, x in vectors.items())]
    path.write_bytes("".join(line + end for line in lines).encode())


TOKENS = ["the", " dog", "caf\u00e9", '"', "\\n"]
CONTEXTS = ["a", "b", "c", "d", "e", "f", "g"]
STATS = NextTokenStatistics.from_counts(np.ones((5, 7), np.int64), CONTEXTS, TOKENS)


@pytest.mark.parametrize("end", ["\n", " \n", "\r\n"])
def test_word2vec_files_of_others_are_matched_by_name(tmp_path: Path, end: str) -> None:
    words = ["the", "\u2581dog", "caf\u00e9", '"', "\\n"]
    vectors = {"more": np.zeros(3)} | dict(zip(reversed(words), W[::-1], strict=True))
    write_word2vec(tmp_path / "tokens.txt", vectors, end)
    order = RNG.permutation(7)
    write_word2vec(tmp_path / "contexts.txt", {CONTEXTS[j]: H[:, j] for j in order}, end)
    found = load_arrays(tmp_path, STATS)
    np.testing.assert_array_equal(found.W, W)
    np.testing.assert_array_equal(found.H, H)
    np.testing.assert_array_equal(load_arrays(tmp_path).H, H[:, order])


def test_npz_files_are_matched_by_name_with_their_bias(tmp_path: Path) -> None:
    order = RNG.permutation(5)
    np.savez(tmp_path / "tokens.npz", vectors=W[order], names=np.array(TOKENS)[order], bias=BIAS[order])
    np.savez(tmp_path / "contexts.npz", vectors=H.T, names=np.array(CONTEXTS))
    found = load_arrays(tmp_path, STATS)
    np.testing.assert_array_equal(found.logits, W @ H + BIAS[:, None])


def test_missing_names_are_listed(tmp_path: Path) -> None:
    write_word2vec(tmp_path / "tokens.txt", dict(zip(TOKENS[::2], W[::2], strict=True)))
    with pytest.raises(CheckpointError, match=r"has tokens\.txt and no contexts\.txt"):
        load_arrays(tmp_path, STATS)
    write_word2vec(tmp_path / "contexts.txt", dict(zip(CONTEXTS, H.T, strict=True)))
    with pytest.raises(CheckpointError, match=r"5 tokens of the statistics; 2 are missing: ' dog', '\"'\. Leave"):
        load_arrays(tmp_path, STATS)
    twice = NextTokenStatistics.from_counts(np.ones((2, 7), np.int64), CONTEXTS, ["the", "the"])
    with pytest.raises(CheckpointError, match="2 tokens of the statistics; 1 is missing: 'the'"):
        load_arrays(tmp_path, twice)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("the 1 2 3\n", "first line of .* must be the number of vectors"),
        ("2 3\nthe 1 2 3\n", "must have 2 vectors, as its first line says; it has 1"),
        ("2 3\nthe 1 2 3\na 1\n", "cannot be read as word2vec text.*Likely truncated"),
        ("1 3\nthe 1 2 x\n", "cannot be read as word2vec text"),
    ],
)
def test_broken_word2vec_files_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    write_word2vec(tmp_path / "contexts.txt", dict(zip(CONTEXTS, H.T, strict=True)))
    (tmp_path / "tokens.txt").write_text(text)
    with pytest.raises(CheckpointError, match=reason):
        load_arrays(tmp_path)
