"""Data of the section Explore for tests: random geometries, with the cosines and neighbours that belong to them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import numpy as np

SPECIAL = [
    "king", "Élan", "queen", "<script>alert(1)</script>", "<img src=x onerror=alert(2)>", "שלום", "a\u0301gua",
    "", " the", "\n", 'say "hi", you', "=1+1",
]  # fmt: skip
K = 5


def pack(values: Any, kind: str, step: float = 1) -> dict[str, Any]:
    numbers = np.asarray(values)
    whole = numbers if kind == "float32" else np.round(numbers / step)
    stored = whole.astype(np.dtype(kind).newbyteorder("<"))
    return {
        "packed": b64encode(stored.tobytes()).decode(),
        "type": kind,
        "shape": list(numbers.shape),
        "step": step,
    }


def geometry(X: Any) -> tuple[dict[str, Any], Any, Any]:
    """Stored part of one source, its cosines, and its neighbours."""
    C = X @ X.T
    own = C - 3 * np.eye(len(C))
    k = min(K, len(C))
    near = np.argsort(-own, axis=1)[:, :k]
    cosines = np.take_along_axis(own, near, axis=1)
    stored = np.where(cosines < -1.5, -32768e-4, cosines)
    part = {
        "places": pack(X[:, :3], "int16", 1 / 32000),
        "neighbours": pack(near, "uint16"),
        "cosines": pack(stored, "int16", 1e-4),
    }
    return part, C, near


def comparison(predicted: tuple[Any, Any], measured: tuple[Any, Any]) -> dict[str, Any]:
    (C, near), (D, close) = predicted, measured
    n = len(C)
    wrong = np.full(n, np.nan)
    for i in range(n if n > 2 else 0):
        others = np.arange(n) != i
        wrong[i] = 1 - np.corrcoef(C[i, others], D[i, others])[0, 1]
    worst = np.argsort(-np.abs(C - D), axis=1)[:, : min(3, n)]
    return {
        "disagreement": pack(wrong, "float32"),
        "at_predicted": pack(np.take_along_axis(D, near, axis=1), "int16", 1e-4),
        "at_measured": pack(np.take_along_axis(C, close, axis=1), "int16", 1e-4),
        "worst": pack(worst, "uint16"),
        "worst_predicted": pack(np.take_along_axis(C, worst, axis=1), "int16", 1e-4),
        "worst_measured": pack(np.take_along_axis(D, worst, axis=1), "int16", 1e-4),
    }


def unit(X: Any) -> Any:
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)


def explorer_data(n: int = 40, m: int = 60, points: int = 5, models: int = 2, *, heat: int = 30, seed: int = 0) -> Any:
    """Random data of the shape that the page holds: models are noisy copies of points of the path."""
    rng = np.random.default_rng(seed)
    shown = {"tokens": list(range(min(heat, n))), "contexts": list(range(min(heat, m)))}
    made = [random_source(at, points, base_vectors(n, m, seed), shown, rng) for at in range(points + models)]
    exact = [kept for _, kept in made]
    concept = {"label": "Concept 1", "tokens": [[0, 2], [3, 4]], "contexts": [[0], [1]]}
    return {
        "counted": True,
        "summary": f"All {n} tokens and all {m} contexts are shown.",
        "rotation": "All geometries are rotated to fit each other best.",
        **random_supports(n, m, rng),
        "sources": [source for source, _ in made],
        "path": list(range(points)),
        "models": [random_model(k, points, exact) for k in range(models)],
        "heat": shown,
        "concepts": [concept] if n > 5 and m > 5 else [],
    }


def base_vectors(n: int, m: int, seed: int) -> dict[str, Any]:
    """Vectors at the start of the path, and their change until its end."""
    rng = np.random.default_rng(seed)
    return {kind: rng.normal(size=(2, size, 6)) for kind, size in (("tokens", n), ("contexts", m))}


def random_source(at: int, points: int, base: Any, shown: Any, rng: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Point ``at`` of the path, or a model after its end; with its cosines and neighbours."""
    gap = 0.0 if at == points - 1 else float(2.0 * 0.2**at)
    label = "predicted in the limit" if gap == 0 else f"predicted at a loss gap of {gap:.2g} nats"
    source: dict[str, Any] = {"key": f"source-{at}", "kind": "path", "label": label, "gap": gap, "rank": 3, "heat": {}}
    kept: dict[str, Any] = {}
    for kind, (start, drift) in base.items():
        X = start + 0.8 * min(at, points - 1) / max(points - 1, 1) * drift
        if at >= points:
            X = X + 0.4 * rng.normal(size=X.shape) * (rng.random((len(X), 1)) < 0.4)
        source[kind], C, near = geometry(unit(X))
        source["heat"][kind] = pack(C[np.ix_(shown[kind], shown[kind])], "int8", 1 / 127)
        kept[kind] = (C, near)
    source["loss"] = None
    if at >= points:
        m = len(base["contexts"][0])
        losses = rng.exponential(0.02, size=m) * np.where(np.arange(m) % 7 == 0, 20, 1)
        source |= {"kind": "model", "gap": 0.01, "label": source["key"], "loss": pack(losses, "float32")}
    return source, kept


