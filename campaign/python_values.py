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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

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


@dataclass(frozen=True)
class Owner:
    """Something in which methods answer questions.

    where
        of         name of its class
        make       makes it, from the package
        methods    names of methods, with arguments that they take, or functions that make these from their owner
        stats      name of the statistics that methods are given as ``stats``, where they take them
    """

    of: str
    make: Callable[[Any], Any]
    methods: dict[str, tuple[object, ...]]
    stats: str = ""


def _saved(name: str) -> Callable[[Any], Any]:
    return lambda tg: tg.load(name)


def _loaded(name: str) -> Any:
    import tokengeom as tg

    return tg.load(name)


_ASKED: dict[str, tuple[object, ...]] = {
    "neighbours": ("the",),
    "explain": ("the",),
    "pairs": (3,),
    "to_frame": ("tokens",),
}
"""Methods of everything that has W and H."""
_PLACES = _ASKED | {"neighbours": ("the ball",), "explain": ("the ball",), "place": (["the ball"],)}
_STATISTICS: dict[str, tuple[object, ...]] = {
    "next_tokens": ("the", 3),
    "limited": (),
    "most_frequent": (3,),
    "equals": (lambda own: own,),
    "save": ("new",),
}
_PLACED: dict[str, tuple[object, ...]] = {
    "is_predicted": (0,),
    "next_tokens": (0, 3),
    "neighbours": (0, 3),
    "shared_features": (0,),
    "why": (1, 0),
    "sentence": (0,),
    "to_dict": (3,),
    "to_frame": (3,),
}
OWNERS: dict[str, Owner] = {
    "stats": Owner("NextTokenStatistics", _saved("stats"), _STATISTICS),
    "tokenizer": Owner("AbstractTokenizer", lambda tg: tg.load("stats").tokenizer, {"encode": ("the ball",)}),
    "prediction": Owner(
        "FeaturePrediction",
        _saved("prediction"),
        _ASKED | {"at": (0.3,), "path": ([0.3],), "gamma2_limit": (), "suffices": (3,)},
        "stats",
    ),
    "at-loss": Owner("LossPrediction", _saved("at-loss"), _ASKED | {"efficiency": (lambda own: own.L,)}, "stats"),
    "tied": Owner("TiedPrediction", _saved("tied"), _PLACES, "deep-stats"),
    "placing": Owner("Simulation", _saved("placing"), _PLACES, "deep-stats"),
    "placed": Owner("Placed", lambda tg: tg.place("tied", ["the ball"], stats="deep-stats"), _PLACED),
    "features": Owner("ContextFeatures", lambda tg: tg.load("tied").features, {"of": ([[0, 1]],)}),
    "proxy": Owner("ProxyPrediction", _saved("proxy"), _ASKED, "stats"),
    "linear": Owner("LinearPrediction", _saved("linear"), {"finite_part": (lambda own: own.W_mm,)}),
    "run": Owner("Run", _saved("run"), _ASKED, "stats"),
    "trajectory": Owner("Trajectory", lambda tg: tg.load("run").trajectory, {"last": ("loss_gap",)}),
    "rivals": Owner("Rivals", _saved("rivals"), {"of": ("contexts",)}),
    "texts": Owner("TextComparison", _saved("texts"), {"to_frame": ("contexts",)}),
}
"""Results in which methods answer questions, and what these hold."""
INPUTS = tuple(
    dict.fromkeys(("text.txt", "words.txt", "other-stats", "deep-stats", "model", "arrays.safetensors", *OWNERS))
)
QUICK = ("predict", "predict_proxy", "train", "cite")
QUICK_OWNERS = ("stats",)
_ALWAYS_FAILS = ("language_model",)
"""What takes only models, which are objects with methods."""
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


