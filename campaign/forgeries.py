"""Forged results, one claim each: found by `verify`, or listed as not checked; all found with the genuine hash.

The forger changes a claim, makes every hash and seal anew, and renders the page of a report again. Names outside the
folder, links and pipes in a manifest are refused.
"""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path

import numpy as np

from campaign.forging import (
    Edit,
    Forgery,
    as_tries,
    first,
    in_arrays,
    in_json,
    in_table,
    last,
    middle,
    scaled,
    several,
    swapped,
    with_statistics_hash,
)
from campaign.forks import Fork, Place
from campaign.manifests import (
    AS_RECORDED,
    COVERED,
    EARLIER_RECORDS,
    EXPORTED,
    NOT_COMPUTED,
    OF_A_PREDICTION,
    OF_MODELS,
    OF_THE_STATE,
    ONLY_RUNNING,
    ONLY_SOLVING,
    ONLY_TRAINING,
    RANDOM_STARTS,
    SETTINGS_OF_RUN,
    TEXT_NOT_KEPT,
    of_manifest,
)
from campaign.material import Material
from campaign.saved import MANIFEST, edit_manifest, fingerprint
from campaign.tries import NOTICED, Try, chosen, generator, wrong_end

SNAPSHOTS = {"trained": "run", "trained-2": "run-2", "network": "transformer-run"}
"""Names of newest snapshots, and the runs that they are taken from."""
RUNS = ("run", "transformer-run", "lstm-run")
SAVED = (
    *(name for name in COVERED if name not in SNAPSHOTS),
    *("at-loss-gamma2", "vectors", "arrays", "judged-results", "checkpoint-results"),
)
"""Saved results of every kind, except runs."""
MATERIAL = (*SAVED, *RUNS, "run-2", "other-stats")
QUICK_MATERIAL = ("stats", "page-results")


def of_comparison(stage: str, result: str, beside: tuple[str, ...] = (), covered: str | None = None) -> list[Forgery]:
    """Forgeries of a comparison: each kind of number, the verdict, its reasons and limitations."""
    file = "comparison.json"
    edits: dict[str, Edit] = {
        f"agreement: {field}": in_json(file, "agreements", "limit_context_agreement", field)
        for field in ("value", "low", "high", "null", "gaussian", "untrained", "reproducible", "corrected")
    }
    edits |= {
        "agreement of tokens": in_json(file, "agreements", "limit_token_agreement", "value"),
        "similarity": in_json(file, "agreements", "limit_context_similarity", "value"),
        "agreement of supports": in_json(file, "agreements", "limit_support_agreement", "value"),
        "collapse": in_json(file, "agreements", "collapse", "value"),
        "verdict": in_json(file, "verdict", change=lambda said: "agrees" if said != "agrees" else "does not agree"),
        "reasons": in_json(file, "reasons"),
        "limitations: one removed": in_json(file, "limitations", change=lambda known: known[1:]),
        "what nothing explains": in_json(file, "unexplained", 0, "correlation"),
        "efficiency": in_json(file, "disagreement", "efficiency"),
        "spread of the split": in_json(file, "disagreement", "split_contexts"),
        "rank": in_json(file, "circumstances", "rank"),
        "coverage": in_json(file, "circumstances", "coverage"),
        "gap of frequencies": in_json(file, "circumstances", "frequency_gap"),
        "loss gap": in_json(file, "loss_gap"),
        "explanation's agreement": in_json(file, "rows", 0, "agreement", "value"),
        "number of runs": in_json(file, "runs"),
        "seed of the intervals": in_json(file, "seed"),
    }
    return [Forgery(f"{stage or result}: {name}", result, edit, covered, beside, stage) for name, edit in edits.items()]


