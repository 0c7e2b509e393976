"""Write the golden files: what version 0.1.0 saves, prints and offers, for `tests/test_golden.py` to compare with.

Run it as ``python tests/golden/make.py``; it takes about two minutes, and replaces these beside it:

``inputs``
    Two short texts of built-in stories, a text of made-up tokens, two checkpoints of a tiny random model whose head
    was fitted to that text, and fixed embeddings.
``saved``
    One saved folder or more of every kind of result, side by side, so that each finds what it was made from.
``expected``
    Per saved folder: its kind, what it is as plain data, its summary, its ``repr``, and what verifying it checks.
``json``
    Per command: its arguments, its exit code and what it printed, as data where it printed JSON.
``interface.json``
    Every command with its options, every public name with its parameters or members, and the sections of the pages.

The files are those of 0.1.0 and are meant to stay: later versions must read them. Whoever adds a kind of result or a
command adds its files, and leaves the others as they are. Where a command prints something else on purpose, ``python
tests/golden/make.py --outputs NAME...`` makes the files of these names in ``json``, and the sections of their pages,
again from the same inputs and saved folders; without names, those of `MADE_AGAIN`. `tests/test_golden.py` says why.

Two things are left out, because each contains the code of plotly (5 MB). The page of the saved report is one line; its
record names a version of the code that does not exist, so that verifying it does not render the page again. The saved
findings have no figures. The command ``report`` writes a whole page, whose sections are in ``interface.json``.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import typer
from safetensors.numpy import save_file

import tokengeom as tg

HERE = Path(__file__).resolve().parent
NO_CODE = 64 * "0"
"""Hash of the code that wrote the saved report: no version has it."""
NOT_FOR_USERS = {"check_saved", "checks", "require_target"}
"""Members through which `tokengeom.verify` and the commands reach a result; a user calls those instead."""
FEW = ("--permutations", "20")
TEXT, MODELS = "inputs/text.txt", "inputs/models"
SETTINGS: dict[str, Any] = {"context": 2, "top_contexts": 40, "vocabulary": 25}
REPORT: dict[str, Any] = {
    "context": 2,
    "top_contexts": 30,
    "vocabulary": 20,
    "steps": 60,
    "dim": 8,
    "permutations": 20,
    "transformer": False,
}
MODEL_TEXT = ("--model", MODELS, "--text", "inputs/model-text.txt", "--context", "2", "--top-contexts", "30")

COMMANDS: dict[str, tuple[str, ...]] = {
    "count": (
        *("count", TEXT, "--context", "2", "--top-contexts", "40", "--vocabulary", "25"),
        *("--out", "made/statistics", "--pairs", "made/pairs", "--json"),
    ),
    "predict": ("predict", "saved/statistics", "--out", "made/features", "--json"),
    "predict-loss-gap": ("predict", "saved/statistics", "--loss-gap", "0.2", "--json"),
    "predict-loss-gap-gamma2": ("predict", "saved/statistics", "--loss-gap", "0.2", "--norm", "gamma2", "--json"),
    "predict-embeddings": ("predict", "saved/statistics", "--embeddings", "inputs/embeddings.safetensors", "--json"),
    "predict-proxy": ("predict", "saved/statistics", "--proxy", "--components", "8", "--json"),
    "train": ("train", "saved/statistics", "--dim", "12", "--steps", "300", "--out", "made/run", "--json"),
    "train-linear": (
        *("train", "saved/statistics", "--model", "linear", "--embeddings", "inputs/embeddings.safetensors"),
        *("--steps", "100", "--json"),
    ),
    "train-transformer": (
        *("train", "saved/statistics", "--model", "transformer", "--dim", "16", "--layers", "1", "--heads", "2"),
        *("--steps", "10", "--prediction", "saved/features", "--json"),
    ),
    "compare": ("compare", "saved/features", "saved/run-ufm", *FEW, "--out", "made/comparison", "--json"),
    "compare-limit": ("compare", "saved/features", "saved/run-ufm", "--no-at-loss", *FEW, "--json"),
    "compare-two-runs": ("compare", "saved/features", "saved/run-ufm", "saved/run-ufm-2", *FEW, "--json"),
    "compare-linear": ("compare", "saved/linear", "saved/run-linear", *FEW, "--json"),
    "compare-arrays": ("compare", "saved/features", "--arrays", "inputs/arrays.safetensors", *FEW, "--json"),
    "compare-model": ("compare", *MODEL_TEXT, *FEW, "--json"),
    "rivals": ("rivals", "saved/statistics", "saved/run-ufm", "--prediction", "saved/features", *FEW, "--json"),
    "rivals-model": ("rivals", *MODEL_TEXT, *FEW, "--json"),
    "neighbours": ("neighbours", "saved/features", "the", "--json"),
    "neighbours-run": ("neighbours", "saved/run-ufm", "the", "-k", "3", "--json"),
    "neighbours-model": ("neighbours", *MODEL_TEXT, "w5", "--json"),
    "explain": ("explain", "saved/features", "the", "--run", "saved/run-ufm", "--json"),
    "explain-context": ("explain", "saved/at-loss-gamma2", "CONTEXT", "--items", "contexts", "--json"),
    "explain-model": ("explain", *MODEL_TEXT, "w5", "--json"),
    "compare-texts": (
        *("compare-texts", "saved/statistics", "saved/statistics-other", *FEW),
        *("--out", "made/texts", "--json"),
    ),
    "compare-texts-loss-gap": (
        *("compare-texts", "saved/statistics", "saved/statistics-other", "--loss-gap", "0.3"),
        *("--norm", "gamma2", "--top", "3", *FEW, "--json"),
    ),
    "report": (
        *("report", TEXT, "--context", "2", "--top-contexts", "30", "--vocabulary", "20", "--steps", "60"),
        *("--dim", "8", *FEW, "--no-transformer", "--out", "made/report.html", "--json"),
    ),
    "report-model": (
        *("report", "inputs/model-text.txt", "--model", MODELS, "--context", "2", "--top-contexts", "30", *FEW),
        *("--out", "made/report.html", "--json"),
    ),
    "study": ("study", "linear-2d", "--no-save", "--json"),
    "study-fails": ("study", "linear-2d", "--set", "steps=100", "--no-save", "--json"),
    "study-list": ("study", "--list", "--json"),
    "verify": ("verify", "saved/features", "--json"),
    "verify-fails": ("verify", "saved/statistics", "--expect", NO_CODE, "--json"),
    "export": ("export", "saved/features", "--stats", "saved/statistics", "--out", "made/export", "--json"),
    "export-word2vec": (
        *("export", "saved/features", "--stats", "saved/statistics", "--format", "word2vec"),
        *("--items", "tokens", "--out", "made/export", "--json"),
    ),
    "stories": ("stories", "made-stories.txt", "--words", "300", "--json"),
    "cite": ("cite", "--json"),
    "cite-text": ("cite", "--format", "text"),
    "neighbours-text": ("neighbours", "saved/features", "the"),
    "explain-text": ("explain", "saved/features", "the"),
    "version": ("--version",),
    "wrong-arguments": ("compare", "saved/features"),
    "wrong-input": ("predict", "saved/nothing", "--json"),
    "wrong-kind": ("predict", "saved/run-ufm", "--json"),
}
"""Name of a golden file -> the command line, run in a folder with ``inputs`` and ``saved``; CONTEXT is a context."""


MADE_AGAIN = (
    *("compare", "compare-limit", "compare-two-runs", "compare-linear", "compare-arrays", "compare-model"),
    *("rivals", "rivals-model", "report", "report-model", "predict-loss-gap-gamma2", "compare-texts-loss-gap"),
    *("explain", "explain-context", "explain-model", "explain-text"),
)
"""Outputs that were made again in 0.2.0, which measures agreement on another scale and solves in the gamma_2 norm in
another way (`predict-loss-gap-gamma2` and `compare-texts-loss-gap` are within the proven gap of what they were), and
in which explanations have shares of the text's windows and say what they rest on."""
AS_BEFORE = {
    "compare-texts": ("--loss-gap", "0", "--no-halves"),
    "count": ("--tokenizer", "word"),
    "compare-texts-loss-gap": ("--no-halves",),
    "report": ("--no-unseen",),
}
"""Options with which a command does what it did by default, where the default is another one on purpose."""


