"""Trains unconstrained features with several optimizers to one loss, and compares them with predictions at that loss.

Run from the root of the repository, on a machine with a GPU, PyTorch, NumPy and SciPy::

    PYTHONPATH=src python results/optimizer_norms/measure.py COUNTS.npz rows.jsonl --minutes 9

``COUNTS.npz`` is a sparse V x m matrix of counts (scipy.sparse.save_npz). One line of JSON is added to ``rows.jsonl``
per training, and lines that are already there are not computed again, so that a run which was ended can be continued.
Everything that is measured is described in docs/results/optimizer_norms.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from tokengeom.theory.at_loss import LossSettings
from tokengeom.theory.loss_path import LossPath

GAP = 0.05
"""Loss gap in nats at which everything is compared."""
FIRST_RATE = 16.0
"""First rate of gradient descent, which is adapted."""
DIM, SEEDS, STEPS, EVERY = 512, 5, 40_000, 5
CONFIGS = {
    "gd": {"optimizer": "gd"},
    "gd, momentum 0.9": {"optimizer": "gd", "momentum": 0.9},
    "gd, large start": {"optimizer": "gd", "start": 0.2},
    "adam": {"optimizer": "adam", "rate": 1e-3},
    "adam, rate 3e-4": {"optimizer": "adam", "rate": 3e-4},
    "adam, epsilon 1e-5": {"optimizer": "adam", "rate": 1e-3, "epsilon": 1e-5},
    "adamw, decay 0.1": {"optimizer": "adam", "rate": 1e-3, "decay": 0.1},
    "adam, large start": {"optimizer": "adam", "rate": 1e-3, "start": 0.2},
    "adam, batches of 512": {"optimizer": "adam", "rate": 1e-3, "batch": 512},
    "sign descent": {"optimizer": "sign", "rate": 3e-4},
    "spectral descent": {"optimizer": "spectral", "rate": 5e-3},
    "spectral descent, momentum 0.95": {"optimizer": "spectral", "rate": 5e-3, "momentum": 0.95},
}


class Data:
    """Probabilities, shares and supports on a device."""

    def __init__(self, counts: sp.csc_array, device: str) -> None:
        total = np.asarray(counts.sum(axis=0)).ravel()
        self.P_sparse, self.pi_numpy = sp.csc_array(counts / total), total / total.sum()
        P = self.P_sparse.toarray()
        self.entropy = -float(self.pi_numpy @ (P * np.log(np.where(P > 0, P, 1.0))).sum(axis=0))
        self.P = torch.tensor(P, dtype=torch.float32, device=device)
        self.pi = torch.tensor(self.pi_numpy, dtype=torch.float32, device=device)
        groups = np.unique(P > 0, axis=1, return_inverse=True)[1].reshape(-1)
        self.group = torch.tensor(groups, device=device)
        self.device = device

    def gap(self, W: torch.Tensor, H: torch.Tensor) -> float:
        """Loss above the entropy in nats, in double precision."""
        L = (W @ H).double()
        loss = torch.logsumexp(L, 0) - (self.P.double() * L).sum(0)
        return float(self.pi.double() @ loss) / float(self.pi.double().sum()) - self.entropy


def train(data: Data, seed: int, config: dict, deadline: float) -> dict | None:
    """W and H when the loss gap first falls below `GAP`; None where it does not in time."""
    generator = torch.Generator(device="cpu").manual_seed(1000 + seed)
    V, m = data.P.shape
    scale = config.get("start", 0.02)
    W = (scale * torch.randn(V, DIM, generator=generator)).to(data.device)
    H = (scale * torch.randn(DIM, m, generator=generator)).to(data.device)
    state = [torch.zeros_like(x) for x in (W, H, W, H)]
    rate, last, kept = config.get("rate", FIRST_RATE), np.inf, None
    for step in range(1, STEPS + 1):
        columns = slice(None)
        weight = data.pi
        if "batch" in config:
            columns = torch.multinomial(data.pi.cpu(), config["batch"], replacement=True, generator=generator)
            columns = columns.to(data.device)
            weight = torch.full((config["batch"],), 1.0 / config["batch"], device=data.device)
        R = (torch.softmax(W @ H[:, columns], 0) - data.P[:, columns]) * weight
        gW, part = R @ H[:, columns].T, W.T @ R
        gH = part if "batch" not in config else torch.zeros_like(H).index_add_(1, columns, part)
        update(config, step, rate, (W, H), (gW, gH), state)
        if step % EVERY == 0:
            gap = data.gap(W, H)
            if config["optimizer"] == "gd":
                # The rate of gradient descent follows the loss: it grows while 5 steps lower the gap by less than 2%,
                # and falls where they lower it by more than 4%; where the loss rises, the last steps are taken back.
                if kept is not None and not gap <= last + 1e-6:
                    for x, old in zip((W, H, *state), kept, strict=True):
                        x.copy_(old)
                    rate *= 0.5
                    continue
                rate *= 1.05 if gap > 0.98 * last else 0.8 if gap < 0.96 * last else 1.0
                kept, last = [x.clone() for x in (W, H, *state)], gap
            if gap <= GAP:
                return {"W": W, "H": H, "gap": gap, "steps": step, "rate": rate}
            if not np.isfinite(gap) or time.monotonic() > deadline:
                return None
    return None


def update(config: dict, step: int, rate: float, parameters: tuple, gradients: tuple, state: list) -> None:
    """One step of an optimizer on W and H, in place."""
    momentum = config.get("momentum", 0.0)
    for k, (x, g) in enumerate(zip(parameters, gradients, strict=True)):
        u, v = state[k], state[k + 2]
        if config["optimizer"] == "adam":
            u.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            x.mul_(1.0 - rate * config.get("decay", 0.0))
            x.sub_(rate * (u / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + config.get("epsilon", 1e-8)))
            continue
        u.mul_(momentum).add_(g)
        if config["optimizer"] == "sign":
            x.sub_(rate * u.sign())
        elif config["optimizer"] == "spectral":
            x.sub_(rate * polar(u))
        else:
            x.sub_(rate * u)


def polar(matrix: torch.Tensor) -> torch.Tensor:
    """The nearest matrix with orthonormal rows or columns, by its singular vectors."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    gram = (wide @ wide.T).double()
    values, vectors = torch.linalg.eigh(gram)
    root = vectors * values.clamp_min(1e-12 * float(values[-1])).rsqrt() @ vectors.T
    found = root.float() @ wide
    return found if matrix.shape[0] <= matrix.shape[1] else found.T


