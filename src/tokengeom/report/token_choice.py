"""Which tokens suit a text: words where spaces part them, characters where the script has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

UNSPACED = {
    "Han": (0x3400, 0x9FFF),
    "rare Han": (0x20000, 0x323AF),
    "compatibility Han": (0xF900, 0xFAFF),
    "Hiragana or Katakana": (0x3040, 0x30FF),
    "Thai": (0x0E00, 0x0E7F),
    "Lao": (0x0E80, 0x0EFF),
    "Tibetan": (0x0F00, 0x0FFF),
    "Myanmar": (0x1000, 0x109F),
    "Khmer": (0x1780, 0x17FF),
}
"""Scripts whose words are written without spaces between them, by the range of their characters in Unicode."""
FEWEST_SPACES = 0.02
"""Share of white space below which spaces cannot part words: it would mean words of 50 characters."""


def choose_tokenizer(documents: Iterable[str]) -> tuple[str, str]:
    """A tokenizer's name, and the reason in a sentence."""
    seen: Counter[str] = Counter()
    for document in documents:
        seen.update(document)
    total = max(sum(seen.values()), 1)
    letters = max(sum(count for one, count in seen.items() if one.isalpha()), 1)
    by_script = {name: sum(n for one, n in seen.items() if a <= ord(one) <= b) for name, (a, b) in UNSPACED.items()}
    without_spaces = sum(by_script.values()) / letters
    spaces = sum(count for one, count in seen.items() if one.isspace()) / total
    if without_spaces > 0.5:
        script = max(by_script, key=lambda name: by_script[name])
        return "character", (
            f"Tokens are characters: {min(without_spaces, 1.0):.0%} of the letters belong to a script without spaces "
            f"between words (mostly {script})."
        )
    if spaces < FEWEST_SPACES:
        return "character", (
            f"Tokens are characters: only {spaces:.1%} of the text is white space, too little to part words."
        )
    return "word", (
        f"Tokens are words in lower case and single punctuation marks: {spaces:.0%} of the text is white space, "
        "which parts words."
    )
