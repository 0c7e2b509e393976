"""Memory does not grow with the input: measured on a process of its own, at two sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tokengeom.corpus.stories import write_stories

READ = """
import resource, sys
from tokengeom.corpus.locate import ReadingOptions, open_corpus
from tokengeom.progress import SilentProgress
from tokengeom.statistics.reading import _watched
from tokengeom.statistics.token_table import TokenTableWriter
from tokengeom.corpus.make_tokenizer import make_tokenizer
from pathlib import Path
sources = open_corpus(sys.argv[1], ReadingOptions(separator=sys.argv[3]))
with TokenTableWriter(Path(sys.argv[2]), 4, 5) as writer:
    for name, batch in _watched(sources, make_tokenizer("word"), SilentProgress()):
        writer.add(batch, name)
print(writer.totals.tokens, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak(path: Path, out: Path, separator: str) -> tuple[int, int]:
    out.mkdir()
    command = [sys.executable, "-c", READ, str(path), str(out), separator]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    tokens, kilobytes = found.stdout.split()
    return int(tokens), int(kilobytes) * 1024


@pytest.mark.parametrize("separator", ["blank", "file"])
def test_reading_ten_times_the_text_takes_no_more_memory(tmp_path: Path, separator: str) -> None:
    """From 3 MB to 30 MB of text; even one document as long as the file must not be held whole."""
    write_stories(tmp_path / "small.txt", 600_000)
    text = (tmp_path / "small.txt").read_bytes()
    with (tmp_path / "large.txt").open("wb") as file:
        for _ in range(10):
            file.write(text)
    few, small = peak(tmp_path / "small.txt", tmp_path / "out-small", separator)
    many, large = peak(tmp_path / "large.txt", tmp_path / "out-large", separator)
    assert many == 10 * few
    assert large - small < 15e6, "thirty megabytes of text must not add fifteen megabytes of memory"