def of_rivals(stage: str, result: str, beside: tuple[str, ...] = (), covered: str | None = None) -> list[Forgery]:
    """Forgeries of a table of rivals: every kind of number in it."""
    file = "rivals.json"
    edits: dict[str, Edit] = {
        f"agreement: {field}": in_json(file, "rows", 0, "agreement", field)
        for field in ("value", "low", "high", "null", "gaussian", "untrained", "reproducible", "corrected")
    }
    edits |= {
        "similarity": in_json(file, "rows", 0, "similarity", "value"),
        "difference from the best": in_json(file, "rows", 0, "behind", "low"),
        "parameters": in_json(file, "rows", 0, "parameters"),
        "last row": in_json(file, "rows", -1, "agreement", "value"),
        "name of an explanation": in_json(file, "rows", 0, "rival"),
        "limitations": in_json(file, "limitations"),
        "number held out": in_json(file, "held_out"),
    }
    return [Forgery(f"{stage or result}: {name}", result, edit, covered, beside, stage) for name, edit in edits.items()]


def of_texts(beside: tuple[str, ...] = (), covered: str | None = None) -> list[Forgery]:
    """Forgeries of a comparison of two texts: every kind of number in it."""
    file = "texts.json"
    edits: dict[str, Edit] = {
        "agreement": in_json(file, "agreements", "context_agreement", "value"),
        "interval": in_json(file, "agreements", "token_agreement", "low", change=lambda low: low - 0.01),
        "movement of a context": in_json(file, "contexts", "moved", 0),
        "movement of a token": in_json(file, "tokens", "moved", -1),
        "tokens in both supports": in_json(file, "contexts", "listed", 0, "in_both"),
        "windows": in_json(file, "first", "windows", change=lambda known: known - 1),
        "pairs of one text": in_json(file, "second", "only_pairs"),
        "limitations": in_json(file, "limitations"),
    }
    return [Forgery(f"texts: {name}", "texts", edit, covered, beside) for name, edit in edits.items()]


def of_statistics(stage: str, result: str) -> list[Forgery]:
    """Forgeries of statistics: contexts, names, counts, and what follows from them."""
    arrays = "arrays.safetensors"
    counts = with_statistics_hash(in_arrays(arrays, "data", lambda data: data + (data == data.max())))
    found: dict[str, tuple[Edit, str | None]] = {
        "contexts permuted": (with_statistics_hash(in_arrays(arrays, "contexts", swapped)), TEXT_NOT_KEPT),
        "names of tokens swapped": (
            with_statistics_hash(in_table("vocabulary.parquet", "text", lambda x: [x[1], x[0], *x[2:]])),
            TEXT_NOT_KEPT,
        ),
        "counts": (counts, TEXT_NOT_KEPT),
        "entropy": (in_json(MANIFEST, "entropy_nats"), None),
        "coverage": (in_json(MANIFEST, "coverage"), None),
        "share left out": (in_json(MANIFEST, "left_out"), None),
        "one-hot share": (in_json(MANIFEST, "one_hot_share"), None),
        "distinct supports": (in_json(MANIFEST, "distinct_supports"), None),
        "completeness": (in_json(MANIFEST, "completeness", "new_pairs_error"), None),
        "effect of a cut": (in_json(MANIFEST, "cuts", -1, "after", "n"), None),
        "effect of the first cut": (in_json(MANIFEST, "cuts", 0, "before", "n"), TEXT_NOT_KEPT),
        "name of the text": (in_json(MANIFEST, "corpus", "sources"), TEXT_NOT_KEPT),
        "number of documents": (in_json(MANIFEST, "corpus", "documents"), TEXT_NOT_KEPT),
    }
    if not stage:
        # Where other tokens are merged into one, as in a report, every window is kept.
        windows = with_statistics_hash(in_arrays(arrays, "text_counts", lambda known: known + 1))
        found["windows of the text"] = (windows, TEXT_NOT_KEPT)
    return [Forgery(f"{stage or result}: {k}", result, edit, why, (), stage) for k, (edit, why) in found.items()]


