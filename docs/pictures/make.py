"""Make the pictures of docs/getting_started.md, in this folder: ``python docs/pictures/make.py`` (takes minutes).

The commands and the Python code of the page run in an empty folder, and so does its ``tokengeom report``. A headless
Chromium takes the screenshots of the report, which get at most 256 colours, to keep them small.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
PAGE = HERE.parent / "getting_started.md"
SHOTS = {
    "report.png": ("", (1200, 600), (0, 0, 1200, 600)),
    "explore.png": ("#explore?token=happy", (1400, 9000), (290, 1300, 1400, 2420)),
}
"""Picture -> fragment of the address, size of the window, and the part of it that is kept, in pixels."""
COLOURS = 256


def run_page(folder: Path) -> None:
    """Run the commands and the code of the page."""
    for kind, text in re.findall(r"(?m)^```(console|python)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        if kind == "python":
            subprocess.run([sys.executable, "-c", "import tokengeom as tg\n" + text], cwd=folder, check=True)
            continue
        for command in re.findall(r"(?m)^\$ (.*)$", text):
            subprocess.run(command, shell=True, cwd=folder, check=True)


def photograph_report(folder: Path) -> None:
    """Make the report, and keep the parts of it that the page shows."""
    subprocess.run("tokengeom report stories.txt --out report.html", shell=True, cwd=folder, check=True)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=15000"]
    for name, (fragment, (width, height), part) in SHOTS.items():
        shot = folder / name
        size, address = f"--window-size={width},{height}", (folder / "report.html").as_uri() + fragment
        subprocess.run(["chromium", *options, size, f"--screenshot={shot}", address], check=True)
        with Image.open(shot) as whole:
            small = whole.crop(part).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            small.save(HERE / name, optimize=True)


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_page(folder)
        for picture in ("tokens.png", "contexts.png"):
            with Image.open(folder / picture) as drawn:
                drawn.save(HERE / picture, optimize=True)
        photograph_report(folder)


if __name__ == "__main__":
    main()
