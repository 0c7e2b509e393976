"""Genuine inputs and results of every kind, made once; tries damage copies of them."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from campaign.forks import Place, import_what_runs_import

CUT = "--context 1 --top-contexts 12 --vocabulary 10"
"""Sizes at which every command takes a fraction of a second."""
TRAIN = "--dim 6 --steps 24 --learning-rate 0.03 --records-per-decade 4"
NETWORK = "--layers 1 --dim 8 --steps 24 --learning-rate 0.03 --records-per-decade 4"
REPORT = f"{CUT} --steps 8 --dim 6 --permutations 20 --no-transformer"
CHECKPOINT = "--model model --context 1 --top-contexts 8 --permutations 20"
"""A checkpoint on its text."""
JUDGED = f"{CUT} --steps 300 --dim 8 --permutations 20 --no-transformer"
"""A report whose models train long enough for a prediction at their loss."""

COMMANDS = {
    "stats": f"count text.txt {CUT} --out stats -q",
    "other-stats": f"count other.txt {CUT} --out other-stats -q",
    "deep-stats": "count text.txt --context 2 --top-contexts 16 --vocabulary 10 --out deep-stats -q",
    "pairs": "count text.txt --context 1 --pairs pairs -q",
    "other-pairs": "count other.txt --context 1 --pairs other-pairs -q",
    "prediction": "predict stats --out prediction -q",
    "other-prediction": "predict other-stats --out other-prediction -q",
    "proxy": "predict stats --proxy --components 3 --out proxy -q",
    "other-proxy": "predict other-stats --proxy --components 3 --out other-proxy -q",
    "at-loss": "predict stats --loss-gap 0.1 --out at-loss -q",
    "other-at-loss": "predict stats --loss-gap 0.2 --out other-at-loss -q",
    "at-loss-gamma2": "predict stats --loss-gap 0.1 --norm gamma2 --out at-loss-gamma2 -q",
    "linear": "predict stats --embeddings H.npy --out linear -q",
    "other-linear": "predict stats --embeddings H.npy --tolerance 1e-3 --out other-linear -q",
    "tied": "predict deep-stats --loss-gap 0.3 --ties positions+suffixes+self --out tied -q",
    "other-tied": "predict deep-stats --loss-gap 0.4 --ties positions+self --out other-tied -q",
    "run": f"train stats {TRAIN} --out run -q",
    "run-2": f"train stats {TRAIN} --seed 1 --out run-2 -q",
    "transformer-run": f"train deep-stats --model transformer --heads 2 {NETWORK} --out transformer-run -q",
    "lstm-run": f"train deep-stats --model lstm {NETWORK} --out lstm-run -q",
    "simulation": "simulate stats --like run --replicates 2 --steps 20 --out simulation -q",
    "other-simulation": "simulate stats --like run --replicates 2 --steps 20 --seed 1 --out other-simulation -q",
    "placing": "simulate deep-stats --like lstm-run --ties positions+self --replicates 2 --steps 20 --out placing -q",
    "comparison": "compare prediction run run-2 --permutations 20 --out comparison -q",
    "other-comparison": "compare prediction run-2 --permutations 20 --out other-comparison -q",
    "tied-comparison": "compare tied transformer-run lstm-run --permutations 20 --out tied-comparison -q",
    "checkpoint": f"compare {CHECKPOINT} --text words.txt --out checkpoint -q",
    "other-checkpoint": f"compare {CHECKPOINT} --text words.txt --seed 1 --out other-checkpoint -q",
    "rivals": "rivals stats run run-2 --prediction prediction --explanations proxy --explanations pmi --out rivals -q",
    "other-rivals": "rivals stats run --explanations proxy --explanations pmi --seed 1 --out other-rivals -q",
    "texts": "compare-texts stats other-stats --permutations 20 --out texts -q",
    "other-texts": "compare-texts stats other-stats --permutations 20 --seed 1 --out other-texts -q",
    "exported": "export prediction --stats stats --out exported -q",
    "other-exported": "export other-prediction --stats other-stats --out other-exported -q",
    "vectors": "export prediction --stats stats --format word2vec --out vectors -q",
    "arrays": "export prediction --stats stats --format numpy --out arrays -q",
    "findings": "study linear-2d --set steps=200 --out findings -q",
    "other-findings": "study linear-2d --set steps=100 --out other-findings -q",
    "page-results": f"report text.txt --out page.html {REPORT} -q",
    "judged-results": f"report text.txt --out judged.html {JUDGED} -q",
    "other-results": f"report other.txt --out other.html {REPORT} -q",
    "checkpoint-results": f"report words.txt --out checkpoint.html {CHECKPOINT} -q",
}
"""Commands that make the saved results, by the name of the result, in an order in which they can be run."""
MODEL = "model"
"""Name of a checkpoint in the Hugging Face format."""


FAILING = ("findings", "other-findings")
"""Results whose command exits with 1: numbers of a study are not in their ranges after so few steps."""
_FOUND_BESIDE = {"prediction": "stats", "simulation": "stats"}
_FOUND_BESIDE |= dict.fromkeys(("tied", "placing", "transformer-run", "lstm-run"), "deep-stats")
"""Results -> the statistics that commands look for beside them."""
_NAMES = ("--out", "--pairs", "--explanations")
"""Options whose values are no inputs, though they can have the names of inputs."""


def command_to(name: str, target: str) -> str:
    """The command that makes a result, which saves it under another name."""
    page, others = name.removesuffix("-results"), target.removesuffix("-results")
    return re.sub(rf"(--out|--pairs) {page}(?=[ .])", rf"\1 {others}", COMMANDS[name])


def inputs_of(command: str) -> tuple[str, ...]:
    """Names of the material that a command reads; a comparison finds the statistics beside it."""
    words = shlex.split(command)
    read = [word for before, word in pairwise(words) if before not in _NAMES]
    files = ("text.", "other.", "words.", "H.")
    found = [word for word in read if word in (*COMMANDS, MODEL) or word.startswith(files)]
    return tuple(dict.fromkeys([*found, *(_FOUND_BESIDE[name] for name in found if name in _FOUND_BESIDE)]))


def with_inputs(names: Iterable[str]) -> tuple[str, ...]:
    """The named material and everything that it is made from, in an order in which it can be made."""
    needed = set(names)
    for name in reversed(COMMANDS):
        needed |= set(inputs_of(COMMANDS[name])) if name in needed else set()
    return tuple(name for name in (MODEL, *COMMANDS) if name in needed)


@dataclass(frozen=True)
class Material:
    """Inputs and results in one folder, by name."""

    folder: Path

    def path(self, name: str) -> Path:
        """Path of one of them."""
        return self.folder / name

    def put(self, name: str, target: Path) -> Path:
        """A copy at ``target``."""
        source = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
        return target


def make_material(folder: Path, wanted: Iterable[str] = (*COMMANDS, MODEL)) -> Material:
    """Write texts in every format and the named results, in a child; this process imports what they imported."""
    place, names = Place.inside(folder), with_inputs(wanted)

    def make() -> None:
        from tokengeom.cli.app import add_commands, run_command

        add_commands()
        _write_corpora(Path())
        if MODEL in names:
            _write_model(Path(MODEL))
        for name in (one for one in COMMANDS if one in names):
            if run_command(shlex.split(COMMANDS[name])) != (name in FAILING):
                raise RuntimeError(f"tokengeom {COMMANDS[name]} failed")
            if name == "stats":
                _write_embeddings(Path(), json.loads(Path("stats/manifest.json").read_bytes()))

    import_what_runs_import(make, place)
    return Material(place.work)


def _write_corpora(folder: Path) -> None:
    """The same documents in every format that a corpus may have."""
    import bz2
    import lzma

    import pyarrow as pa
    import pyarrow.parquet as pq

    from tokengeom.corpus.stories import stories

    documents = list(islice(stories(0), 40))
    text = "\n\n".join(documents).encode()
    lines = "".join(json.dumps({"id": k, "text": one}) + "\n" for k, one in enumerate(documents)).encode()
    ids = [np.frombuffer(one.encode(), np.uint8).astype(np.int64) % 20 for one in documents]
    table = pa.table({"text": documents, "tokens": [one.tolist() for one in ids]})
    files = {
        "text.txt": text,
        "other.txt": "\n\n".join(islice(stories(1), 40)).encode(),
        "text.jsonl": lines,
        "text.txt.gz": gzip.compress(text, mtime=0),
        "text.jsonl.bz2": bz2.compress(lines),
        "text.txt.xz": lzma.compress(text),
        "text.bin": np.concatenate(ids).astype(np.uint16).tobytes(),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    for suffix, codec in ((".zst", "zstd"), (".lz4", "lz4")):
        with pa.CompressedOutputStream(str(folder / f"text.txt{suffix}"), codec) as stream:
            stream.write(text)
    pq.write_table(table, folder / "text.parquet", row_group_size=10)
    with pa.OSFile(str(folder / "text.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    _write_tokenizer(folder / "tokenizer.json", documents)
    (folder / "settings.toml").write_text(
        '[count]\ncontext = 1\ntop-contexts = 12\nvocabulary = 10\ntokenizer = "word"\n'
        '[train]\nsteps = 10\ndim = 4\nlearning-rate = 0.01\noptimizer = "gd"\n'
    )


def _write_embeddings(folder: Path, statistics: dict[str, int]) -> None:
    """Embeddings of the contexts, and a W and an H for the comparison of arrays."""
    from safetensors.numpy import save_file

    rng, V, m = np.random.default_rng(0), statistics["vocabulary"], statistics["contexts"]
    H = rng.standard_normal((m, m))
    np.save(folder / "H.npy", H)
    save_file({"H": H}, folder / "H.safetensors")
    save_file({"W": rng.standard_normal((V, 6)), "H": rng.standard_normal((6, m))}, folder / "arrays.safetensors")


def _write_tokenizer(path: Path, documents: list[str]) -> None:
    """A small byte-pair encoding, trained on the spot."""
    import tokenizers

    model = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=80, special_tokens=["[UNK]"], show_progress=False)
    model.train_from_iterator(documents, trainer)
    model.save(str(path))


def _write_model(folder: Path) -> None:
    """A random GPT-2 of two layers, with a tokenizer of 30 words."""
    import tokenizers
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "gpt2", vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=32, bos_token_id=1, eos_token_id=2
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    words = {f"w{place}": place for place in range(30)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    rng = np.random.default_rng(0)
    lines = [" ".join(f"w{z}" for z in rng.integers(3, 12, 12)) for _ in range(30)]
    folder.with_name("words.txt").write_text("\n\n".join(lines))