def of_prediction(stage: str, result: str, beside: tuple[str, ...] = ()) -> list[Forgery]:
    """Forgeries of a prediction in the limit."""
    arrays = "features.safetensors"
    wrong_L = several(
        in_arrays(arrays, "L_merged", lambda L: 12.5 * L),
        # The honest certificate of a wrong answer: feasible, and far from optimal.
        in_json(MANIFEST, "certificate", "value", change=lambda value: 12.5 * value),
        in_json(MANIFEST, "certificate", "relative_gap", change=lambda _: 0.92),
    )
    found: dict[str, tuple[Edit, str | None]] = {
        "wrong L_mm with its honest gap of 0.92": (wrong_L, None),
        "L_mm": (in_arrays(arrays, "L_merged", scaled), None),
        "dual": (in_arrays(arrays, "dual_merged", scaled), None),
        "P": (in_arrays(arrays, "P_data", lambda P: P[::-1]), None if beside or stage else "statistics"),
        "weights of contexts": (in_arrays(arrays, "pi", swapped), None if beside or stage else "statistics"),
        "nuclear norm": (in_json(MANIFEST, "certificate", "value"), None),
        "gap": (in_json(MANIFEST, "certificate", "relative_gap", change=lambda _: 1e-12), None),
        "nuclear norm of the proxy": (in_json(MANIFEST, "proxy_nuclear_norm"), None),
        "rank": (in_json(MANIFEST, "rank"), None),
        "bound of the rank": (in_json(MANIFEST, "rank_bound"), None),
        "entropy": (in_json(MANIFEST, "entropy"), None),
        "whether the proxy is exact": (in_json(MANIFEST, "proxy_is_exact"), None),
        "sentence on the proxy": (in_json(MANIFEST, "proxy_sentence"), None),
        "spread of solutions": (in_json(MANIFEST, "spread", "logits"), RANDOM_STARTS),
        "margins that are determined": (in_arrays(arrays, "slack_bound", lambda bound: bound * 0), None),
        "warnings": (in_json(MANIFEST, "warnings"), "warnings"),
        "status of the solver": (in_json(MANIFEST, "status"), ONLY_SOLVING),
        "coverage": (in_json(MANIFEST, "coverage"), None if beside or stage else "statistics"),
    }
    return [Forgery(f"{stage or result}: {k}", result, edit, why, beside, stage) for k, (edit, why) in found.items()]


def in_coordinates(folder: Path) -> None:
    """The coordinates of W and H in another order, also in the state: logits, norms and loss stay what they are."""
    file = "arrays.safetensors"
    for name in ("result.0.W", "state.W", "state.K"):
        in_arrays(file, name, lambda x: x[:, ::-1])(folder)
    in_arrays(file, "result.0.H", lambda x: x[::-1])(folder)