def run(*arguments: object) -> dict[str, Any]:
    """Run one command line: its exit code, its output, as data where that is JSON, and its error message if any."""
    from command_line import run_here

    done = run_here(*arguments)
    # The version is written by `cite` and `--version`, and is another one after every release.
    text = done.out.replace(tg.__version__, "VERSION")
    output = json.loads(text) if text.startswith("{") else text
    # Progress and notes go to the standard error too, and contain durations.
    return {"exit_code": done.code, "output": output, "error": done.err if done.code == 2 else ""}


def describe(folder: Path) -> dict[str, Any]:
    """What a saved folder is to its reader: kind, plain data, sentences, and what verifying it finds."""
    verified = tg.verify(folder)
    found = {name: list(getattr(verified, name)) for name in ("checked", "failed", "not_checked")}
    kind = kind_of(folder)
    if kind == "tokengeom-export":
        return {"kind": kind, "verify": found}
    result = tg.load(folder)
    return {
        "kind": kind,
        "class": type(result).__name__,
        "to_dict": plain(result.to_dict()),
        "summary": result.summary(),
        "repr": repr(result),
        "verify": found,
    }


def kind_of(folder: Path) -> str:
    """Kind of a saved folder; of a run that is still training, that of its newest snapshot."""
    manifests = [folder / "manifest.json", *sorted(folder.glob("step-*/manifest.json"))]
    return str(read_json(next(path for path in manifests if path.is_file()))["format"])


