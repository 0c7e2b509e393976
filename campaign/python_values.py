"""Values from Python: every argument of every public function with values of another type, and awkward arrays.

So too every argument of the methods in which results answer questions.

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

_REPORT: dict[str, object] = {"context": 1, "top_contexts": 12, "vocabulary": 10, "steps": 8, "dim": 6}
_REPORT |= {"permutations": 20, "transformer": False}
CALLS: dict[str, tuple[tuple[object, ...], dict[str, object]]] = {
    "count": (("text.txt",), {"context": 1, "top_contexts": 12, "vocabulary": 10}),
    "predict": (("stats",), {}),
    "predict_proxy": (("stats",), {"components": 2}),
    "report": (("text.txt", "new.html"), _REPORT),
    "estimate": (("predict", "stats"), {}),
    "train": (("stats",), {"dim": 3, "steps": 3}),
    "kernel_features": (("deep-stats",), {"dim": 8, "layers": 1, "heads": 2, "starts": 1}),
    "simulate": (("stats", "run"), {"replicates": 1, "steps": 5}),
    "compare": (("prediction", "run"), {"permutations": 20}),
    "rivals": (("stats", "run"), {"permutations": 20, "explanations": "pmi"}),
    "compare_texts": (("stats", "other-stats"), {"permutations": 20}),
    "compare_models": (("model", "words.txt"), {"context": 1, "top_contexts": 8, "permutations": 20}),
    "load_checkpoint": (("model",), {}),
    "language_model": ((None,), {}),
    "Monitor": (("prediction",), {}),
    "place": (("tied", ["the ball"]), {"stats": "deep-stats"}),
    "neighbours": (("prediction", "the"), {}),
    "explain": (("prediction", "the"), {}),
    "export": (("prediction", "new"), {"stats": "stats"}),
    "verify": (("stats",), {}),
    "load": (("stats",), {}),
    "load_arrays": (("arrays.safetensors",), {}),
    "cite": ((), {}),
}
"""Arguments for every function of `tokengeom.__all__`; a function that is missing here stops the campaign."""
METHODS: dict[str, dict[str, tuple[object, ...]]] = {"tokenizer": {"encode": ("the ball",)}}
"""Methods of saved results, and of what they hold, with arguments that they take."""
_HELD: dict[str, Callable[[Any], object]] = {
    "tokenizer": lambda tg: tg.load("stats").tokenizer,
    "placed": lambda tg: tg.place("tied", ["the ball"], stats="deep-stats"),
    "features": lambda tg: tg.load("tied").features,
}
INPUTS = (
    "text.txt",
    "words.txt",
    "deep-stats",
    "other-stats",
    "model",
    "arrays.safetensors",
    "stats",
    "prediction",
    "run",
    "tied",
    *METHODS,
)
QUICK = ("predict", "predict_proxy", "train", "cite")
_NOT_TRIED = {"progress", "probes", "on_record", "tokenizer", "engine", "master", "device", "compiled", "preset"}
"""Objects with methods of their own, which Python itself misses; and what starts other programs or long work."""
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
    "of truth values": (lambda: np.ones((3, 2), bool), True),
    "a matrix": (lambda: np.asmatrix(np.ones((3, 2))), False),
    "huge": (lambda: np.broadcast_to(np.ones(()), (2**20, 2**20)), True),
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
    "of truth values",
)


def _call(owner: str, name: str, parameter: str, value: object) -> object:
    """Call a function of tokengeom, or a method of something, with one argument set."""
    import tokengeom as tg

    if owner:
        holder = _HELD.get(owner, lambda tg: tg.load(owner))(tg)
        function, positional, named = getattr(holder, name), METHODS[owner][name], {}
    else:
        function, (positional, named) = getattr(tg, name), CALLS[name]
    names = list(inspect.signature(function).parameters)
    given = [value if known == parameter else one for known, one in zip(names, positional, strict=False)]
    more = named if parameter in names[: len(positional)] else named | {parameter: value}
    return function(*given, *positional[len(given) :], **more)


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


def _parameters(quick: bool) -> list[tuple[str, str, str, str]]:
    """What is called, whose method it is, and a parameter with its annotation."""
    import tokengeom as tg

    public = [name for name in tg.__all__ if inspect.isfunction(getattr(tg, name))]
    callables = [("", name, getattr(tg, name)) for name in (QUICK if quick else (*public, "Monitor"))]
    for owner, methods in {} if quick else METHODS.items():
        callables += [(owner, name, _method(owner, name)) for name in methods]
    found = []
    for owner, function, known in callables:
        for name, one in inspect.signature(known).parameters.items():
            if name not in (*_NOT_TRIED, "self") and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
                found.append((owner, function, name, str(one.annotation)))
    return found


def _method(owner: str, name: str) -> Any:
    """A method by the class of its owner, which is not made here: nothing is computed in this process."""
    import tokengeom as tg
    from tokengeom.corpus.tokenizers import AbstractTokenizer

    classes: dict[str, Any] = {
        "stats": tg.NextTokenStatistics,
        "tokenizer": AbstractTokenizer,
        "prediction": tg.FeaturePrediction,
        "at-loss": tg.LossPrediction,
        "tied": tg.TiedPrediction,
        "placing": tg.Simulation,
        "placed": tg.Placed,
        "features": tg.ContextFeatures,
        "proxy": tg.ProxyPrediction,
        "run": tg.Run,
        "rivals": tg.Rivals,
        "texts": tg.TextComparison,
    }
    return getattr(classes[owner], name)


def python_tries(material: Material, seed: int, number: int, *, quick: bool = False) -> list[Try]:
    """``number`` arguments with values of another type, drawn from all of them; and every array."""
    import tokengeom as tg

    found = []
    for owner, function, name, annotation in _parameters(quick):
        kinds = annotation.replace("'", "").split(" | ")
        numbers = {"int", "float"} & set(kinds) and not {"bool", "object", "Any"} & set(kinds)
        for value, make in VALUES.items():
            not_meant = ("True", "NumPy's True", "a complex number", *(() if "str" in kinds else ("text",)), "a list")
            run = partial(
                judged_call,
                partial(_made_call, owner, function, name, make),
                bool(numbers) and value in not_meant,
                material,
            )
            called = f"{owner}.{function}" if owner else function
            found.append(Try(f"inputs/Python: {called}/{name} is {value}", run))
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


def _made_call(owner: str, function: str, name: str, make: Callable[[], object]) -> object:
    return _call(owner, function, name, make())


def _made_array(taker: str, make: Callable[[], object]) -> object:
    import tokengeom as tg

    return _takers(tg)[taker](make())