def of_run(stage: str, result: str, beside: tuple[str, ...] = ()) -> list[Forgery]:
    """Forgeries of a run."""
    arrays, table = "arrays.safetensors", "trajectory.parquet"
    alone = None if beside or stage else "loss"
    own = ("results", 0)
    found: dict[str, tuple[Edit, str | None]] = {
        "W": (in_arrays(arrays, "result.0.W", scaled), None),
        "H": (in_arrays(arrays, "result.0.H", scaled), None),
        "W and H of another geometry": (in_arrays(arrays, "result.0.W", swapped), alone),
        "W and H in other coordinates, also in the state": (in_coordinates, ONLY_TRAINING),
        "state": (in_arrays(arrays, "state.W", scaled), None),
        "state that is not finite": (in_arrays(arrays, "state.K", lambda K: K * np.nan), None),
        "optimizer's memory": (
            several(*(in_arrays(arrays, name, scaled) for name in ("state.W_first", "state.K_second"))),
            OF_THE_STATE,
        ),
        "step": (in_json(MANIFEST, "step"), None),
        "start": (in_arrays(arrays, "result.0.start.W", scaled), None),
        "loss gap": (in_json(MANIFEST, *own, "loss_gap"), None),
        "loss gap, everywhere": (
            several(
                in_json(MANIFEST, *own, "loss_gap", change=lambda gap: gap / 2),
                in_table(table, "loss_gap", lambda x: [*x[:-1], x[-1] / 2]),
            ),
            alone,
        ),
        "entropy": (in_json(MANIFEST, *own, "entropy"), alone),
        "optimizer": (in_json(MANIFEST, *own, "settings", "optimizer"), None if stage else SETTINGS_OF_RUN),
        "seed": (in_json(MANIFEST, *own, "settings", "seed"), None if stage else SETTINGS_OF_RUN),
        "learning rate": (in_json(MANIFEST, *own, "settings", "learning_rate"), None if stage else SETTINGS_OF_RUN),
        "status": (in_json(MANIFEST, *own, "status", change=lambda _: "interrupted"), SETTINGS_OF_RUN),
        "steps": (in_json(MANIFEST, *own, "steps"), None),
        "seconds": (in_json(MANIFEST, *own, "seconds"), "seconds"),
        "statistics": (in_json(MANIFEST, *own, "statistics_hash", change=lambda _: "0" * 64), alone or "statistics"),
    }
    measured = ("loss_gap", "norm_W", "norm_H", "norm_logits", "margin")
    found |= {f"trajectory's last {name}": (in_table(table, name, last), None) for name in measured[:4]}
    found["trajectory's last margin"] = (in_table(table, "margin", last), alone)
    found |= {f"trajectory's earlier {name}": (in_table(table, name, middle), EARLIER_RECORDS) for name in measured}
    found["trajectory's first norm"] = (in_table(table, "norm_W", first), None)
    found["trajectory's steps"] = (in_table(table, "step", middle), EARLIER_RECORDS)
    if stage:
        # A report keeps the run without the state that training would continue from.
        found = {k: one for k, one in found.items() if "state" not in k and k not in ("optimizer's memory", "step")}
        compared = ("limit_context_agreement", "limit_token_agreement", "finite_distance", "collapse")
        found |= {f"trajectory's last {name}": (in_table(table, name, last), OF_A_PREDICTION) for name in compared}
    return [Forgery(f"{stage or result}: {k}", result, edit, why, beside, stage) for k, (edit, why) in found.items()]


def of_other_predictions() -> list[Forgery]:
    """Forgeries of the proxy, of predictions at a loss, and of the linear model."""
    stats = ("stats",)
    found: list[tuple[str, str, Edit, str | None]] = [
        ("proxy", "singular value", in_arrays("proxy.safetensors", "singular_values", scaled), None),
        ("proxy", "singular vectors", in_arrays("proxy.safetensors", "U", swapped), None),
        ("proxy", "share captured", in_json(MANIFEST, "captured"), None),
        ("at-loss", "logits", in_arrays("at-loss.safetensors", "L_merged", scaled), None),
        ("at-loss", "probabilities", in_arrays("at-loss.safetensors", "P_merged", swapped), None),
        ("at-loss", "strength lambda", in_json(MANIFEST, "lam"), None),
        ("at-loss", "loss gap", in_json(MANIFEST, "loss_gap"), None),
        ("at-loss", "entropy", in_json(MANIFEST, "entropy"), None),
        ("at-loss", "gap", in_json(MANIFEST, "certificate", "relative_gap", change=lambda _: 1e-12), None),
        ("at-loss", "norm", in_json(MANIFEST, "norm", change=lambda _: "gamma2"), None),
        ("at-loss", "status of the solver", in_json(MANIFEST, "status"), ONLY_SOLVING),
        ("at-loss-gamma2", "logits", in_arrays("at-loss.safetensors", "W_merged", scaled), None),
        ("at-loss-gamma2", "loss gap", in_json(MANIFEST, "loss_gap"), None),
        ("linear", "W_mm", in_arrays("linear.safetensors", "W_mm", scaled), None),
        ("linear", "W_star", in_arrays("linear.safetensors", "W_star", scaled), None),
        ("linear", "embeddings", in_arrays("linear.safetensors", "H", scaled), None),
        ("linear", "probabilities", in_arrays("linear.safetensors", "P", swapped), None),
        ("linear", "margin", in_json(MANIFEST, "margin"), None),
        ("linear", "loss floor", in_json(MANIFEST, "loss_floor"), None),
        ("linear", "sentence on separability", in_json(MANIFEST, "separable", "sentence"), None),
        ("linear", "names of tokens", in_json(MANIFEST, "token_names", change=lambda x: [x[1], x[0], *x[2:]]), None),
    ]
    return [Forgery(f"{result}: {name}", result, edit, why, stats) for result, name, edit, why in found]


