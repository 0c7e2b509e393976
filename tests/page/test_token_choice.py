"""Tokens that suit a script."""

from __future__ import annotations

import pytest

from tokengeom.page.choice import choose_tokenizer


@pytest.mark.parametrize(
    ("text", "kind", "script"),
    [
        ("Once upon a time there was a little girl.", "word", ""),
        ("Жила-была маленькая девочка, и звали её Маша.", "word", ""),
        ("옛날 옛적에 작은 소녀가 살았습니다.", "word", ""),
        ("从前有一个小女孩,她住在森林里。", "character", "Han"),
        ("むかしむかし、あるところに", "character", "Hiragana"),
        ("กาลครั้งหนึ่งนานมาแล้ว", "character", "Thai"),
        ("ACGTACGTTTGACAACGT" * 20, "character", "white space"),
    ],
)
def test_tokens_where_spaces_part_them_and_characters_where_none_do(text: str, kind: str, script: str) -> None:
    found, sentence = choose_tokenizer([text, text])
    assert found == kind
    assert script in sentence


def test_a_few_foreign_tokens_do_not_change_the_tokens() -> None:
    assert choose_tokenizer(["The sign said 你好 and the little girl read it aloud to her mother."])[0] == "word"


def test_an_empty_text_has_tokens_too() -> None:
    assert choose_tokenizer([])[0] == "character"
