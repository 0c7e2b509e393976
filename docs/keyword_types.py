"""Write ``src/tokengeom/keywords.pyi``: settings as typed dictionaries, for editors and type checkers. By ``make map``.

A verb that takes settings says ``**settings: Unpack[CountKeywords]``: an editor completes them, and a type checker
refuses ``tg.count("text.txt", contxt=3)``. Names and types are those of the fields of the settings dataclasses.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from tokengeom.ask.verbs import AskSettings, ExportSettings
from tokengeom.comparison.inputs import CompareSettings
from tokengeom.comparison.rivals import RivalSettings
from tokengeom.comparison.text_comparison import CompareTextsSettings
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.page.settings import ReportSettings, SeveralModelsSettings, TiesSettings
from tokengeom.statistics.count import CountSettings
from tokengeom.statistics.cuts import CutSettings
from tokengeom.statistics.engines import EngineSettings
from tokengeom.theory.at_loss import LossSettings
from tokengeom.theory.predict import PredictSettings
from tokengeom.theory.proxy import ProxySettings
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.simulate import SimulationSettings

FILE = Path(__file__).parents[1] / "src" / "tokengeom" / "keywords.pyi"
PAIRS, MODELS = (CountSettings, ReadingSettings, EngineSettings), (SeveralModelsSettings, ReadingSettings)
SETTINGS: dict[str, tuple[type[Any], ...]] = {
    "CountKeywords": (*PAIRS, CutSettings),
    "PairKeywords": PAIRS,
    "CutKeywords": (CutSettings,),
    "LossKeywords": (LossSettings,),
    "PredictKeywords": (PredictSettings,),
    "ProxyKeywords": (ProxySettings,),
    "TrainKeywords": (TrainingSettings,),
    "SimulateKeywords": (SimulationSettings,),
    "CompareKeywords": (CompareSettings,),
    "RivalKeywords": (RivalSettings,),
    "CompareTextsKeywords": (CompareTextsSettings,),
    "CompareModelsKeywords": (*MODELS, TiesSettings, CompareSettings),
    "ModelRivalsKeywords": (*MODELS, RivalSettings),
    "AskKeywords": (AskSettings,),
    "ExportKeywords": (ExportSettings,),
    "ReportKeywords": (ReportSettings, ReadingSettings),
}
"""Keywords by their name, and the settings that they are of."""
OMITTED = {"TrainKeywords": {"model"}}
"""What verbs take by position too."""


def module_of(name: str, module: str) -> str:
    """The module that defines a name which another one uses in annotations; empty for Python's own."""
    tree = ast.parse(Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return str(node.module)
    return module if name in vars(sys.modules[module]) else ""


def entries(kinds: tuple[type[Any], ...], omitted: set[str]) -> Iterator[tuple[str, str]]:
    """Name and type of each setting, the type with the modules of its names."""
    for kind in kinds:
        for field in fields(kind):
            owner = next(base.__module__ for base in kind.__mro__ if field.name in base.__annotations__)

            def placed(match: re.Match[str], owner: str = owner) -> str:
                module = module_of(match[0], owner)
                return f"{module}.{match[0]}" if module else match[0]

            if field.name not in omitted:
                yield field.name, re.sub(r"[A-Za-z]\w*", placed, str(field.type))


def keyword_types() -> str:
    """The whole stub."""
    parts, modules = [], set[str]()
    for name, kinds in SETTINGS.items():
        known = dict(entries(kinds, OMITTED.get(name, set())))
        modules |= {match for kind in known.values() for match in re.findall(r"([\w.]+)\.\w+", kind)}
        parts += ["", f"class {name}(TypedDict, total=False):", *(f"    {key}: {kind}" for key, kind in known.items())]
    head = ['"""Settings as typed dictionaries; written by docs/keyword_types.py, as that file explains."""', ""]
    own = [f"import {module}" for module in sorted(modules) if module.startswith("tokengeom.")]
    others = [f"import {module}" for module in sorted(modules) if not module.startswith("tokengeom.")]
    return "\n".join([*head, *others, "from typing import TypedDict", "", *own, *parts, ""])


if __name__ == "__main__":
    FILE.write_text(keyword_types(), encoding="utf-8")