def of_ties() -> list[Forgery]:
    """Forgeries of predictions and simulations whose contexts are tied, of networks, and of what was read of models."""
    stats, simulated, network = ("deep-stats",), "arrays.safetensors", "network"
    text = "statistics/arrays.safetensors"
    found: list[tuple[str, str, Edit, tuple[str, ...], str | None]] = [
        ("tied", "tokens", in_arrays("tied.safetensors", "W", scaled), stats, None),
        ("tied", "features", in_arrays("tied.safetensors", "A", scaled), stats, None),
        ("tied", "which features contexts have", in_arrays("tied.safetensors", "Phi_data", scaled), stats, None),
        ("tied", "probabilities", in_arrays("tied.safetensors", "P_data", lambda P: P[::-1]), stats, None),
        ("tied", "weights of contexts", in_arrays("tied.safetensors", "pi", lambda pi: pi[::-1]), stats, None),
        ("placing", "tokens", in_arrays(simulated, "heads", scaled), stats, None),
        ("placing", "features", in_arrays(simulated, "A", scaled), stats, None),
        ("placing", "contexts", in_arrays(simulated, "contexts", swapped), stats, None),
        (network, "W", in_arrays("arrays.safetensors", "result.0.W", scaled), stats, None),
        (network, "H", in_arrays("arrays.safetensors", "result.0.H", swapped), stats, None),
        (network, "weights", in_arrays("arrays.safetensors", "state.theta", scaled), stats, None),
        (network, "optimizer's memory", in_arrays("arrays.safetensors", "state.second", scaled), stats, OF_THE_STATE),
        (network, "loss gap", in_json(MANIFEST, "results", 0, "loss_gap"), stats, None),
        ("checkpoint", "W of a model", in_arrays("checkpoints.safetensors", "0.W", scaled), (), OF_MODELS),
        ("checkpoint", "counts", in_arrays(text, "data", lambda data: data + (data == data.max())), (), None),
    ]
    return [Forgery(f"{result}: {name}", result, edit, why, beside) for result, name, edit, beside, why in found]


def of_checkpoint_report() -> list[Forgery]:
    """Forgeries of a report about a checkpoint."""
    report = "checkpoint-results"
    found = [Forgery("model-1: W", report, in_arrays("model.safetensors", "W", scaled), OF_MODELS, (), "model-1")]
    found += of_comparison("comparison-model-1", report)
    found += of_rivals("rivals-model-1", report)
    return [*found, *of_statistics("statistics", report)]


