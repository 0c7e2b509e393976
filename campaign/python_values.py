"""Values from Python: every keyword of every verb with values of another type, and arrays that are no plain numbers.

Clear are an error of tokengeom's own on one line, and a result where the value may be meant. Defects are exceptions of
other kinds, and a result from a truth value in place of a number, a mask, an imaginary part or counts that overflow.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from campaign.forks import Fork, Place
from campaign.material import Material
from campaign.tries import Try, excerpt, generator

CALLS: dict[str, tuple[tuple[object, ...], dict[str, object]]] = {
    "count": (("text.txt",), {"context": 1, "top_contexts": 12, "vocabulary": 10}),
    "predict": (("stats",), {}),
    "predict_proxy": (("stats",), {"components": 2}),
    "train": (("stats",), {"dim": 3, "steps": 3}),
    "simulate": (("stats", "run"), {"replicates": 1, "steps": 5}),
    "compare": (("prediction", "run"), {"permutations": 20}),
    "rivals": (("stats", "run"), {"permutations": 20, "explanations": "pmi"}),
    "compare_texts": (("stats", "other-stats"), {"permutations": 20}),
    "neighbours": (("prediction", "the"), {}),
    "explain": (("prediction", "the"), {}),
    "export": (("prediction", "new"), {"stats": "stats"}),
    "verify": (("stats",), {}),
    "load": (("stats",), {}),
    "load_arrays": (("arrays.safetensors",), {}),
    "cite": ((), {}),
}
"""Verbs, with arguments that they take."""
INPUTS = ("text.txt", "stats", "other-stats", "prediction", "run", "arrays.safetensors")
QUICK = ("predict", "predict_proxy", "train", "cite")
_NOT_TRIED = {"progress", "probes", "on_record", "tokenizer", "engine", "master", "device", "compiled"}
"""Objects with methods of their own, which Python itself misses; and what starts other programs or compilers."""
VALUES: dict[str, Callable[[], object]] = {
    "None": lambda: None,
    "text": lambda: "a",
    "an address": lambda: "s3://bucket/text.parquet",
    "True": lambda: True,
    "NumPy's True": lambda: np.True_,
    "a complex number": lambda: 1j,
    "bytes": lambda: b"a",
    "2**70": lambda: 2**70,
    "-1": lambda: -1,
    "NaN": lambda: float("nan"),
    "a list": lambda: [1],
    "a dictionary": dict,
    "an object": object,
    "a function": lambda: len,
    "an array": lambda: np.ones((2, 2)),
    "a masked number": lambda: np.ma.masked,
}
ARRAYS: dict[str, tuple[Callable[[], object], bool]] = {
    "masked": (lambda: np.ma.masked_array(np.arange(1.0, 7.0).reshape(3, 2), np.eye(3, 2, dtype=bool)), True),
    "complex": (lambda: np.ones((3, 2)) * (1 + 1j), True),
    "overflowing": (lambda: np.full((3, 2), 2**62), True),
    "overflowing, unsigned": (lambda: np.full((3, 2), 2**64 - 1, np.uint64), True),
    "negative": (lambda: -np.ones((3, 2)), True),
    "NaN": (lambda: np.full((3, 2), np.nan), True),
    "infinite": (lambda: np.full((3, 2), np.inf), True),
    "of text": (lambda: np.full((3, 2), "a"), True),
    "of objects": (lambda: np.full((3, 2), object()), True),
    "of three axes": (lambda: np.ones((2, 2, 2)), True),
    "empty": (lambda: np.ones((0, 0)), True),
    "ragged": (lambda: [[1], [1, 2]], True),
    "of truth values": (lambda: np.ones((3, 2), bool), False),
    "a matrix": (lambda: np.asmatrix(np.ones((3, 2))), False),
    "transposed": (lambda: np.ones((2, 3)).T, False),
    "of dates": (lambda: np.full((3, 2), "2020-01-01", "datetime64[D]"), True),
}
"""Arrays, and whether each must be refused wherever counts or probabilities are wanted."""


def _takers(tg: Any) -> dict[str, Callable[[Any], object]]:
    """Functions of one array; of W and H any real number may be meant."""
    stats = tg.NextTokenStatistics
    return {
        "counts": stats.from_counts,
        "probabilities": stats.from_probabilities,
        "weights of contexts": lambda given: stats.from_probabilities(np.ones((1, 3)), list(given)[:1] or given),
        "embeddings": lambda given: tg.predict("stats", embeddings=given),
        "W": lambda given: tg.compare("prediction", (given, np.ones((2, 2)))),
        "H": lambda given: tg.export((np.ones((2, 3)), given), "new"),
    }


_ALWAYS_REFUSED = (
    "masked",
    "complex",
    "NaN",
    "infinite",
    "of text",
    "of objects",
    "of three axes",
    "ragged",
    "of dates",
)


def _call(verb: str, parameter: str, value: object) -> object:
    import tokengeom as tg

    positional, named = CALLS[verb]
    function = getattr(tg, verb)
    names = list(inspect.signature(function).parameters)
    given: dict[str, object] = dict(zip(names, positional, strict=False)) | named | {parameter: value}
    return function(**given)


def judged_call(call: Callable[[], object], must_refuse: bool, material: Material, folder: Path) -> str | None:
    """Call in a child; returns what is wrong."""
    place = Place.inside(folder)
    for name in INPUTS:
        if material.path(name).exists():
            material.put(name, place.work / name)

    def action() -> int:
        from tokengeom.core.errors import TokengeomError

        warnings.simplefilter("ignore")
        try:
            call()
        except TokengeomError as error:
            sys.stdout.write(f"{error}\n")
            return 2
        except Exception as error:
            sys.stderr.write(f"{type(error).__name__}: {error}")
            return 3
        return 0

    ended = Fork().run(action, place)
    if ended.hung or ended.code not in (0, 2):
        return f"exit code {ended.code} after {ended.seconds:.0f} s: {excerpt(ended.err)}"
    if ended.code == 2 and len(ended.out.strip().splitlines()) != 1:
        return f"the error is not one line: {excerpt(ended.out)}"
    return "it is taken without an error" if must_refuse and ended.code == 0 else None


def _parameters(quick: bool) -> list[tuple[str, str, str]]:
    """Verbs with a parameter and its annotation."""
    import tokengeom as tg

    found = []
    for verb in QUICK if quick else CALLS:
        for name, one in inspect.signature(getattr(tg, verb)).parameters.items():
            if name not in _NOT_TRIED and one.kind is not inspect.Parameter.VAR_KEYWORD:
                found.append((verb, name, str(one.annotation)))
    return found


def python_tries(material: Material, seed: int, number: int, *, quick: bool = False) -> list[Try]:
    """``number`` keywords with values of another type, drawn from all of them; and every array."""
    import tokengeom as tg

    found = []
    for verb, name, annotation in _parameters(quick):
        kinds = annotation.replace("'", "").split(" | ")
        numbers = {"int", "float"} & set(kinds) and not {"bool", "object", "Any"} & set(kinds)
        for value, make in VALUES.items():
            refused = bool(numbers) and value in ("True", "NumPy's True", "a complex number", "text", "a list")
            run = partial(judged_call, partial(_made_call, verb, name, make), refused, material)
            found.append(Try(f"inputs/Python: {verb}/{name} is {value}", run))
    order = generator(seed, "inputs/Python").permutation(len(found))[:number]
    found = [found[k] for k in sorted(order)]
    for taker in [] if quick else _takers(tg):
        for value, (make, refused) in ARRAYS.items():
            plain = taker in ("counts", "probabilities", "weights of contexts")
            run = partial(
                judged_call,
                partial(_made_array, taker, make),
                refused and (plain or value in _ALWAYS_REFUSED),
                material,
            )
            found.append(Try(f"inputs/Python: arrays/{taker} {value}", run))
    return found


def _made_call(verb: str, name: str, make: Callable[[], object]) -> object:
    return _call(verb, name, make())


def _made_array(taker: str, make: Callable[[], object]) -> object:
    import tokengeom as tg

    return _takers(tg)[taker](make())
