"""Seams: places where a text may be split and its parts tokenized separately, with the same tokens.

A seam is recognised by the characters on both sides of it, whatever stands before and after them.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

_NEAR = 4096

BEFORE_WHITE_SPACE = re.compile(r"(?<=\S)(?=\s)")
AFTER_SINGLE_CHARACTER = re.compile(rf"{BEFORE_WHITE_SPACE.pattern}|(?<=[^\w\s\-+*/%&|^=!<>:@.])")
"""Before white space, or after a character that is not part of a longer operator of program code."""

# Only characters that every version of Unicode puts into the same class: ASCII, Latin, Cyrillic, kana, Chinese, Korean.
_LETTERS = r"a-zA-Z0-9\u00c0-\u00d6\u00d8-\u00f6\u0400-\u0481\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"
_PUNCTUATION = r"!-/:-@\[-`{-~\u3001\u3002\u300a-\u3011\uff01-\uff0f\uff1a-\uff20"
AFTER_LETTERS = re.compile(rf"(?<=[{_LETTERS}])(?=[{_PUNCTUATION}])|{BEFORE_WHITE_SPACE.pattern}")
"""Before white space, or after a letter or digit before punctuation: there GPT-2's pattern always ends a token."""


@cache
def after_punctuation() -> re.Pattern[str]:
    """Before white space, or after punctuation through which the case of a letter is not decided.

    The lower case of a capital sigma depends on the letters around it, through marks, points, apostrophes and others.
    """
    characters = map(chr, (*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200)))
    inside = "".join(re.escape(one) for one in characters if _is_mark(one) or _decides_case(one))
    return re.compile(rf"{BEFORE_WHITE_SPACE.pattern}|(?<=[^\w\s{inside}])")


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def _decides_case(character: str) -> bool:
    """Whether a capital sigma looks through the character, or at it, for the letters around."""
    before, after = f"\u0391\u03a3{character}\u0391".lower(), f"\u0391{character}\u03a3".lower()
    return before[1] != _FINAL_SIGMA or after[-1] == _FINAL_SIGMA


_FINAL_SIGMA = "\u03c2"


def last_match(pattern: re.Pattern[str], text: str) -> int:
    """Where the last match of a pattern in a text begins; 0 without a match."""
    # A match is rarely far from the end, so the last few thousand characters are searched first.
    for begin in (max(0, len(text) - _NEAR), 0):
        found = [match.start() for match in pattern.finditer(text, begin)]
        if found:
            return found[-1]
    return 0
