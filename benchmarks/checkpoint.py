"""A checkpoint compared with a text: tokengeom against the script that one would write; ratio printed.

    python -m benchmarks.checkpoint                   # 135M parameters, V = 49,152, 400 contexts, built-in stories
    python -m benchmarks.checkpoint --contexts 4000 --text stories.txt --tokenizer gpt2-folder
    python -m benchmarks.checkpoint --quick           # a tiny model, seconds

The model has random weights, saved in bfloat16 in a temporary folder; its tokenizer has the words of the text and as
many unused tokens as it takes, unless one is given. The script counts with a dictionary, runs the model on one context
at a time in float32, and correlates cosines of the states with those of the centred supports. tokengeom counts,
predicts L_mm with a proof, reads the model in batches as it is stored, measures its loss, and gives every number with
an interval and floors. Each side is a process of its own; imports do not count. The time of forward passes is also
printed alone: everything else is the overhead of a comparison.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Benchmark, finish, measure_processes, side, stopwatch

CONTEXT = 4
ROWS = 49_152


def make_model(folder: Path, text: Path, tokenizer: Path | None, quick: bool) -> None:
    """Save a random Llama of 135M parameters (quick: a tiny one) and a tokenizer with its number of rows."""
    import tokenizers
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    rows = 4_000 if quick else ROWS
    if tokenizer is None:
        words = tokenizers.pre_tokenizers.Whitespace().pre_tokenize_str(text.read_text(encoding="utf-8"))
        names = ["<unknown>", *dict.fromkeys(word for word, _ in words)][:rows]
        vocabulary = {name: place for place, name in enumerate(names)}
        vocabulary |= {f"<unused {place}>": place for place in range(len(vocabulary), rows)}
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unknown>"))
        made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        made.save(str(folder / "tokenizer.json"))
    else:
        for path in tokenizer.iterdir():
            shutil.copy(path, folder / path.name)
        rows = max(rows, len(_tokenizer(folder)))
    layers, width = (2, 64) if quick else (30, 576)
    config = LlamaConfig(
        vocab_size=rows,
        hidden_size=width,
        intermediate_size=width * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=width // 64 if not quick else 4,
        num_key_value_heads=width // 192 if not quick else 4,
        tie_word_embeddings=True,
        bos_token_id=0,
    )
    torch.manual_seed(0)
    disable_progress_bar()
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def by_script(folder: Path, text: Path, contexts: int, device: str) -> None:
    """What one would write: a dictionary of windows, one context at a time, NumPy."""
    import tokenizers
    import torch
    from transformers import AutoModelForCausalLM, LlamaForCausalLM  # noqa: F401 - imports do not count

    with stopwatch() as elapsed:
        path = folder / "tokenizer.json"
        if path.is_file():
            ids = tokenizers.Tokenizer.from_file(str(path)).encode(text.read_text(encoding="utf-8")).ids
        else:
            ids = _tokenizer(folder)(text.read_text(encoding="utf-8"))["input_ids"]
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
        finish(elapsed(), [curve.points[0].m, round(1000 * forward[0])])


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, default=400, help="number of contexts")
    parser.add_argument("--text", type=Path, help="text; by default the built-in stories")
    parser.add_argument("--tokenizer", type=Path, help="folder with a Hugging Face tokenizer")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each side, which alternate")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="a tiny model")
    given = parser.parse_args()
    packages = ("tokengeom", "numpy", "torch", "transformers")
    benchmark = Benchmark("checkpoint", *packages, device=given.device, quick=given.quick)
    with tempfile.TemporaryDirectory() as name:
        folder, text = Path(name) / "model", given.text or _stories(Path(name))
        folder.mkdir()
        make_model(folder, text, given.tokenizer, given.quick)
        arguments = (folder, text, given.contexts, given.device)
        sides = {one: side("benchmarks.checkpoint", one, *arguments) for one in SIDES}
        measured = measure_processes(sides, given.repeats)
        size = (folder / "model.safetensors").stat().st_size / 1e6
    repeats = "once" if given.repeats == 1 else f"median of {given.repeats}"
    model = "a tiny model" if given.quick else f"135M random weights, V={ROWS:,}"
    job = benchmark.job(
        f"compare --model, {model}, {given.contexts:,} contexts, with forward passes",
        repeats=repeats,
        note=f"weights of {size:.0f} MB",
    )
    for one, found in measured.items():
        forward = found.answer[1] / 1000
        note = f"{forward:.1f} s in forward passes"
        if one == "tokengeom":
            job.ours(found.seconds, gigabytes=found.peak_gigabytes, note=note)
        else:
            name = "one context at a time, without proof or intervals"
            job.peer(name, found.seconds, gigabytes=found.peak_gigabytes, note=note)


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