def random_model(k: int, points: int, exact: Any) -> dict[str, Any]:
    judged = max(points - 2 - k, 0)
    compared = {kind: comparison(exact[judged][kind], exact[points + k][kind]) for kind in ("tokens", "contexts")}
    label = ("transformer", "UFM")[k % 2]
    return {
        "source": points + k,
        "predicted": judged,
        "label": label,
        "gap": 0.01,
        "position": float(judged),
        **compared,
    }


def random_supports(n: int, m: int, rng: Any) -> dict[str, Any]:
    """Names, shares and supports; every fourth context has the support of the one before."""
    rows = [np.sort(rng.choice(n, size=rng.integers(1, min(n, 6) + 1), replace=False)) for _ in range(m)]
    for j in range(1, m, 4):
        rows[j] = rows[j - 1]
    groups: dict[tuple[int, ...], int] = {}
    numbers = [groups.setdefault(tuple(row), len(groups)) for row in rows]
    tokens = [*SPECIAL, *(f"token{i}" for i in range(len(SPECIAL), n))][:n]
    contexts = [*(f"after {name}" for name in tokens), *(f"context {j} of them" for j in range(n, m))][:m]
    flat = np.concatenate([*rows, np.array([], dtype=np.int64)]).astype(np.int64)
    within = np.concatenate([*(np.sort(rng.dirichlet(np.full(len(row), 2.0)))[::-1] for row in rows), []])
    return {
        "tokens": {
            "names": tokens,
            "total": n,
            "share": falling_shares(n, rng),
            "supports": pack(np.bincount(flat, minlength=n), "uint32"),
        },
        "contexts": {
            "names": contexts,
            "total": m,
            "share": falling_shares(m, rng),
            "supports": pack([len(row) for row in rows], "uint16"),
            "group": pack(numbers, "int32"),
        },
        "follows": {
            "starts": pack(np.cumsum([0, *(len(row) for row in rows)]), "uint32"),
            "tokens": pack(flat, "uint16"),
            "shares": pack(within, "uint16", 1 / 65535),
            "counts": pack(np.ceil(within * 100), "uint32"),
        },
    }


def falling_shares(size: int, rng: Any) -> dict[str, Any]:
    return pack(np.sort(rng.dirichlet(np.ones(size)))[::-1] if size else [], "float32")


def large_data() -> Any:
    """2,000 tokens and 4,000 contexts at 14 sources: random places and neighbours, which belong to nothing."""
    rng = np.random.default_rng(1)
    data = explorer_data(30, 30, 12, 2)
    sizes = {"tokens": 2000, "contexts": 4000}
    for kind, size in sizes.items():
        data[kind]["names"] = [f"{kind[:-1]}{i}" for i in range(size)]
        data[kind] |= {"total": size, "share": falling_shares(size, rng)}
        data[kind]["supports"] = pack(np.full(size, 20), "uint32")
        shape = (size, 12)
        for one in data["sources"]:
            part = {"places": pack(0.5 * unit(rng.normal(size=(size, 3))), "int16", 1 / 32000)}
            part |= {"neighbours": pack(rng.integers(size, size=shape), "uint16")}
            one[kind] = part | {"cosines": pack(rng.random(shape), "int16", 1e-4)}
        for one in data["models"]:
            one[kind] = {
                "disagreement": pack(rng.random(size), "float32"),
                "worst": pack(rng.integers(size, size=(size, 3)), "uint16"),
            }
            one[kind] |= {name: pack(rng.random(shape), "int16", 1e-4) for name in ("at_predicted", "at_measured")}
            one[kind] |= {
                f"worst_{name}": pack(rng.random((size, 3)), "int16", 1e-4) for name in ("predicted", "measured")
            }
    data["contexts"]["group"] = pack(rng.integers(500, size=4000), "int32")
    for one in data["sources"][12:]:
        one["loss"] = pack(rng.exponential(size=4000), "float32")
    data["follows"] = {
        "starts": pack(20 * np.arange(4001), "uint32"),
        "tokens": pack(rng.integers(2000, size=80_000), "uint16"),
    }
    data["follows"] |= {"shares": pack(np.full(80_000, 0.05), "uint16", 1 / 65535), "counts": None}
    return data


def read(part: dict[str, Any]) -> Any:
    """Numbers of a packed array, with those that stand for no value as NaN."""
    stored = np.frombuffer(b64decode(part["packed"]), dtype=np.dtype(part["type"]).newbyteorder("<")).reshape(
        part["shape"]
    )
    return np.where((part["type"] == "int16") & (stored == -32768), np.nan, stored * part["step"])