def spectral_at_gap(data: Data, gap: float, seconds: float) -> dict:
    """Logits with a loss gap near the one given and the smallest spectral norm, by projected accelerated descent.

    The certificate is that of Frank and Wolfe: no logits of spectral norm at most r have a loss below
    ``loss + <G, L> - r ||G||_*`` with G the gradient at L, negated.
    """
    P, pi = data.P.double(), data.pi.double()
    pi = pi / pi.sum()

    def loss_and_gradient(L: torch.Tensor) -> tuple[float, torch.Tensor]:
        loss = float(pi @ (torch.logsumexp(L, 0) - (P * L).sum(0))) - data.entropy
        return loss, (torch.softmax(L, 0) - P) * pi

    def solve(r: float, L: torch.Tensor, most: int) -> tuple[torch.Tensor, float, float]:
        Y, t, size = L.clone(), 1.0, 2.0 / float(pi.max())
        loss, bound = np.inf, -np.inf
        for k in range(most):
            value, G = loss_and_gradient(Y)
            while True:
                new = clipped(Y - size * G, r)
                reached, change = loss_and_gradient(new)[0], new - Y
                if reached <= value + float((G * change).sum()) + float((change**2).sum()) / (2 * size) + 1e-12:
                    break
                size *= 0.5
            after = 0.5 * (1 + np.sqrt(1 + 4 * t * t))
            if reached > loss:
                after, Y = 1.0, new
            else:
                Y = new + (t - 1) / after * (new - L)
            L, loss, t = new, reached, after
            size *= 1.2
            if k % 20 == 19:
                here, G = loss_and_gradient(L)
                bound = max(bound, here - float((G * L).sum()) - r * float(torch.linalg.svdvals(G).sum()))
                if here - bound < 0.02 * here or time.monotonic() > end:
                    break
        return L, loss, bound

    end = time.monotonic() + seconds
    low, high, L = 1.0, None, torch.zeros_like(P)
    r, found = 200.0, None
    while found is None or time.monotonic() < end:
        L, loss, bound = solve(r, clipped(L, r), 2000)
        found = {"L": L, "gap": loss, "bound": bound, "radius": r}
        if abs(np.log(loss / gap)) < 0.03:
            break
        low, high = (r, high) if loss > gap else (low, r)
        r = 1.6 * r if high is None else float(np.sqrt(low * high))
    U, s, Vt = torch.linalg.svd(found["L"], full_matrices=False)
    found = {**found, "rank_at_radius": int((s > 0.999 * s[0]).sum())}
    return {**found, "W": (U * s.sqrt()).float(), "H": (s.sqrt()[:, None] * Vt).float()}


def clipped(L: torch.Tensor, r: float) -> torch.Tensor:
    """The nearest matrix of spectral norm at most r: singular values above r become r."""
    values, vectors = torch.linalg.eigh(L @ L.T)
    scale = (r / values.clamp_min(r * r).sqrt()).clamp_max(1.0)
    return (vectors * scale) @ (vectors.T @ L)


def cosines(rows: torch.Tensor) -> torch.Tensor:
    """Cosines between rows, 0 where a row is 0."""
    unit = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return unit @ unit.T


class Geometry:
    """Cosines between tokens (mean removed) and between contexts."""

    def __init__(self, W: torch.Tensor, H: torch.Tensor) -> None:
        self.tokens, self.contexts = cosines(W - W.mean(0)), cosines(H.T)


