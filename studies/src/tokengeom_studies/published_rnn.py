"""A published model of characters that a package carries: textgenrnn 2.0.0 (MIT), two LSTMs trained on Reddit.

The package from the index of Python packages holds ``textgenrnn_weights.hdf5`` and ``textgenrnn_vocab.json``. Its
state is a weighted mean over at most 40 characters of their embedding and the states of both LSTMs, 356 numbers; the
head has 465 characters and a bias. There is one training, so that nothing is known of what is reproducible: agreement
is plain. An untrained network of the same form, with the same text, is a floor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tokengeom import NextTokenStatistics, count
from tokengeom.extending import AbstractProgress, Float, InputError, import_torch, stories
from tokengeom_studies.base import Recipe
from tokengeom_studies.common.measured import Hypothesis, Row, Rows
from tokengeom_studies.common.on_device import ITEMS, PairGeometry
from tokengeom_studies.common.published_model import AbstractPublishedModel
from tokengeom_studies.common.torch_runs import DeviceText
from tokengeom_studies.common.variants import FIRST_SEED, Variant

LENGTH, STATE = 40, 128
"""Characters that the model reads, padded on the left with character 0, and numbers in the state of an LSTM."""
NORM, LIMIT, UNTRAINED = "gamma_2 at the loss", "in the limit", "untrained network"
TIED, WITH_SELF, FREE = "positions+pairs", "positions+pairs+self", "self"
SIMULATED = "simulated, {}"
_RULE = (
    "Difference of plain agreement, paired by parts of a text: 95% interval over five parts above 0 for every text and "
    "item that is named: yes; below for one: no."
)


@dataclass(frozen=True)
class Weights:
    """Arrays of a model of characters, by their names in the file of weights, and the number of each character."""

    arrays: Mapping[str, Float]
    number: Mapping[str, int]

    @staticmethod
    def read(folder: Path) -> Weights:
        """The weights of the package, from its folder."""
        try:
            import h5py
        except ModuleNotFoundError as error:
            raise InputError("Reading the weights of textgenrnn takes h5py: pip install h5py.") from error
        arrays: dict[str, Float] = {}
        with h5py.File(folder / "textgenrnn_weights.hdf5") as file:
            file.visititems(
                lambda name, found: arrays.update({name: np.array(found)} if hasattr(found, "shape") else {})
            )
        number = json.loads((folder / "textgenrnn_vocab.json").read_text(encoding="utf-8"))
        return Weights({"/".join(name[:-2].split("/")[1:]): array for name, array in arrays.items()}, number)

    @staticmethod
    def untrained(number: Mapping[str, int], seed: int) -> Weights:
        """Weights at a start: uniform embeddings, normal matrices with variance 1 over their inputs, no bias."""
        rng, V, d = np.random.default_rng(seed), max(number.values()) + 1, 100
        shapes = {"rnn_1/kernel": (d, 4 * STATE), "rnn_2/kernel": (STATE, 4 * STATE)}
        shapes |= {f"rnn_{n}/recurrent_kernel": (STATE, 4 * STATE) for n in (1, 2)}
        shapes |= {"output/kernel": (d + 2 * STATE, V)}
        arrays = {name: rng.standard_normal(shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
        arrays["embedding/embeddings"] = rng.uniform(-0.05, 0.05, (V, d))
        arrays["attention/attention_W"] = rng.uniform(-0.05, 0.05, (d + 2 * STATE, 1))
        arrays |= {f"rnn_{n}/bias": np.zeros(8 * STATE) for n in (1, 2)}
        return Weights(arrays | {"output/bias": np.zeros(V)}, number)

    def tensor(self, name: str) -> Any:
        """An array as a tensor in single precision."""
        return import_torch().as_tensor(np.ascontiguousarray(self.arrays[name]), dtype=import_torch().float32)

    @cached_property
    def layers(self) -> list[Any]:
        """Both LSTMs. The file has their matrices gate by gate, those of inputs in the order of Fortran."""
        torch, layers = import_torch(), []
        for n in (1, 2):
            kernel, recurrent = self.arrays[f"rnn_{n}/kernel"], self.arrays[f"rnn_{n}/recurrent_kernel"]
            layer = torch.nn.LSTM(kernel.shape[0], STATE, batch_first=True)
            inputs = [gate.T.reshape(gate.shape, order="F").T for gate in np.hsplit(kernel, 4)]
            layer.weight_ih_l0.data = torch.as_tensor(np.vstack(inputs), dtype=torch.float32)
            layer.weight_hh_l0.data = torch.as_tensor(np.vstack(np.hsplit(recurrent, 4)), dtype=torch.float32)
            layer.bias_ih_l0.data, layer.bias_hh_l0.data = self.tensor(f"rnn_{n}/bias").reshape(2, -1)
            layers.append(layer)
        return layers

    def states(self, texts: Sequence[str]) -> Any:
        """The states after these texts, one per row."""
        torch = import_torch()
        ids = np.zeros((len(texts), LENGTH), np.int64)
        for row, text in zip(ids, texts, strict=True):
            row[LENGTH - len(text) :] = [self.number[letter] for letter in text]
        with torch.no_grad():
            parts = [self.tensor("embedding/embeddings")[torch.as_tensor(ids)]]
            for layer in self.layers:
                parts.append(layer(parts[-1])[0])
            each = torch.cat(parts, -1)
            return ((each @ self.tensor("attention/attention_W")).softmax(1) * each).sum(1)


class PublishedRnn(AbstractPublishedModel):
    """Explanations of the published model, and of none of its training text, on five parts of several texts."""

    question = "Does a published model of characters have the geometry that another text of its language predicts?"
    items, title = ITEMS, "A published model of characters"
    leads: ClassVar = {
        "at the loss": (NORM, LIMIT, ITEMS),
        "ties": (SIMULATED.format(TIED), NORM, ITEMS),
        "itself": (SIMULATED.format(TIED), SIMULATED.format(WITH_SELF), ITEMS[:1]),
        "untrained": (SIMULATED.format(TIED), UNTRAINED, ITEMS[:1]),
    }
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {
        "at the loss": Hypothesis(
            "The smallest gamma_2 norm at the model's loss agrees better with it than the limit of training.",
            f"Contexts and tokens. {_RULE}",
        ),
        "ties": Hypothesis(
            f"Simulated features tied by shared tokens ({TIED}) agree better than the smallest gamma_2 norm.",
            f"Contexts and tokens. {_RULE}",
        ),
        "itself": Hypothesis(
            "They agree better without the context itself among the features than with it.", f"Contexts. {_RULE}"
        ),
        "untrained": Hypothesis(
            "They agree better with the contexts than an untrained network of the model's form does.",
            f"Contexts. {_RULE}",
        ),
    }
    # Without a model, an untrained one stands in for it, so that the study can be tried.
    small: ClassVar[Recipe] = {
        **{"model": "", "texts": ["stories"], "parts": 2, "letters": 20_000, "context": 3, "contexts": 40},
        **{"vocabulary": 20, "dim": 16, "learning_rate": 1e-2, "replicates": 2, "seconds": 60},
    }
    paper: ClassVar[Recipe] = {
        **{"model": "texts/textgenrnn", "texts": ["texts/tinystories.txt", "texts/moby.txt", "texts/code.txt"]},
        **{"parts": 5, "letters": 200_000, "context": 5, "contexts": 400},
        **{"vocabulary": 60, "dim": 128, "learning_rate": 1e-3, "replicates": 3, "seconds": 900},
    }

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """One row per text and part."""
        letters = {chr(code): code for code in range(32, 127)}
        model = Weights.read(Path(recipe["model"])) if recipe["model"] else Weights.untrained(letters, 1)
        with progress.stage("Parts of texts", float(len(recipe["texts"]) * recipe["parts"])) as stage:
            for name in recipe["texts"]:
                text = letters_of(name, model, recipe["letters"] * recipe["parts"])
                for part in range(recipe["parts"]):
                    where = {"text": Path(name).stem, "part": part}
                    if rows.in_time and not rows.has(kind="part", **where):
                        piece = text[part * recipe["letters"] :][: recipe["letters"]]
                        rows.add(kind="part", **where, **measured(piece, model, part, recipe))
                    stage.advance(1.0, f"{name}, part {part}")


def letters_of(name: str, model: Weights, most: int) -> str:
    """The first letters of a text that the model knows, every run of white space as one space."""
    whole = " ".join(islice(stories(0), 400)) if name == "stories" else Path(name).read_text(encoding="utf-8")
    known = "".join(letter for letter in " ".join(whole.split()) if letter in model.number)
    if len(known) < most:
        raise InputError(f"{name} has {len(known):,} letters that the model knows; {most:,} are needed.")
    return known[:most]


def measured(piece: str, model: Weights, part: int, recipe: Recipe) -> Row:
    """The model and every explanation on the most frequent contexts of a piece of text."""
    whole = count([piece], context=recipe["context"], tokenizer="char")
    stats = whole.limited(top_contexts=recipe["contexts"], vocabulary=recipe["vocabulary"])
    text = DeviceText(stats)
    W, H, gap = read(model, stats)
    ours = text.geometry(W, H)
    # A prediction exists below the loss of a uniform guess, above which an untrained network may be.
    gap = min(gap, 0.9 * (float(np.log(stats.V)) - stats.entropy))
    found = {"cosines of supports": text.matrix_geometry(stats.S.toarray(), 1.0)}
    solved = {NORM: text.prediction(gap, "gamma2"), "nuclear at the loss": text.prediction(gap, "nuclear")}
    solved[LIMIT] = text.limit
    found |= {name: text.geometry(at.W, at.H) for name, at in solved.items()}
    for ties in (TIED, WITH_SELF, FREE):
        training, given = Variant(norm="none").simulation(ties), {**recipe, "gaps": [gap]}
        seeds = [FIRST_SEED + recipe["replicates"] * part + r for r in range(recipe["replicates"])]
        runs = [next(training.reached(text, stats, given, seed)) for seed in seeds]
        found[SIMULATED.format(ties)] = PairGeometry.mean([text.geometry(run.W, run.H) for run in runs])
    found[UNTRAINED] = text.geometry(*read(Weights.untrained(model.number, 100 + part), stats)[:2])
    return {
        "contexts": stats.m,
        "tokens": stats.V,
        "windows": stats.n,
        "entropy": stats.entropy,
        "loss_gap": gap,
        "relative_gap": {name: at.relative_gap for name, at in solved.items()},
        "agreement": {name: ours.agreement(geometry) for name, geometry in found.items()},
    }


def read(model: Weights, stats: NextTokenStatistics) -> tuple[Any, Any, float]:
    """Rows of W for the text's letters, states of its contexts (d x m), and the model's loss above the entropy."""
    states = model.states([stats.context_text(j) for j in range(stats.m)])
    head, bias = model.tensor("output/kernel").T, model.tensor("output/bias")
    logits = (states @ head.T + bias).double()
    known = np.array([model.number[letter] for letter in stats.vocabulary])
    P = import_torch().as_tensor(stats.P.toarray())
    losses = logits.logsumexp(1) - (P.T * logits[:, known]).sum(1)
    return head[known], states.T, float(np.sum(losses.numpy() * stats.pi)) - stats.entropy