def plain(content: Any) -> Any:
    """Data as it is after being written to JSON and read again."""
    return json.loads(json.dumps(content))


def read_json(path: Path) -> Any:
    """What a JSON file contains."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an object to a JSON file, with one line per entry: indenting would double the size of the files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in content.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def interface() -> dict[str, Any]:
    """Everything that a user can name, without the pages' sections: commands with options, names with members."""
    commands = {f"tokengeom {name}".strip(): parameters for name, parameters in _commands().items()}
    return commands | {f"tokengeom.{name}": _described(getattr(tg, name)) for name in tg.__all__}


def sections(page: Path) -> dict[str, str]:
    """Id -> title of the sections of a page; the first one has no title of this kind."""
    text = page.read_text(encoding="utf-8")
    titles = dict(re.findall(r'<h2><a href="#([^"]+)">(.*?)</a></h2>', text))
    return {name: titles.get(name, "") for name in re.findall(r'<section id="([^"]+)"', text)}


def _commands() -> dict[str, Any]:
    from command_line import application

    root = application()
    found = {name: _parameters_of(command) for name, command in sorted(root.commands.items())}
    return {"": _parameters_of(root), **found}


def _parameters_of(command: Any) -> dict[str, Any]:
    """Options and arguments of a command, by their first name."""
    context = typer.Context(command)
    return {
        parameter.opts[0]: {
            "kind": parameter.param_type_name,
            "names": [*parameter.opts, *parameter.secondary_opts],
            "default": str(parameter.default),
            "repeated": parameter.multiple or parameter.nargs == -1,
            "flag": getattr(parameter, "is_flag", False),
            "choices": [item.value for item in parameter.shell_complete(context, "")],
        }
        for parameter in command.params
        if "completion" not in parameter.opts[0]
    }


def _described(public: Any) -> dict[str, Any]:
    """Parameters of a function; members of a class, methods with their parameters."""
    if not inspect.isclass(public):
        return {"parameters": _signature(public)}
    names = [name for name in dir(public) if not name.startswith("_") and name not in NOT_FOR_USERS]
    members = {name: _member(public, name) for name in names}
    if is_dataclass(public):
        members |= {field.name: "attribute" for field in fields(public) if not field.name.startswith("_")}
    parameters = {} if issubclass(public, Exception) else {"parameters": _signature(public)}
    return {**parameters, "members": dict(sorted(members.items()))}


def _member(public: type, name: str) -> Any:
    member = inspect.getattr_static(public, name)
    if isinstance(member, staticmethod | classmethod) or inspect.isfunction(member):
        return _signature(getattr(public, name))
    return "attribute"


