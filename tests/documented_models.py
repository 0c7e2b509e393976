"""A small language model trained on the built-in stories, for pages of the documentation that read checkpoints."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from callback_cases import one_thread
from documented import AfterBlock
from tokengeom.corpus.stories import write_stories

LENGTH = 12
STEPS = (20, 200)
"""Steps after which a checkpoint is saved."""


def save_checkpoints(folder: Path, text: Path) -> None:
    """Train a Llama with one layer on a text, and save ``checkpoint-20`` and ``checkpoint-200`` with its tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.train([str(text)], tokenizers.trainers.WordLevelTrainer(special_tokens=["[UNK]"], show_progress=False))
    ids = np.array(tokenizer.encode(text.read_text(encoding="utf-8")).ids)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=64, **sizes)
        model = LlamaForCausalLM(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        generator = np.random.default_rng(0)
        for step in range(1, STEPS[-1] + 1):
            starts = generator.integers(0, ids.size - LENGTH, 32)
            batch = torch.as_tensor(np.stack([ids[one : one + LENGTH] for one in starts]))
            model(batch, labels=batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step in STEPS:
                saved = folder / f"checkpoint-{step}"
                model.save_pretrained(saved)
                PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(saved)


@cache
def _made() -> tempfile.TemporaryDirectory[str]:
    """The text and the checkpoints, made once for all pages; the folder goes when this process ends."""
    made = tempfile.TemporaryDirectory()
    folder = Path(made.name)
    write_stories(folder / "stories.txt", words=30_000)
    save_checkpoints(folder / "my-model", folder / "stories.txt")
    return made


@contextmanager
def with_checkpoints(folder: Path, names: dict[str, Any]) -> Iterator[AfterBlock]:
    """``stories.txt``, and checkpoints of a model that was trained on it, in ``my-model``."""
    shutil.copytree(_made().name, folder, dirs_exist_ok=True)
    yield lambda block, printed: None