def of_report(report: str = "judged-results") -> list[Forgery]:
    """Forgeries of a report: its own record, its page, and every stage."""
    page = ("page",)
    record: dict[str, tuple[Edit, str | None]] = {
        "title": (in_json(MANIFEST, *page, "inputs", "title"), AS_RECORDED),
        "what is missing": (in_json(MANIFEST, *page, "inputs", "missing"), AS_RECORDED),
        "versions": (in_json(MANIFEST, *page, "provenance", "versions", "numpy"), AS_RECORDED),
        "machine": (in_json(MANIFEST, *page, "provenance", "machine", "system"), AS_RECORDED),
        "hash of the text": (in_json(MANIFEST, *page, "provenance", "hashes", "text"), None),
        "seconds": (in_json(MANIFEST, *page, "seconds"), AS_RECORDED),
        "seed": (in_json(MANIFEST, *page, "provenance", "seeds", "seed"), AS_RECORDED),
        "settings": (in_json(MANIFEST, *page, "provenance", "settings", "steps"), AS_RECORDED),
    }
    found = [Forgery(f"report: {name}", report, edit, why) for name, (edit, why) in record.items()]
    choice: dict[str, tuple[Edit, str | None]] = {
        "sentences": (in_json("choice.json", "reasons"), "choice"),
        "settings": (in_json("choice.json", "settings", "context"), "choice"),
    }
    found += [Forgery(f"choice: {name}", report, edit, why, (), "choice") for name, (edit, why) in choice.items()]
    at_losses = (("at-loss-ufm-nuclear", "L_merged"), ("at-loss-ufm-gamma2", "W_merged"))
    for stage, array in at_losses if report == "judged-results" else ():
        at_loss: dict[str, Edit] = {
            "logits": in_arrays("at-loss.safetensors", array, scaled),
            "loss gap": in_json(MANIFEST, "loss_gap"),
            "strength lambda": in_json(MANIFEST, "lam"),
        }
        found += [Forgery(f"{stage}: {name}", report, edit, None, (), stage) for name, edit in at_loss.items()]
    path: dict[str, Edit] = {
        "tokens": in_arrays("path.safetensors", "1.W", scaled),
        "dual": in_arrays("path.safetensors", "1.change", scaled),
        "loss gap": in_json(MANIFEST, "points", 1, "loss_gap"),
        "lower bound": in_json(MANIFEST, "points", 1, "certificate", "bound"),
    }
    found += [Forgery(f"path: {name}", report, edit, None, (), "path") for name, edit in path.items()]
    found += of_comparison("comparison-ufm", report)
    found += of_rivals("rivals-ufm", report)
    found += of_statistics("statistics", report)
    found += of_prediction("prediction", report)
    found += of_run("run-ufm", report)
    return found


def of_results() -> list[Forgery]:
    """Forgeries of single results, alone and with the results that they were made from beside them."""
    beside = ("stats", "prediction", "trained", "trained-2")
    found = [
        *of_statistics("", "stats"),
        *of_prediction("", "prediction"),
        *of_run("", "trained"),
        *of_other_predictions(),
        *of_ties(),
        *of_comparison("", "comparison", covered=NOT_COMPUTED),
        *of_rivals("", "rivals", covered=NOT_COMPUTED),
        *of_texts(covered=NOT_COMPUTED),
        *of_texts(("stats", "other-stats")),
        *(one for one in of_comparison("", "comparison", beside) if "agreement" in one.name or "verdict" in one.name),
        *(one for one in of_rivals("", "rivals", beside) if "agreement" in one.name),
        *(one for one in of_prediction("", "prediction", ("stats",)) if one.name.endswith((": P", "coverage"))),
        *(one for one in of_run("", "trained", ("stats",)) if "loss" in one.name or "another" in one.name),
        Forgery("exported: a number", "exported", _in_exported, EXPORTED),
        Forgery("findings: a value", "findings", in_json(MANIFEST, "checks", 0, "value"), ONLY_RUNNING),
        Forgery("findings: the sentence", "findings", in_json(MANIFEST, "sentence"), ONLY_RUNNING),
        Forgery("findings: passed", "findings", in_json(MANIFEST, "passed"), None),
    ]
    return [_named_apart(one) for one in found]


def flipped_once(name: str, file: str, material: Material, folder: Path) -> str | None:
    """A byte of a result is flipped, two folders below its statistics: `verify` of the whole must notice."""
    place, inside = Place.inside(folder), Path("experiment", "deep")
    material.put("stats", place.work / "stats")
    for one in (name, name.replace("-results", ".html")):
        if material.path(one).exists():
            material.put(one, place.work / inside / one)
    path = place.work / inside / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    ended = Fork()(["verify", "."], place)
    return wrong_end(ended, (1, 2)) or (NOTICED if ended.code else "it passes")


