"""A checkpoint compared with a text: tokengeom against the script that one would write; ratio printed.

    python -m benchmarks.checkpoint --text stories.txt --tokenizer gpt2-folder     # two models, V of some 50,000
    python -m benchmarks.checkpoint --contexts 4000 --text stories.txt --tokenizer gpt2-folder
    python -m benchmarks.checkpoint                   # the built-in stories, which have few words
    python -m benchmarks.checkpoint --model FOLDER --text stories.txt    # a model of your own
    python -m benchmarks.checkpoint --quick           # tiny models, seconds

One model has 135M random weights, saved in bfloat16 in a temporary folder. Its loss is above that of a uniform guess,
where nothing is predicted at the loss. So a second, small one is trained on the text to a loss of a few nats, and kept
among the data of benchmarks. Without a tokenizer, both have the words of the text and as many unused tokens as it
takes, which merge into one: the size that is left after merging is in the name of a job. ``--model`` and ``--text``, or
TOKENGEOM_BENCHMARK_MODEL and TOKENGEOM_BENCHMARK_TEXT, name another model instead.

The script counts with a dictionary, runs the model on one context at a time in float32, and correlates cosines of the
states with those of the centred supports. tokengeom counts, predicts L_mm with a proof, reads the model in batches as
it is stored, measures its loss, predicts at that loss, and gives every number with an interval and floors. Each side is
a process of its own; imports do not count. The time without forward passes, which is the overhead of a comparison, is a
job of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Benchmark, data_folder, finish, measure_processes, side, stopwatch

CONTEXT = 4
ROWS, TRAINED_ROWS, QUICK_ROWS = 49_152, 50_257, 4_000
"""Rows of the random model, of the trained one (those of GPT-2), and of both with ``--quick``."""
LAYERS, WIDTH, HEADS, KEY_HEADS = 30, 576, 9, 3
"""Sizes of the random model, 135M parameters."""
SMALL = (2, 64, 4, 4)
"""The same of the trained model, and of both with ``--quick``."""
LOSS, MOST_STEPS, BATCH, LENGTH = 4.0, 2_000, 8, 32
"""Training: the loss in nats at which it ends, the most steps, and texts per step with their tokens."""


def make_tokenizer(folder: Path, text: Path, tokenizer: Path | None, rows: int) -> int:
    """Save a tokenizer with ``rows`` tokens, or the given one; returns the rows of its model."""
    import tokenizers

    from tokengeom.corpus.huggingface_tokenizer import load_huggingface

    if tokenizer is None:
        words = tokenizers.pre_tokenizers.Whitespace().pre_tokenize_str(text.read_text(encoding="utf-8"))
        names = ["<unknown>", *dict.fromkeys(word for word, _ in words)][:rows]
        vocabulary = {name: place for place, name in enumerate(names)}
        vocabulary |= {f"<unused {place}>": place for place in range(len(vocabulary), rows)}
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unknown>"))
        made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        made.save(str(folder / "tokenizer.json"))
    else:
        given = load_huggingface(tokenizer)
        (folder / "tokenizer.json").write_text(given.to_json(), encoding="utf-8")
        rows = max(rows, given.size)
    return rows


def make_model(folder: Path, rows: int, sizes: tuple[int, int, int, int], ids: Sequence[int]) -> None:
    """Save a Llama with random weights in bfloat16; where there are ids of a text, trained on them, in float32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    layers, width, heads, key_heads = sizes
    config = LlamaConfig(
        vocab_size=rows,
        hidden_size=width,
        intermediate_size=width * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        tie_word_embeddings=True,
        bos_token_id=0,
    )
    torch.manual_seed(0)
    disable_progress_bar()
    model: Any = LlamaForCausalLM(config)
    if ids:
        print(f"training a model on {len(ids):,} tokens, once", flush=True)
        train(model, np.asarray(ids))
    (model if ids else model.to(torch.bfloat16)).save_pretrained(folder)


