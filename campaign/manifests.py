"""Every value of every manifest, forged one by one: found by `verify`, or among what it does not check."""

from __future__ import annotations

import json
from pathlib import Path

from campaign.forging import Forgery, in_json, leaves
from campaign.saved import MANIFEST

# What verify says that it does not check, and why.
TEXT_NOT_KEPT = "those of the text: the text is not kept"
ONLY_SOLVING = "only solving again would show them"
EARLIER_RECORDS = "records before the last one"
SETTINGS_OF_RUN = "the settings, except the dimension"
OF_A_PREDICTION = "numbers in the trajectory that compare with a prediction"
AS_RECORDED = "they are as recorded when it was made"
NOT_COMPUTED = "not computed again"
EXPORTED = "the exported numbers"
RANDOM_STARTS = "how far solutions from random starts are apart"
ONLY_RUNNING = "only running the study again would show them"
ONLY_TRAINING = "that training with these settings gives W, H and the state"
OF_THE_STATE = "the optimizer's memory, the state of generators, and the hash of the labels"
LIKE_SETTINGS = "that replicates were trained as the settings say, their steps, and seconds"
OF_MODELS = "W, H and losses of the checkpoints"
WITHOUT_STATISTICS = "that the prediction is for its statistics"

RECORDED = dict.fromkeys(("tokengeom", "machine", "command"), "the command, the machine and the version")
"""Beginnings of places in every manifest -> what covers them where they are not found."""
OF_THE_TEXT = {"window.pad": "start markers", "cuts": "what the cuts are called", "corpus": "the text is not kept"}
OF_RUNS = {
    "results.0.settings": SETTINGS_OF_RUN,
    "results.0.entropy": "loss, margin and entropy",
    **dict.fromkeys(("results.0.seconds", "seconds"), "seconds"),
    "data": OF_THE_STATE,
}
OF_SIMULATIONS = {
    **dict.fromkeys(("reliability", "standard_error", "wanted", "loss_gaps"), "how alike replicates are"),
    **dict.fromkeys(("seconds", "steps", "settings"), LIKE_SETTINGS),
}
COVERED: dict[str, dict[str, str]] = {
    "stats": {**OF_THE_TEXT, "cuts.0.before": TEXT_NOT_KEPT},
    "pairs": {**OF_THE_TEXT, "ordered": "the text is not kept"},
    "prediction": {
        "spread": RANDOM_STARTS,
        **dict.fromkeys(("status", "seconds", "tolerance"), ONLY_SOLVING),
        "coverage": "statistics",
    },
    "proxy": {"captured": WITHOUT_STATISTICS},
    "at-loss": dict.fromkeys(("status", "seconds"), ONLY_SOLVING),
    "linear": dict.fromkeys(("context_names", "token_names"), WITHOUT_STATISTICS),
    "tied": {**dict.fromkeys(("status", "seconds"), ONLY_SOLVING), "base": WITHOUT_STATISTICS},
    "checkpoint": {
        **{f"statistics.{name}": one for name, one in OF_THE_TEXT.items()},
        "statistics.cuts.0.before": TEXT_NOT_KEPT,
    },
    "trained": OF_RUNS,
    "network": OF_RUNS,
    "simulation": OF_SIMULATIONS,
    "placing": OF_SIMULATIONS,
    "comparison": {},
    "tied-comparison": {},
    "rivals": {},
    "texts": {},
    "exported": dict.fromkeys(("format_version", "files_for", "items", "dimension", "statistics_hash"), EXPORTED),
    "findings": {
        **dict.fromkeys(("study", "question", "recipe", "checks"), "ranges, question and recipe"),
        "sentence": ONLY_RUNNING,
    },
}
"""The same for the manifest of each kind; what is not here must be found."""


def of_manifest(result: str, folder: Path) -> list[Forgery]:
    """One forgery per value of a manifest; of the settings of a command, the first and the last."""
    every = [keys for keys in leaves(json.loads((folder / MANIFEST).read_bytes())) if keys[0] not in ("files", "seal")]
    typed = [keys for keys in every if keys[:2] == ("command", "settings")]
    found = []
    for keys in (one for one in every if one not in typed[1:-1]):
        name = ".".join(map(str, keys))
        known = {**RECORDED, **COVERED[result]}
        by_length = sorted(known, key=len, reverse=True)
        covered = next((known[one] for one in by_length if name == one or name.startswith(f"{one}.")), None)
        found.append(Forgery(f"{result}: manifest: {name}", result, in_json(MANIFEST, *keys), covered))
    return found