def _call(owner: str, name: str, change: dict[str, Callable[[], object]]) -> object:
    """Call a function of tokengeom, or a method of something, with some arguments set to other values."""
    import tokengeom as tg

    if owner:
        known = OWNERS[owner]
        holder = known.make(tg)
        function, named = getattr(holder, name), {"stats": _loaded(known.stats)} if known.stats else {}
        positional = tuple(one(holder) if callable(one) else one for one in known.methods[name])
    else:
        function, (positional, named) = getattr(tg, name), CALLS[name]
    names = list(inspect.signature(function).parameters)
    given = dict(zip(names, positional, strict=False)) | {one: value for one, value in named.items() if one in names}
    given |= {parameter: make() for parameter, make in change.items()}
    return function(*[given.pop(one) for one in names[: len(positional)]], **given)


Must = Literal["be taken", "be refused"]


def judged_call(call: Callable[[], object], must: Must | None, material: Material, folder: Path) -> str | None:
    """Call in a child; returns what is wrong. ``must`` says which of the two clear ends it must have, if any."""
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
    if must == "be taken" and ended.code == 2:
        return f"a call that must work is refused: {excerpt(ended.out)}"
    return "it is taken without an error" if must == "be refused" and ended.code == 0 else None


def _callables(quick: bool) -> list[tuple[str, str, Any]]:
    """What is called: whose method it is, or nobody's, its name, and the function."""
    import tokengeom as tg

    public = [name for name in tg.__all__ if inspect.isfunction(getattr(tg, name))]
    found = [("", name, getattr(tg, name)) for name in (QUICK if quick else (*public, "Monitor"))]
    owners = {name: OWNERS[name] for name in QUICK_OWNERS} if quick else OWNERS
    return found + [(owner, name, _method(owner, name)) for owner, one in owners.items() for name in one.methods]


def _method(owner: str, name: str) -> Any:
    """A method by the class of its owner, which is not made here: nothing is computed in this process."""
    import tokengeom as tg
    from tokengeom.corpus.tokenizers import AbstractTokenizer

    return getattr(getattr(tg, OWNERS[owner].of, AbstractTokenizer), name)


def python_tries(material: Material, seed: int, number: int, *, quick: bool = False) -> list[Try]:
    """Every call as it is, ``number`` arguments with values of another type, drawn from all, and every array."""
    import tokengeom as tg

    found, as_they_are = [], []
    for owner, function, known in _callables(quick):
        called = f"{owner}.{function}" if owner else function
        run = partial(judged_call, partial(_call, owner, function, {}), "be taken", material)
        # Without this, a value might be taken for refused where the call fails before it is reached.
        as_they_are += [] if function in _ALWAYS_FAILS else [Try(f"inputs/Python: {called}/as it is", run)]
        for name, one in inspect.signature(known).parameters.items():
            if name in (*_NOT_TRIED, "self") or one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
                continue
            refused = _refused(str(one.annotation))
            for value, make in VALUES.items():
                must: Must | None = "be refused" if value in refused else None
                run = partial(judged_call, partial(_call, owner, function, {name: make}), must, material)
                found.append(Try(f"inputs/Python: {called}/{name} is {value}", run))
    order = generator(seed, "inputs/Python").permutation(len(found)).tolist()
    # Of every function and method one, then others.
    one_of_each = {found[k].group: k for k in reversed(order)}.values()
    drawn = list(dict.fromkeys([*one_of_each, *order]))[:number]
    found = [*as_they_are, *(found[k] for k in sorted(drawn))]
    for taker in [] if quick else _takers(tg):
        for value, (array, always) in ARRAYS.items():
            plain = taker in ("counts", "probabilities", "weights of contexts")
            must = "be refused" if always and (plain or value in _ALWAYS_REFUSED) else None
            run = partial(judged_call, partial(_made_array, taker, array), must, material)
            found.append(Try(f"inputs/Python: arrays/{taker} {value}", run))
    return found


def _refused(annotation: str) -> tuple[str, ...]:
    """Names of the values that an argument must refuse: where it is a number, what only looks like one."""
    kinds = set(annotation.replace("'", "").split(" | "))
    if not {"int", "float"} & kinds or {"bool", "object", "Any"} & kinds:
        return ()
    return ("True", "NumPy's True", "a complex number", "a list", *(() if "str" in kinds else ("text",)))


def _made_array(taker: str, make: Callable[[], object]) -> object:
    import tokengeom as tg

    return _takers(tg)[taker](make())
