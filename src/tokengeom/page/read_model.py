"""`ReadModel`: a trained model on the contexts of a text, as a report keeps it; and where models are read from."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from tokengeom.comparison.checkpoints import read_factors
from tokengeom.comparison.model_states import ModelStates, read_model
from tokengeom.core.errors import CheckpointError, missing_extra
from tokengeom.core.progress import AbstractProgress
from tokengeom.core.system import file_hash
from tokengeom.models.checkpoint import (
    checkpoint_folders,
    find_weights,
    load_checkpoint,
    require_model_folder,
    training_step,
)
from tokengeom.results.contract import AbstractResult
from tokengeom.results.convert import Digest, Within, damaged, from_entries, to_plain
from tokengeom.statistics.arrays_file import SavedArrays
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.storage import write_arrays
from tokengeom.training.objective import SoftLabels

if TYPE_CHECKING:
    from tokengeom.models.language_model import ModuleModel

ARRAYS = "model.safetensors"
MODEL_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "pytorch_model*.bin")
"""Files of a model's folder that decide its weights, its tokenizer and its step; the state of an optimizer does not."""
TOKENIZER_FILES = re.compile(r"config\.json|vocab.*|merges.*|.*token.*")
"""Those that decide how a text is counted: the tokenizer, and the number of rows in the config."""


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model apart from its numbers.

    ``architecture``, ``parameters``, ``rows``
        Name of its class, number of its parameters, and rows of its head.
    ``cap``
        Soft cap of its logits, or None.
    ``device``
        Device that it was read on.
    """

    architecture: str
    parameters: Annotated[int, Within(0)]
    rows: Annotated[int, Within(1)]
    cap: float | None
    device: str

    def __post_init__(self) -> None:
        if self.cap is not None and self.cap <= 0:
            raise ValueError(f"the cap of the logits must be positive; got {self.cap}")


@dataclass(frozen=True)
class _Stated:
    """What the manifest of a model says: its states without the arrays, the entropy floor, and what is known of it."""

    name: str
    step: Annotated[int, Within(0)] | None
    convention: str
    loss_gap: float
    bos: bool
    other_gap: float | None
    statistics_hash: Digest
    entropy: float
    info: ModelInfo | None


@dataclass(frozen=True, eq=False, repr=False)
class ReadModel(ModelStates, AbstractResult):
    """A trained model on the contexts of statistics.

    ``entropy``  The entropy floor of the statistics, in nats.
    ``info``     Its architecture and how it was read; None for a model that was given in memory.
    """

    kind: ClassVar[str] = "tokengeom-model"
    title: ClassVar[str] = "Trained model on the contexts of a text"

    entropy: float
    info: ModelInfo | None = None

    @staticmethod
    def of(states: ModelStates, entropy: float, info: ModelInfo | None = None) -> ReadModel:
        """A model from its states."""
        return ReadModel(**_fields_of(states), entropy=entropy, info=info)

    @property
    def states(self) -> ModelStates:
        """The states alone, which are what is compared."""
        return ModelStates(**_fields_of(self))

    @property
    def loss(self) -> float:
        """Cross-entropy on these contexts in nats."""
        return self.entropy + self.loss_gap

    def to_dict(self) -> dict[str, Any]:
        known = {} if self.info is None else asdict(self.info)
        return {name: value for name, value in vars(self._stated).items() if name != "info"} | known

    def bos_sentence(self) -> str:
        """What the model read before every context, and why."""
        bos, other = self.bos, self.other_gap
        read = "its BOS token before every context" if bos else "the contexts alone, without a BOS token before them"
        if other is None:
            return f"The model read {read}."
        without = "without" if bos else "with"
        return f"The model read {read}: this gives the lower loss (the loss gap is about {other:.4f} {without} it)."

    def summary(self) -> str:
        """What W and H are, what was read, and the loss."""
        loss = f"The loss is {self.loss:.4f} nats, {self.loss_gap:.4f} above the entropy floor {self.entropy:.4f}."
        return "\n".join([self.convention, self.bos_sentence(), loss])

    def _facts(self) -> list[tuple[str, str]]:
        (V, d), m = self.W.shape, self.H.shape[1]
        step = [] if self.step is None else [("step", f"{self.step:,}")]
        sizes = [("d", f"{d:,}"), ("tokens V", f"{V:,}"), ("contexts m", f"{m:,}")]
        return [("model", self.name), *step, ("loss gap", f"{self.loss_gap:.4g} nats"), *sizes]

    def loss_again(self, labels: SoftLabels) -> float | None:
        """The loss gap, computed again from W and H; None where rows that are not kept take part in it."""
        if self.info is None or self.info.rows != self.W.shape[0]:
            return None
        cap = self.info.cap
        capped = None if cap is None else lambda L: np.asarray(cap * np.tanh(L / cap))
        return labels.loss_gap_of(self.factors, capped)

    def _write(self, folder: Path) -> dict[str, Any]:
        arrays = {"W": self.W, "H": self.H, "bias": self.bias}
        write_arrays(folder / ARRAYS, {name: array for name, array in arrays.items() if array is not None})
        return dict(to_plain(self._stated))

    @property
    def _stated(self) -> _Stated:
        return _Stated(**{name: getattr(self, name) for name in _Stated.__annotations__})

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> ReadModel:
        stated, arrays = from_entries(_Stated, manifest, folder), SavedArrays(folder / ARRAYS)
        arrays.only("W", "H", "bias")
        read = ReadModel(factors=read_factors(arrays), **vars(stated))
        if read.info is not None and read.info.rows < read.W.shape[0]:
            raise damaged(folder, f"its head has {read.info.rows} rows, and W has {read.W.shape[0]}")
        return read


def _fields_of(states: ModelStates) -> dict[str, Any]:
    return {field.name: getattr(states, field.name) for field in fields(ModelStates)}


@dataclass(frozen=True)
class ModelFolder:
    """The folder of a model that is compared.

    ``name``                          Name on the page, different from that of every other model.
    ``digest``, ``tokenizer_digest``  SHA-256 of the files that decide its numbers, and of those that decide how a text
                                      is counted.
    """

    path: Path
    name: str
    digest: str
    tokenizer_digest: str


class Models:
    """The models of a report, in the order of training; the last one is judged, and its tokenizer counts the text."""

    def __init__(self, folders: Sequence[ModelFolder], device: str, precision: str, allow_pickle: bool) -> None:
        self.folders, self.device, self.precision = tuple(folders), device, precision
        self._allow_pickle = allow_pickle
        self._loaded: tuple[ModelFolder, ModuleModel] | None = None

    @property
    def last(self) -> int:
        """Place of the last one."""
        return len(self.folders) - 1

    @property
    def names(self) -> list[str]:
        """Names on the page."""
        return [folder.name for folder in self.folders]

    def load(self, place: int, progress: AbstractProgress) -> ModuleModel:
        """One of the models; only the one that was asked for last is kept in memory."""
        folder = self.folders[place]
        if self._loaded is None or self._loaded[0] != folder:
            self._loaded = None
            with progress.stage(f"Loading {folder.name}", None):
                model = load_checkpoint(
                    folder.path, device=self.device, allow_pickle=self._allow_pickle, precision=self.precision
                )
            self._loaded = folder, model
        return self._loaded[1]

    def read(self, place: int, stats: NextTokenStatistics, bos: bool | None, progress: AbstractProgress) -> ReadModel:
        """One of the models on the contexts of statistics."""
        model = self.load(place, progress)
        states = read_model(model, stats, bos=bos, progress=progress)
        named = replace(states, name=self.folders[place].name)
        info = ModelInfo(model.architecture, model.parameters, model.head.rows, model.head.cap, self.device)
        return ReadModel.of(named, stats.entropy, info)


def find_models(
    given: Sequence[str | Path], *, device: str = "cpu", precision: str = "auto", allow_pickle: bool = False
) -> Models:
    """The models in folders, or in the ``checkpoint-*`` folders inside them, before any weight is read.

    They are in the order of their training steps where all are known, and as given otherwise.
    """
    paths = [inside for folder in given for inside in checkpoint_folders(Path(folder))]
    for path in paths:
        require_model_folder(path)
    steps = {path: training_step(path) for path in paths}
    if None not in steps.values():
        paths.sort(key=lambda path: steps[path] or 0)
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            missing_extra(package, "networks", "A report about a trained model")
    if not allow_pickle:
        for path in paths:
            find_weights(path, allow_pickle)
    folders = [ModelFolder(path, name, *_digests(path)) for path, name in zip(paths, _names(paths), strict=True)]
    if len({folder.digest for folder in folders}) < len(folders):
        names = ", ".join(folder.name for folder in folders)
        raise CheckpointError(f"Each model must be given once; two of {names} have the same files.")
    return Models(folders, device, precision, allow_pickle)


def _names(paths: Sequence[Path]) -> list[str]:
    """Names of folders, with the folder above where two are equal, and numbered where that does not help."""
    names = [path.resolve().name for path in paths]
    often = Counter(names)
    longer = [
        f"{path.resolve().parent.name}/{name}" if often[name] > 1 else name
        for path, name in zip(paths, names, strict=True)
    ]
    again = Counter(longer)
    return [f"{name} ({place})" if again[name] > 1 else name for place, name in enumerate(longer, start=1)]


def _digests(path: Path) -> tuple[str, str]:
    files = sorted({file for pattern in MODEL_FILES for file in path.glob(pattern) if file.is_file()})
    try:
        hashes = [(file.name, file_hash(file)) for file in files]
    except OSError as error:
        raise CheckpointError(f"Cannot read {path}: {error.strerror}. Check its permissions.") from error
    return _hash(hashes), _hash([(name, digest) for name, digest in hashes if TOKENIZER_FILES.fullmatch(name)])


def _hash(content: Sequence[tuple[str, str]]) -> str:
    return hashlib.sha256("".join(f"{name} {digest}\n" for name, digest in content).encode()).hexdigest()