def train(model: Any, ids: Any) -> None:
    """Train on random parts of a text until the mean loss of ten steps is `LOSS`."""
    import torch

    rng, losses = np.random.default_rng(0), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(MOST_STEPS):
        places = rng.integers(0, len(ids) - LENGTH, BATCH)
        batch = torch.tensor(np.stack([ids[place : place + LENGTH] for place in places]))
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if step >= 10 and np.mean(losses[-10:]) <= LOSS:
            break
    print(f"  loss {np.mean(losses[-10:]):.2f} nats after {len(losses)} steps", flush=True)


def encoded(folder: Path, text: str) -> list[int]:
    """Token ids of a text."""
    import tokenizers

    return list(tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids)


def by_script(folder: Path, text: Path, contexts: int, device: str) -> None:
    """What one would write: a dictionary of windows, one context at a time, NumPy."""
    import tokenizers  # noqa: F401
    import torch
    from transformers import AutoModelForCausalLM, LlamaForCausalLM  # noqa: F401 - imports do not count

    with stopwatch() as elapsed:
        ids = encoded(folder, text.read_text(encoding="utf-8"))
        counts: Counter[tuple[int, ...]] = Counter()
        followers: dict[tuple[int, ...], Counter[int]] = {}
        for place in range(len(ids) - CONTEXT):
            window = tuple(ids[place : place + CONTEXT])
            counts[window] += 1
            followers.setdefault(window, Counter())[ids[place + CONTEXT]] += 1
        chosen = [window for window, _ in counts.most_common(contexts)]
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().to(device)
        support = np.zeros((model.config.vocab_size, len(chosen)))
        states = []
        forward = 0.0
        for j, window in enumerate(chosen):
            support[list(followers[window]), j] = 1.0
            began = time.perf_counter()
            with torch.no_grad():
                output = model(torch.tensor([window], device=device), output_hidden_states=True)
            states.append(output.hidden_states[-1][0, -1].double().cpu().numpy())
            forward += time.perf_counter() - began
        support -= support.mean(axis=0)
        pairs = np.triu_indices(len(chosen), 1)
        found = [_cosines(np.stack(states, axis=1))[pairs], _cosines(support)[pairs]]
        np.corrcoef(found)
        finish(elapsed(), [len(chosen), round(1000 * forward)])


def _cosines(columns: Any) -> Any:
    directions = columns / np.linalg.norm(columns, axis=0)
    return directions.T @ directions


