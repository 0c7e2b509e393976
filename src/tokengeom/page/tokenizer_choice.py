"""The tokenizer that suits a text: words, characters or program code, from its spaces, scripts and marks."""

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
"""Scripts written without spaces between words, by the range of their characters in Unicode."""
FEWEST_SPACES = 0.02
"""Share of white space below which it cannot separate words: words would have 50 characters."""
CODE_MARKS = frozenset("{}()[]=;_")
MOST_MARKS, MOST_INDENTED = 0.045, 0.2
"""A text with more of these marks among its visible characters, and more indented lines, is taken for code."""


def choose_tokenizer(documents: Iterable[str]) -> tuple[str, str]:
    """Name of the tokenizer that suits a text, and the reason in a sentence."""
    seen: Counter[str] = Counter()
    lines = indented = 0
    for document in documents:
        seen.update(document)
        for line in filter(str.strip, document.split("\n")):
            lines, indented = lines + 1, indented + line[0].isspace()
    total = max(sum(seen.values()), 1)
    letters = max(sum(count for one, count in seen.items() if one.isalpha()), 1)
    by_script = {name: sum(n for one, n in seen.items() if a <= ord(one) <= b) for name, (a, b) in UNSPACED.items()}
    unspaced = sum(by_script.values()) / letters
    spaces = sum(count for one, count in seen.items() if one.isspace()) / total
    if unspaced > 0.5:
        script = max(by_script, key=lambda name: by_script[name])
        return "character", (
            f"Tokens are characters: {min(unspaced, 1.0):.0%} of the letters belong to a script without spaces between "
            f"words (mostly {script})."
        )
    if spaces < FEWEST_SPACES:
        return "character", (
            f"Tokens are characters: only {spaces:.1%} of the text is white space, too little to separate words."
        )
    visible = max(sum(count for one, count in seen.items() if not one.isspace()), 1)
    marks = sum(seen[one] for one in CODE_MARKS) / visible
    if marks > MOST_MARKS and indented > MOST_INDENTED * lines:
        return "code", (
            f"Tokens are those of program code, in its own case, with line breaks and indentation: {marks:.0%} of the "
            f"visible characters are brackets and the like, and {indented / lines:.0%} of the lines are indented."
        )
    return "word", (
        "Tokens are lower-case words and punctuation marks, because the text separates words with white space "
        f"({spaces:.0%} of its characters)."
    )
