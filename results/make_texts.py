"""Writes the texts that the measured studies read: ``python results/make_texts.py STORIES.txt NOVEL.txt [FOLDER]``.

``STORIES.txt``
    TinyStories with ``<|endoftext|>`` between stories. The kept rows were measured on a sample of 3,117 stories of its
    validation part, 2.6 MB; the text itself is not part of this repository.
``NOVEL.txt``
    Moby-Dick, in the public domain, with chapters that begin with ``CHAPTER``; not part of this repository either.
``FOLDER``
    Where to write, by default ``texts``, which is where the recipes look for them.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tokengeom import count
from tokengeom.extending import SilentProgress, stories
from tokengeom_studies.common.split_texts import SplitText, count_parts
from tokengeom_studies.common.torch_runs import save_text
from tokengeom_studies.predicted_start import PredictedFactors
from tokengeom_studies.unknown_supports import load_windows

END = "<|endoftext|>"
SIZES = ((104, 382), (1_000, 4_000), (2_000, 10_000))
PARTS = ((104, 382), (400, 1_500))
SUBWORDS = ((104, 400), (200, 1_000), (200, 2_500))
STATISTICS = ((104, 400), (200, 1_000), (200, 2_500), (200, 6_000), (200, 25_000), (200, 100_000))


def write_counts(text: str, folder: Path) -> None:
    """Counts of contexts of three words, of all prefixes, and of the built-in stories."""
    whole = count(text, context=3, tokenizer="word")
    for V, m in SIZES:
        save_text(whole.limited(top_contexts=m, vocabulary=V), folder / f"tinystories_{V}x{m}.npz")
    prefixes = count(text, context=3, windows="prefixes")
    save_text(prefixes.limited(top_contexts=382, vocabulary=104), folder / "prefixes.npz")
    built_in = count(islice(stories(0), 3_000), context=3)
    save_text(built_in.limited(top_contexts=382, vocabulary=104), folder / "stories_104x382.npz")


def write_small_texts(text: str, novel: str, folder: Path) -> None:
    """Some 400 contexts of stories by byte pairs, and of a novel by words; 120 next tokens."""
    pairs = count(text, context=3, tokenizer="bpe:1024").limited(top_contexts=400, vocabulary=120)
    save_text(pairs, folder / "tinystories_bpe_400.npz")
    words = count(novel, context=2, tokenizer="word").limited(top_contexts=400, vocabulary=120)
    save_text(words, folder / "moby_400.npz")


def write_windows(text: str, folder: Path) -> None:
    """Windows with the story that each is from, so that parts of the text can be counted."""
    for V, m in PARTS:
        windows = load_windows(text, {"context": 3, "contexts": m, "vocabulary": V})
        windows.save(folder / f"tinystories_windows_{V}x{m}.npz")


def write_split_texts(text: str, folder: Path) -> None:
    """Texts split into nine tenths to train on and one tenth held out, and predictions for the first part."""
    shared = {"seed": 0, "held_out": 0.1, "context": 3}
    built_in = {**shared, "text": "", "stories": 2_000, "separator": "auto"}
    natural = {**shared, "text": text, "separator": END}
    cuts = {
        "stories": (built_in, {"top_contexts": 382, "vocabulary": 104}),
        "tinystories": (natural, {"top_contexts": 4_000, "vocabulary": 999, "rest": "merge"}),
    }
    for name, (recipe, cut) in cuts.items():
        kept, rest = count_parts(recipe, SilentProgress())
        split = SplitText.of(kept.limited(**cut), rest)
        split.save(folder / f"start_{name}.npz")
        PredictedFactors.solve(split.stats, 0.05, "cpu").save(folder / f"start_{name}_at_loss.npz")


def write_papers_text(text: str, folder: Path) -> None:
    """The first 100 stories in lower case, with a byte-pair encoding of 64 tokens trained on them, contexts of 6."""
    parts = Path(text).read_text(encoding="utf-8").split(END)
    first = [part.strip().lower() for part in parts if part.strip()][:100]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.train_from_iterator(first, trainers.BpeTrainer(vocab_size=64, show_progress=False))
    with TemporaryDirectory() as scratch:
        tokenizer.save(f"{scratch}/bpe.json")
        save_text(count(first, context=6, tokenizer=f"{scratch}/bpe.json"), folder / "papers_tinystories.npz")


def write_other_kinds(novel: str, folder: Path) -> None:
    """Texts of two other kinds: 25 chapters of Moby-Dick by words, and eight modules of Python by byte pairs."""
    chapters = re.split(r"\n(?=CHAPTER )", Path(novel).read_text(encoding="utf-8"))
    first = [chapter for chapter in chapters if len(chapter) > 1_000][:25]
    words = count(first, context=2, tokenizer="word").limited(vocabulary=499, rest="merge")
    save_text(words, folder / "moby_500.npz")
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-d]*.py"))[:8]
    code = [module.read_text(encoding="utf-8") for module in modules]
    save_text(count(code, context=4, tokenizer="bpe:256"), folder / "code_256.npz")


def write_starts(text: str, novel: str, folder: Path) -> None:
    """Smaller texts of four kinds, other parts than those above."""
    chapters = re.split(r"\n(?=CHAPTER )", Path(novel).read_text(encoding="utf-8"))
    later = [chapter for chapter in chapters if len(chapter) > 1_000][40:41]
    module = Path(sysconfig.get_path("stdlib"), "textwrap.py").read_text(encoding="utf-8")
    half = Path(text).read_text(encoding="utf-8").split(END)[1_500:]
    texts = {
        "moby": count([later[0][:25_000]], context=2, tokenizer="word").limited(vocabulary=199, rest="merge"),
        "code": count([module], context=3, tokenizer="bpe:256"),
        "letters": count([later[0][:12_000]], context=3, tokenizer="char"),
        "words": count(half, context=2, tokenizer="word").limited(top_contexts=2_500, vocabulary=500),
    }
    for name, stats in texts.items():
        save_text(stats, folder / f"starts_{name}.npz")


def write_documents(text: str, novel: str, folder: Path) -> None:
    """Documents of three kinds: 20 stories, the first letters of 20 chapters, and parts of 30 modules of Python."""
    chapters = re.split(r"\n(?=CHAPTER )", Path(novel).read_text(encoding="utf-8"))
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("[e-t]*.py"))
    code = [module.read_text(encoding="utf-8").partition("\ndef ")[2][:800] for module in modules]
    documents = {
        "stories": [part.strip() for part in Path(text).read_text(encoding="utf-8").split(END)][2_000:2_020],
        "letters": [chapter[:600] for chapter in chapters if len(chapter) > 1_000][45:65],
        "code": [part for part in code if len(part) == 800][:30],
    }
    for name, parts in documents.items():
        (folder / f"documents_{name}.txt").write_text(END.join(parts), encoding="utf-8")


def write_statistics(text: str, novel: str, folder: Path) -> None:
    """Saved statistics: the most frequent contexts of stories, a novel and code, by words."""
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    code = [module.read_text(encoding="utf-8") for module in modules]
    wholes = {
        "tinystories": count(text, context=3, tokenizer="word"),
        "moby": count(novel, context=2, tokenizer="word"),
        "code": count(code, context=3, tokenizer="code"),
    }
    for name, whole in wholes.items():
        for V, m in STATISTICS:
            whole.limited(top_contexts=m, vocabulary=V).save(folder / f"{name}_{m}")
    longer = {
        "stories": count(context=5),
        "tinystories": count(text, context=5, tokenizer="word"),
        "moby": count(novel, context=5, tokenizer="char"),
    }
    for name, whole in longer.items():
        whole.limited(top_contexts=400, vocabulary=100).save(folder / f"{name}_c5_400")
    plain = {
        "tinystories": Path(text).read_text(encoding="utf-8").replace(END, " "),
        "moby": Path(novel).read_text(encoding="utf-8"),
        "code": "".join(code),
    }
    for name, letters in plain.items():
        # A link of this name may lead to the text that was read.
        (folder / f"{name}.txt").unlink(missing_ok=True)
        (folder / f"{name}.txt").write_text(letters, encoding="utf-8")


def write_subwords(text: str, novel: str, folder: Path) -> None:
    """Saved statistics of the same three texts by byte pairs of 1,000 tokens."""
    code = [module.read_text(encoding="utf-8") for module in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))]
    for name, given in {"tinystories": text, "moby": novel, "code": code}.items():
        whole = count(given, context=3, tokenizer="bpe:1000")
        for V, m in SUBWORDS:
            whole.limited(top_contexts=m, vocabulary=V).save(folder / f"{name}-bpe_{m}")


def main() -> None:
    """Write everything, in about three minutes on two CPU cores; most of it is a prediction of 1,000 x 4,000."""
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    text, novel, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3] if len(sys.argv) == 4 else "texts")
    folder.mkdir(parents=True, exist_ok=True)
    for write in (write_counts, write_windows, write_papers_text, write_split_texts):
        write(text, folder)
        sys.stdout.write(f"{write.__name__}: done\n")
    write_small_texts(text, novel, folder)
    write_other_kinds(novel, folder)
    write_starts(text, novel, folder)
    write_documents(text, novel, folder)
    write_statistics(text, novel, folder)
    write_subwords(text, novel, folder)


if __name__ == "__main__":
    main()
