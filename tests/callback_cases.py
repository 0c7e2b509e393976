"""A small text, its prediction, and models in training, for tests of monitors and callbacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

import tokengeom as tg
from tiny_models import ROWS, TOKENS, build

LENGTH = 10


@cache
def texts() -> list[list[int]]:
    """Token ids of 150 texts of one length, in which one to three tokens follow each token."""
    rng = np.random.default_rng(0)
    following = [[(a * z + b) % 28 + 2 for a, b in ((3, 1), (5, 2), (7, 3))][: 1 + z % 3] for z in range(TOKENS)]
    found = []
    for _ in range(150):
        ids = [int(rng.integers(2, TOKENS))]
        while len(ids) < LENGTH:
            ids.append(int(rng.choice(following[ids[-1]])))
        found.append(ids)
    return found


def tokenizer() -> Any:
    """A tokenizer of the `tokenizers` library with the tokens w0, w1, ... between spaces."""
    model = tokenizers.models.WordLevel({f"w{z}": z for z in range(TOKENS)}, unk_token="w0")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return made


def save_texts(folder: Path) -> None:
    """Write ``text.txt`` and ``tokenizer.json``."""
    lines = [" ".join(f"w{z}" for z in ids) for ids in texts()]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    tokenizer().save(str(folder / "tokenizer.json"))


@cache
def prediction() -> tg.FeaturePrediction:
    """The prediction for contexts of two tokens."""
    from tokengeom.corpus.huggingface_tokenizer import HuggingFaceTokenizer

    lines = [" ".join(f"w{z}" for z in ids) for ids in texts()]
    found = tg.predict(tg.count(lines, tokenizer=HuggingFaceTokenizer(tokenizer()), context=2), spread_solves=0)
    assert isinstance(found, tg.FeaturePrediction)
    return found


def model(**changes: Any) -> Any:
    """A tiny Llama, with fresh small weights, whose loss falls within some tens of steps."""
    import torch

    made = build("llama", **changes)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 2:
                parameter *= 0.3
    return made.train()


def exact_loss_gap(module: Any, bos: bool) -> float:
    """``CE - H`` by brute force: every context read alone, softmax over all rows of the head."""
    import torch

    stats = prediction().statistics
    assert stats.contexts is not None
    P, gap = stats.P.toarray(), 0.0
    was_training = module.training
    module.eval()
    for j, context in enumerate(stats.contexts.tolist()):
        ids = torch.tensor([[1, *context] if bos else context])
        with torch.no_grad(), one_thread():
            logits = module(ids)
        logits = getattr(logits, "logits", logits)[0, -1].double().numpy()
        assert logits.size == ROWS
        logq = logits - np.log(np.sum(np.exp(logits - logits.max()))) - logits.max()
        seen = P[:, j] > 0
        gap += float(stats.pi[j] * P[seen, j] @ (np.log(P[seen, j]) - logq[: stats.V][seen]))
    module.train(was_training)
    return gap


@contextmanager
def one_thread() -> Iterator[None]:
    """A context in which PyTorch uses one thread: tiny trainings are slower with more."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def equal_weights(one: Any, other: Any) -> bool:
    """Whether two modules have the same parameters and buffers to the last bit."""
    import torch

    a, b = one.state_dict(), other.state_dict()
    return set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in a)
