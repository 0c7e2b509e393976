"""The published model: its states against NumPy, its file, and every outcome on made-up rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tokengeom.extending import InputError
from tokengeom_studies.published_rnn import (
    LENGTH,
    LIMIT,
    NORM,
    SIMULATED,
    STATE,
    TIED,
    UNTRAINED,
    WITH_SELF,
    PublishedRnn,
    Weights,
    letters_of,
)

NUMBER = {"a": 1, "b": 2, " ": 3}


def weights() -> Weights:
    made = Weights.untrained(NUMBER, 0)
    rng = np.random.default_rng(1)
    arrays = {name: array + 0.1 * rng.standard_normal(array.shape) for name, array in made.arrays.items()}
    return Weights(arrays, NUMBER)


def lstm(model: Weights, n: int, inputs: Any) -> Any:
    """Gates in the order of Keras: input, forget, cell, output; each block of the kernel was stored transposed."""
    kernel, recurrent = model.arrays[f"rnn_{n}/kernel"], model.arrays[f"rnn_{n}/recurrent_kernel"]
    K = [gate.T.reshape(gate.shape, order="F") for gate in np.hsplit(kernel, 4)]
    R = [gate.T for gate in np.hsplit(recurrent, 4)]
    bias = model.arrays[f"rnn_{n}/bias"].reshape(2, 4, STATE).sum(axis=0)
    h, c, states = np.zeros(STATE), np.zeros(STATE), []
    for x in inputs:
        i, f, g, o = (x @ K[gate] + h @ R[gate] + bias[gate] for gate in range(4))
        sigma = [1 / (1 + np.exp(-gate)) for gate in (i, f, o)]
        c = sigma[1] * c + sigma[0] * np.tanh(g)
        h = sigma[2] * np.tanh(c)
        states.append(h)
    return np.array(states)


def test_states_are_those_of_the_formula() -> None:
    model = weights()
    ids = [0] * (LENGTH - 3) + [1, 3, 2]
    embedded = model.arrays["embedding/embeddings"][ids]
    first = lstm(model, 1, embedded)
    each = np.hstack([embedded, first, lstm(model, 2, first)])
    scores = np.exp(each @ model.arrays["attention/attention_W"][:, 0])
    expected = (scores / scores.sum()) @ each
    assert model.states(["a b"])[0].numpy() == pytest.approx(expected, abs=1e-5)


def test_the_file_is_read_by_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class File(dict[str, Any]):
        def __enter__(self) -> File:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def visititems(self, see: Any) -> None:
            for name, found in self.items():
                see(name, found)

    held = {"rnn_1": object(), "rnn_1/rnn_1/kernel:0": np.ones((2, 3))}
    (tmp_path / "textgenrnn_vocab.json").write_text(json.dumps(NUMBER))
    monkeypatch.setitem(sys.modules, "h5py", SimpleNamespace(File=lambda path: File(held)))
    read = Weights.read(tmp_path)
    assert read.number == NUMBER
    assert list(read.arrays) == ["rnn_1/kernel"]
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InputError, match="pip install h5py"):
        Weights.read(tmp_path)


def test_letters_that_the_model_does_not_know_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a\n\n b?ab")
    assert letters_of(str(tmp_path / "text.txt"), weights(), 4) == "a ba"
    with pytest.raises(InputError, match="5 letters"):
        letters_of(str(tmp_path / "text.txt"), weights(), 6)


def decisions(**lead: float) -> dict[str, str]:
    """Answers where explanations agree with the model at 0.5, or at what is given; differences vary by 0.01."""
    values = {NORM: 0.5, LIMIT: 0.4, SIMULATED.format(TIED): 0.6, SIMULATED.format(WITH_SELF): 0.5, UNTRAINED: 0.1}
    values |= {{"tied": SIMULATED.format(TIED), "norm": NORM}[name]: value for name, value in lead.items()}
    rows = [
        {"kind": "part", "text": text, "part": part, "relative_gap": {NORM: 1e-3}}
        | {"contexts": 5, "tokens": 5, "entropy": 1.0, "loss_gap": 0.5}
        | {"agreement": {n: dict.fromkeys(("contexts", "tokens"), x * (1 + 0.01 * part)) for n, x in values.items()}}
        for text in ("one", "two")
        for part in range(3)
    ]
    study = PublishedRnn()
    table = study.judge(study.recipe("paper"), rows).tables["hypotheses"]
    return dict(zip(study.hypotheses, map(str, table["answer"]), strict=True))


def test_every_outcome() -> None:
    assert set(decisions().values()) == {"yes"}
    assert decisions(norm=0.3)["at the loss"] == "no"
    assert decisions(norm=0.4)["at the loss"] == "undecided"
    assert {decisions(tied=0.05)[name] for name in ("ties", "itself", "untrained")} == {"no"}