def ours(folder: Path, text: Path, contexts: int, device: str) -> None:
    """`tokengeom.compare_models` with its defaults."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaForCausalLM  # noqa: F401 - imports do not count

    from tokengeom.models import checkpoint_head
    from tokengeom.page.compare_models import compare_models
    from tokengeom.problems.regularised_logits import Merging

    forward, plain = [0.0], checkpoint_head.all_logits

    def timed(*arguments: Any, **how: Any) -> Any:
        with stopwatch() as elapsed:
            found = plain(*arguments, **how)
            if device != "cpu":
                torch.cuda.synchronize()
            forward[0] += elapsed()
        return found

    checkpoint_head.all_logits = timed
    with stopwatch() as elapsed:
        curve = compare_models(folder, text, context=CONTEXT, top_contexts=contexts, device=device)
        seconds = elapsed()
    assert curve.stats is not None, "it was made here"
    rows = Merging.of(curve.stats.P).a.size
    point = curve.points[0]
    numbers = [point.m, round(1000 * forward[0]), curve.stats.V, rows, int(point.is_proxy), len(point.comparison.at)]
    finish(seconds, numbers)


def measure(benchmark: Benchmark, model: str, folder: Path, text: Path, given: argparse.Namespace) -> None:
    """Both sides with forward passes, and tokengeom without."""
    sides = {one: side("benchmarks.checkpoint", one, folder, text, given.contexts, given.device) for one in SIDES}
    measured = measure_processes(sides, given.repeats)
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors")) / 1e6
    repeats = "once" if given.repeats == 1 else f"median of {given.repeats}"
    own = measured["tokengeom"]
    m, forward_ms, V, rows, is_proxy, norms = own.answer
    reached = f"compared with {'the proxy' if is_proxy else 'L_mm'} and at the loss in {norms} norm{'s' * (norms != 1)}"
    name = f"compare --model, {model}, V={V:,} ({rows:,} merged), {m:,} contexts of {given.name}"
    note = f"weights of {size:.0f} MB"
    job = benchmark.job(f"{name}, with forward passes", repeats=repeats, note=note)
    rest = benchmark.job(f"{name}, without forward passes", repeats=repeats, note=note)
    for one, found in measured.items():
        forward = found.answer[1] / 1000
        about: dict[str, Any] = {"gigabytes": found.peak_gigabytes, "note": f"{forward:.1f} s in forward passes"}
        if one == "tokengeom":
            job.ours(found.seconds, accuracy=reached, **about)
        else:
            job.peer("one context at a time, without proof or intervals", found.seconds, **about)
    rest.ours(own.seconds - forward_ms / 1000, accuracy=reached)


def trained_model(text: Path, tokenizer: Path | None, quick: bool) -> Path:
    """Folder of a small model that is trained on a text, kept among the data of benchmarks."""
    rows = QUICK_ROWS if quick else TRAINED_ROWS
    tokens = "words" if tokenizer is None else tokenizer.name
    folder = data_folder() / f"trained-{rows}-{tokens}-{text.stat().st_size}"
    if not (folder / "config.json").is_file():
        with tempfile.TemporaryDirectory(dir=data_folder()) as name:
            made = Path(name) / "model"
            made.mkdir()
            rows = make_tokenizer(made, text, tokenizer, rows)
            make_model(made, rows, SMALL, encoded(made, text.read_text(encoding="utf-8")))
            made.rename(folder)
    return folder


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, default=400, help="number of contexts")
    parser.add_argument("--model", type=Path, default=os.environ.get("TOKENGEOM_BENCHMARK_MODEL"), help="model folder")
    parser.add_argument("--text", type=Path, default=os.environ.get("TOKENGEOM_BENCHMARK_TEXT"), help="text file")
    parser.add_argument("--tokenizer", type=Path, help="folder with a Hugging Face tokenizer, such as GPT-2's")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each side, which alternate")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="tiny models")
    given = parser.parse_args()
    packages = ("tokengeom", "numpy", "torch", "transformers")
    with tempfile.TemporaryDirectory() as name:
        text = given.text or _stories(Path(name))
        given.name = "the built-in stories" if given.text is None else "/".join(text.resolve().parts[-2:])
        if given.model is not None:
            benchmark = Benchmark("checkpoint", *packages, device=given.device, quick=given.quick)
            measure(benchmark, given.model.resolve().name, given.model, text, given)
            return
        trained, folder = trained_model(text, given.tokenizer, given.quick), Path(name) / "model"
        folder.mkdir()
        rows = make_tokenizer(folder, text, given.tokenizer, QUICK_ROWS if given.quick else ROWS)
        make_model(folder, rows, SMALL if given.quick else (LAYERS, WIDTH, HEADS, KEY_HEADS), ())
        benchmark = Benchmark("checkpoint", *packages, device=given.device, quick=given.quick)
        names = {folder: "a tiny model" if given.quick else "135M random weights"}
        names[trained] = "a tiny trained model" if given.quick else "a small trained model"
        for made, model in names.items():
            measure(benchmark, model, made, text, given)


def _stories(folder: Path) -> Path:
    """A file of stories of the built-in corpus."""
    from tokengeom.corpus.stories import write_stories

    path = folder / "stories.txt"
    write_stories(path, 400_000)
    return path


SIDES = {"tokengeom": ours, "script": by_script}


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in SIDES:
        SIDES[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        main()
