"""Run what the guide's pages begin with, and keep what it prints: ``python docs/guide/outputs/make.py FOLDER``.

These commands need texts and a checkpoint that are no part of the repository, so the tests compare the pages with the
outputs kept here instead of running them. FOLDER has the files in `SOURCES`; it takes some ten minutes on one core.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = {
    "moby-dick.txt": "1ba9ca1030eab6c205e2fa819109900e566e810d978966aa90f2dba8c15d1326",
    "tinystories.txt": "57ae33796a6b9213c15c8532e666d6eaa17476e21b3af577381de805db0f406d",
    "stories260K/model.safetensors": "407a7c581bdd66972383ce9ad24857713fb98786d06ea564a2fe9b34ebe77dfd",
}
"""File -> SHA-256. *Moby-Dick* (Melville, 1851; in the public domain, Project Gutenberg's number 2701) from the heading
of its first chapter to the end; 3,117 TinyStories (CDLA-Sharing-1.0); Karpathy's stories260K (MIT) in the layout of
Hugging Face.
"""
PAGES = (
    "what_will_a_text_do",
    "contexts_never_seen",
    "why_are_two_near",
    "two_texts",
    "does_my_model_obey",
    "watch_a_training",
)
"""In this order: later ones use folders that the first one makes."""
OPENING = re.compile(r'<!-- skip: next "needs the [^"]*" -->\n```(console|python)\n(.*?)^```', re.DOTALL | re.MULTILINE)
WIDTH = "100"
"""Columns of the terminal, as in the tests of the documentation."""


def opening(page: str) -> tuple[str, str]:
    """Language and text of the block that a page begins with."""
    found = OPENING.search((HERE.parent / f"{page}.md").read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit(f"{page}.md has no block that needs files of FOLDER.")
    return found[1], found[2]


def require_sources(folder: Path) -> None:
    """Refuse a folder in which a file is missing or another one."""
    for name, expected in SOURCES.items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            raise SystemExit(f"{path} must be the file with SHA-256 {expected}; it is missing or another one.")


def run(command: list[str] | str, folder: Path) -> str:
    """What a command prints; it must not fail."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": WIDTH, "NO_COLOR": "1"}
    done = subprocess.run(
        command, shell=isinstance(command, str), cwd=folder, env=environment, text=True, capture_output=True
    )
    if done.returncode != 0:
        raise SystemExit(f"{command} failed:\n{done.stderr}")
    return done.stdout


def kept(written: str) -> str:
    """Output without spaces at the end of lines and without seconds, which were taken on a machine that others used."""
    without_seconds = re.sub(r"(?m)^[\d.]+ (?:s|min)\. (?=Saved)", "", written)
    return "".join(f"{line.rstrip()}\n" for line in without_seconds.splitlines())


def main() -> None:
    """Run every opening in one empty folder, with links to the files of FOLDER."""
    sources = Path(sys.argv[1]).resolve()
    require_sources(sources)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in sources.iterdir():
            (folder / path.name).symlink_to(path)
        for page in PAGES:
            language, text = opening(page)
            if language == "python":
                written = run([sys.executable, "-c", text], folder)
            else:
                commands = re.findall(r"(?m)^\$ (.*)$", text)
                written = "".join(f"$ {command}\n{run(command, folder)}" for command in commands)
            (HERE / f"{page}.txt").write_text(kept(written), encoding="utf-8")


if __name__ == "__main__":
    main()