def agreement(data: Data, x: Geometry, y: Geometry) -> dict[str, float]:
    """Correlation of cosines over pairs of contexts with different supports, and of different tokens."""
    apart = data.group[:, None] != data.group[None, :]
    different = ~torch.eye(len(x.tokens), dtype=torch.bool, device=x.tokens.device)
    return {
        "contexts": correlation(x.contexts[apart], y.contexts[apart]),
        "tokens": correlation(x.tokens[different], y.tokens[different]),
    }


def correlation(x: torch.Tensor, y: torch.Tensor) -> float:
    """Pearson correlation of two vectors."""
    x, y = x.double() - x.double().mean(), y.double() - y.double().mean()
    return float((x @ y) / (x.norm() * y.norm()))


def predictions(data: Data) -> dict[str, tuple[Geometry, dict]]:
    """The geometry of each norm at the loss, with its certificate, and of two rivals that use no norm."""
    found = {}
    for norm, tolerance in (("nuclear", 1e-3), ("gamma2", 5e-3)):
        settings = LossSettings(norm=norm, device=data.device, tolerance=tolerance)
        began = time.monotonic()
        at = LossPath(data.P_sparse, data.pi_numpy, entropy=data.entropy, settings=settings).at(GAP)
        W, H = (torch.tensor(x, dtype=torch.float32, device=data.device) for x in (at.W, at.H))
        facts = {"gap": at.loss_gap, "relative_gap": at.relative_gap, "rank": at.rank}
        found[norm] = (Geometry(W, H), facts | {"seconds": time.monotonic() - began})
    began = time.monotonic()
    one = spectral_at_gap(data, GAP, 120.0)
    facts = {"gap": one["gap"], "proven_gap_not_below": one["bound"], "radius": one["radius"]}
    facts["rank_at_radius"] = one["rank_at_radius"]
    found["spectral"] = (Geometry(one["W"], one["H"]), facts | {"seconds": time.monotonic() - began})
    S = (data.P > 0).float()
    centred = S - S.mean(0)
    plain = {"supports, power 1": centred, "probabilities, power 1/2": data.P.sqrt() - data.P.sqrt().mean(0)}
    for name, X in plain.items():
        found[name] = (Geometry(X, X), {})
    return found


def sizes(W: torch.Tensor, H: torch.Tensor) -> dict[str, float]:
    """How unequal the lengths of tokens and contexts are, and norms of the logits."""
    rows, columns = (W - W.mean(0)).norm(dim=1), H.norm(dim=0)
    s = torch.linalg.svdvals((W - W.mean(0)) @ H)
    return {
        "spread_of_token_lengths": float(rows.std() / rows.mean()),
        "spread_of_context_lengths": float(columns.std() / columns.mean()),
        "nuclear_norm": float(s.sum()),
        "spectral_norm": float(s[0]),
    }


def main() -> None:
    """Compute what is not yet in the file of rows, until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", type=Path)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    end = time.monotonic() + 60 * given.minutes
    data = Data(sp.csc_array(sp.load_npz(given.counts)).astype(np.float64), given.device)
    known = [json.loads(line) for line in given.rows.read_text().splitlines()] if given.rows.exists() else []
    done = {(row.get("config"), row.get("seed")) for row in known}
    predicted = predictions(data)
    with given.rows.open("a") as file:

        def say(row: dict) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()

        card = torch.cuda.get_device_name() if given.device == "cuda" else platform.processor()
        shape = {"V": data.P.shape[0], "m": data.P.shape[1], "entropy": data.entropy, "loss_gap": GAP, "dim": DIM}
        facts = {name: one for name, (_, one) in predicted.items()}
        versions = {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
        between = {
            f"{a} and {b}": agreement(data, predicted[a][0], predicted[b][0])
            for a, b in itertools.combinations(predicted, 2)
        }
        if not known:
            setting = {"machine": card, "versions": versions, "predictions": facts, "between": between}
            say({"kind": "setting", **shape, **setting})
        geometries: dict[str, list[Geometry]] = {}
        for name, config in CONFIGS.items():
            for seed in range(SEEDS):
                if (name, seed) in done or time.monotonic() > end:
                    continue
                began = time.monotonic()
                run = train(data, seed, config, min(end, began + 60.0))
                row = {"kind": "run", "config": name, "seed": seed, "settings": config}
                if run is None:
                    say({**row, "reached": False, "seconds": time.monotonic() - began})
                    continue
                mine = Geometry(run["W"], run["H"])
                geometries.setdefault(name, []).append(mine)
                facts = {key: run[key] for key in ("gap", "steps", "rate")}
                found = {other: agreement(data, one, mine) for other, (one, _) in predicted.items()}
                others = [agreement(data, one, mine) for one in geometries[name][:-1]]
                say(
                    {**row, "reached": True, "seconds": time.monotonic() - began, **facts, **sizes(run["W"], run["H"]),
                     "agreement": found, "with_earlier_seeds": others}
                )  # fmt: skip


if __name__ == "__main__":
    main()