def flipped_tries(material: Material) -> list[Try]:
    """A flipped byte in every file of every kind of saved result, runs and the pages of reports included."""
    found = []
    for name in dict.fromkeys((*SAVED, *RUNS)):
        files = [f"{name}/{file}" for file in sorted(fingerprint(material.path(name)))]
        files += [page] if material.path(page := name.replace("-results", ".html")).is_file() else []
        for file in files:
            run = partial(flipped_once, name, file, material)
            found.append(Try(f"forgeries/flipped in a folder/{name}: {file}", run))
    return found


def _named_apart(forgery: Forgery) -> Forgery:
    if not forgery.beside:
        return forgery
    name = f"{forgery.name}, beside {', '.join(forgery.beside)}"
    return Forgery(name, forgery.result, forgery.edit, forgery.covered, forgery.beside, forgery.stage)


def _in_exported(folder: Path) -> None:
    path = folder / "tokens_vectors.tsv"
    path.write_text(f"0.5{path.read_text()[3:]}")


# Manifests that lead out of their folder


def _names(name: str) -> Edit:
    def edit(folder: Path) -> None:
        secret = folder.parent / "secret"
        secret.write_text("secret")
        target = str(secret.absolute()) if name == "absolute" else name
        edit_manifest(folder, lambda known: known["files"].update({target: _hash(secret)}))

    return edit


def _link(folder: Path) -> None:
    kept = folder.parent / "elsewhere"
    (folder / "arrays.safetensors").rename(kept)
    (folder / "arrays.safetensors").symlink_to(kept.absolute())


def _pipe(folder: Path) -> None:
    (folder / "arrays.safetensors").unlink()
    os.mkfifo(folder / "arrays.safetensors")


def _linked_folder(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.mkdir()
    for path in folder.with_name("elsewhere").iterdir():
        (folder / path.name).symlink_to(path.absolute())


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


OUTSIDE: dict[str, Edit] = {
    "../secret": _names("../secret"),
    "an absolute name": _names("absolute"),
    "a name with ./": _names("./../secret"),
    "a link to a file": _link,
    "a pipe": _pipe,
    "links to every file": _linked_folder,
}


def refused_once(edit: Edit, material: Material, folder: Path) -> str | None:
    """A manifest that leads out of its folder must be refused, whoever sealed it."""
    place = Place.inside(folder)
    target = material.put("stats", place.work / "stats")
    edit(target)
    if not any(path.is_symlink() or path.is_fifo() for path in target.iterdir()):
        _seal(target)
    for command in (["verify", "stats"], ["predict", "stats", "--proxy", "--components", "2"]):
        ended = Fork()(command, place)
        wrong = wrong_end(ended, (1, 2) if command[0] == "verify" else (2,))
        if wrong:
            return f"{' '.join(command)}: {wrong}"
    return None


def _seal(folder: Path) -> None:
    from tokengeom.results.manifests import as_json, read_json, sealed

    (folder / MANIFEST).write_bytes(as_json(sealed(read_json(folder / MANIFEST))))


def tries(material: Material, seed: int, number: int, folder: Path, *, quick: bool = False) -> list[Try]:
    """Every forgery; of one small report where it must be quick, and then only ``number`` of them."""
    refused = [Try(f"forgeries/outside/{k}", partial(refused_once, edit, material)) for k, edit in OUTSIDE.items()]
    if quick:
        every = of_report("page-results")
        return (
            as_tries([every[k] for k in chosen(number, len(every), generator(seed, "forgeries"))], material) + refused
        )
    for name, run in SNAPSHOTS.items():
        material.put(
            max(material.path(run).glob(f"step-*/{MANIFEST}")).parent.relative_to(material.folder).as_posix(),
            material.path(name),
        )
    swept = [one for name in COVERED for one in of_manifest(name, material.path(name))]
    every = [*of_results(), *of_report(), *of_checkpoint_report(), *swept]
    return [*refused, *flipped_tries(material), *as_tries(every, material)]
