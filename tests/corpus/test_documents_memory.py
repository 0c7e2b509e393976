"""Memory does not grow with the input: measured in a separate process, at two sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tokengeom.corpus.stories import write_stories

READ = """
import resource, sys
from tokengeom.corpus.locate import ReadingSettings, open_corpus
from tokengeom.core.progress import SilentProgress
from tokengeom.statistics.reading import token_batches
from tokengeom.statistics.token_table import TokenTableWriter
from tokengeom.corpus.tokenizers import make_tokenizer
from pathlib import Path
sources = open_corpus(sys.argv[1], ReadingSettings(separator=sys.argv[3]))
with TokenTableWriter(Path(sys.argv[2]), 4) as writer:
    for name, batch in token_batches(sources, make_tokenizer("word"), SilentProgress()):
        writer.add(batch, name)
print(writer.totals.tokens, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak(path: Path, out: Path, separator: str) -> tuple[int, int]:
    out.mkdir()
    command = [sys.executable, "-c", READ, str(path), str(out), separator]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    tokens, kilobytes = found.stdout.split()
    return int(tokens), int(kilobytes) * 1024


@pytest.mark.parametrize("separator", [pytest.param("blank", marks=pytest.mark.slow), "file"])
def test_reading_four_times_the_text_needs_no_more_memory(tmp_path: Path, separator: str) -> None:
    """From 18 MB to 72 MB of text (by 18 MB every buffer has been full once); one document may be the whole file."""
    write_stories(tmp_path / "part.txt", 600_000)
    text = (tmp_path / "part.txt").read_bytes()
    sizes = {}
    for times in (6, 24):
        path = tmp_path / f"{times}.txt"
        with path.open("wb") as file:
            file.writelines(text for _ in range(times))
        sizes[times] = peak(path, tmp_path / f"out-{times}", separator)
    (few, small), (many, large) = sizes[6], sizes[24]
    assert many == 4 * few
    assert large - small < 20e6, "54 more megabytes of text must not add 20 megabytes of memory"