def _signature(function: Callable[..., object]) -> dict[str, str]:
    """Name of every parameter, in order -> its kind, and its default where it has one."""
    parameters = inspect.signature(function).parameters.values()
    return {
        parameter.name: parameter.kind.name.lower()
        + ("" if parameter.default is parameter.empty else f", default {parameter.default!r}")
        for parameter in parameters
    }


def make() -> None:
    """Make every golden file in a temporary folder, then put them beside this script."""
    with tempfile.TemporaryDirectory() as folder, _inside(Path(folder)):
        _make_inputs()
        _make_saved()
        _make_expected(path for path in Path("saved").iterdir() if path.is_dir())
        pages = _make_json(COMMANDS)
        write_json(Path("interface.json"), {**interface(), "exit_codes": exit_codes(), "pages": pages})
        for name in ("inputs", "saved", "expected", "json"):
            shutil.rmtree(HERE / name, ignore_errors=True)
            shutil.copytree(name, HERE / name)
        shutil.copy("interface.json", HERE / "interface.json")


def make_outputs(names: Iterable[str]) -> None:
    """Make the outputs of these commands again, from the inputs and saved folders that are here."""
    with tempfile.TemporaryDirectory() as folder, _inside(Path(folder)):
        for name in ("inputs", "saved"):
            shutil.copytree(HERE / name, name)
        pages = _make_json(names)
        shutil.copytree("json", HERE / "json", dirs_exist_ok=True)
    known = read_json(HERE / "interface.json")
    write_json(HERE / "interface.json", known | {"pages": known["pages"] | pages})


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Paths in the files are relative to this folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _make_inputs() -> None:
    from tiny_models import ROWS, build, fit_head, save, sentences

    Path("inputs").mkdir()
    for name, seed in (("text", 0), ("other", 1)):
        _make("stories", f"inputs/{name}.txt", "--words", 5000, "--seed", seed)
    Path("inputs/model-text.txt").write_text("\n\n".join(sentences()) + "\n", encoding="utf-8")
    for step, share in ((5, 0.3), (10, 1.0)):
        saved = save(build("llama", seed=step), Path(MODELS, f"checkpoint-{step}"))
        fit_head(saved, tg.count(sentences(), context=2, tokenizer=saved, vocabulary_size=ROWS), share)


def _make_saved() -> None:
    stats = tg.count(TEXT, **SETTINGS)
    stats.save("saved/statistics")
    H = np.random.default_rng(0).standard_normal((60, stats.m))
    save_file({"H": H}, "inputs/embeddings.safetensors")
    tg.count("inputs/other.txt", **SETTINGS).save("saved/statistics-other")
    tg.count(TEXT, context=1, pairs="saved/pairs")
    _make_predictions(stats)
    _make_runs(stats)
    _make_comparisons()
    _make_reports()
    _make_findings()
    tg.export("saved/features", "saved/export", stats="saved/statistics")


def _make_predictions(stats: tg.NextTokenStatistics) -> None:
    features: Any = tg.predict(stats)
    features.save("saved/features")
    for norm in ("nuclear", "gamma2"):
        tg.predict(stats, loss_gap=0.2, norm=norm).save(f"saved/at-loss-{norm}")
    tg.predict(stats, embeddings=_embeddings()).save("saved/linear")
    tg.predict_proxy(stats, components=8).save("saved/proxy")
    rng = np.random.default_rng(1)
    W, H = features.W, np.ascontiguousarray(features.H)
    noisy = {name: X + 0.1 * rng.standard_normal(X.shape) for name, X in (("W", W), ("H", H))}
    save_file(noisy, "inputs/arrays.safetensors")


def _embeddings() -> Any:
    from safetensors.numpy import load_file

    return load_file("inputs/embeddings.safetensors")["H"]


def _make_runs(stats: tg.NextTokenStatistics) -> None:
    for name, seed in (("run-ufm", 0), ("run-ufm-2", 1)):
        tg.train(stats, dim=24, steps=400, learning_rate=0.02, seed=seed).save(f"saved/{name}")
    linear: dict[str, Any] = {"model": "linear", "embeddings": _embeddings(), "steps": 400}
    tg.train(stats, **linear).save("saved/run-linear")
    # Through the command line, so that a manifest with its command is among the saved folders.
    network = ("--model", "transformer", "--dim", 16, "--layers", 1, "--heads", 2, "--steps", 30)
    _make("train", "saved/statistics", *network, "--out", "saved/run-transformer")
    tg.train(stats, dim=12, steps=50, checkpoint="saved/run-snapshots", checkpoint_seconds=0.0)


