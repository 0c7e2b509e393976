"""What statistics say of themselves agrees with what they hold."""

from __future__ import annotations

from tokengeom import NextTokenStatistics, count
from tokengeom.statistics.saved_statistics import summary
from tokengeom.verification.verify import check_result


def test_the_summary_and_the_table_say_what_the_statistics_are(built_in: NextTokenStatistics) -> None:
    cut = built_in.limited(top_contexts=400, vocabulary=104)
    lines = summary(cut).splitlines()
    assert lines[0] == f"{cut.n:,} windows with {cut.m} distinct contexts and 104 next tokens (tokenizer: word)."
    assert f"{cut.entropy:.4f} nats" in lines[1]
    assert lines[3].startswith("Kept: the 400 most frequent contexts;")
    assert repr(cut) == (
        f"NextTokenStatistics(windows={cut.n:,} ({cut.coverage:.1%} of the text's), contexts={cut.m}, vocabulary=104, "
        f"entropy floor={cut.entropy:.4f} nats, distinct supports={cut.groups.count})"
    )
    assert {"windows", "contexts", "vocabulary", "entropy_nats", "distinct_supports", "one_hot_share"} <= set(
        cut.to_dict()
    )
    assert {"hash", "corpus", "cuts", "warnings"} <= set(cut.to_dict())
    assert check_result(cut) == {}, "there is nothing to compare with before statistics are saved"


def test_statistics_name_their_tokenizer_or_say_that_they_have_token_ids() -> None:
    assert count(["a b c"], context=1, tokenizer="character").tokenizer_name == "character"
    ids = count([[0, 1, 2]], context=1)
    assert (ids.tokenizer_name, ids.to_dict()["tokenizer"]) == ("token ids", None)
    assert "tokenizer: token ids" in ids.summary()
    assert NextTokenStatistics.from_counts([[1]]).tokenizer_name == "none"