def _make_comparisons() -> None:
    few: dict[str, Any] = {"permutations": 20}
    features, runs = "saved/features", ["saved/run-ufm", "saved/run-ufm-2"]
    tg.compare(features, runs[0], at_loss=False, **few).save("saved/comparison-limit")
    tg.compare(features, runs[0], **few).save("saved/comparison-at-loss")
    tg.compare(features, runs, **few).save("saved/comparison-two-runs")
    tg.compare("saved/linear", "saved/run-linear", **few).save("saved/comparison-linear")
    tg.rivals("saved/statistics", runs[0], features, **few).save("saved/rivals")
    tg.compare_texts("saved/statistics", "saved/statistics-other", top=5, **few).save("saved/texts")
    _make("compare", *MODEL_TEXT, *FEW, "--out", "saved/checkpoints")


def _make_reports() -> None:
    """A report about a text, and from it and from one about a model the kinds that only reports save."""
    page = '<meta name="generator" content="tokengeom">The page is left out.\n'
    with (
        patch("tokengeom.page.report.render_page", lambda contents, progress: page),
        patch("tokengeom.page.report.code_hash", lambda: NO_CODE),
        patch("tokengeom.page.executor.code_hash", lambda names: NO_CODE),
    ):
        tg.report(TEXT, "saved/report.html", **REPORT)
        of_model: dict[str, Any] = {"model": MODELS, "context": 2, "top_contexts": 30, "permutations": 20}
        tg.report("inputs/model-text.txt", "made/model.html", **of_model)
    for name in ("choice", "path"):
        shutil.copytree(f"saved/report-results/{name}", f"saved/{name}")
    shutil.copytree("saved/report-results/statistics", "saved/statistics-report")
    stages = sorted(path.parent for path in Path("made/model-results").glob("*/manifest.json"))
    shutil.copytree(next(stage for stage in stages if kind_of(stage) == "tokengeom-model"), "saved/model")
    shutil.copytree("made/model-results/statistics", "saved/statistics-model")


def _make_findings() -> None:
    _make("study", "linear-2d", "--out", "made/findings")
    findings: Any = tg.load("made/findings")
    replace(findings, figures=()).save("saved/findings")


def _make_expected(folders: Iterable[Path]) -> None:
    for folder in sorted(folders):
        write_json(Path("expected", f"{folder.name}.json"), describe(folder))


def _make_json(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Run commands by the names of their files; returns the sections of the pages that were written."""
    context, pages = _context(), {}
    for name in names:
        shutil.rmtree("made", ignore_errors=True)
        typed = [context if argument == "CONTEXT" else argument for argument in COMMANDS[name]]
        write_json(Path("json", f"{name}.json"), {"command": typed, **run(*typed, *AS_BEFORE.get(name, ()))})
        if Path("made/report.html").exists():
            pages[name] = sections(Path("made/report.html"))
    return pages


def _context() -> str:
    """The name of the most frequent context."""
    frame = tg.load("saved/features").to_frame(items="contexts", stats=tg.load("saved/statistics"))  # type: ignore[call-arg]
    return str(frame.index[0])


def exit_codes() -> str:
    """The sentence on exit codes in the program's help."""
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", run("--help")["output"]).split())
    return text[text.index("Exit codes:") :].split(" Options")[0].strip()


def _make(*arguments: object) -> None:
    """Run a command that must succeed."""
    done = run(*arguments)
    if done["exit_code"]:
        raise RuntimeError(f"A command that makes golden files failed: {done['error']}")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    parser = argparse.ArgumentParser(description="Make the golden files.")
    parser.add_argument("--outputs", nargs="*", metavar="NAME", help="only the outputs of these commands")
    asked = parser.parse_args().outputs
    make() if asked is None else make_outputs(asked or MADE_AGAIN)
