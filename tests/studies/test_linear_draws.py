from __future__ import annotations

import numpy as np
import pytest

from tokengeom.errors import InputError
from tokengeom.studies.linear_draws import Draw, draw_counts, draw_setting, draw_supports, step_limit
from tokengeom.training import train


def test_supports_have_the_size_asked_for_and_every_token_is_as_likely() -> None:
    S = draw_supports(np.random.default_rng(0), V=6, m=6000, size=2)
    assert np.all(S.sum(axis=0) == 2)
    # Each token is in a third of 6000 supports: a binomial with standard deviation 36.
    assert np.all(np.abs(S.sum(axis=1) - 2000) < 5 * 36)


@pytest.mark.parametrize("size", [0, 7])
def test_a_support_that_no_vocabulary_can_hold_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=f"between 1 and V=6 tokens; got size={size}"):
        draw_supports(np.random.default_rng(0), V=6, m=3, size=size)


def test_counted_windows_show_exactly_the_supports() -> None:
    rng = np.random.default_rng(1)
    S = draw_supports(rng, V=7, m=9, size=4)
    stats = draw_counts(rng, S, n=100)
    assert stats.n == 100
    assert np.array_equal(stats.counts.toarray() > 0, S)


def test_too_few_windows_for_the_supports_are_refused() -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(InputError, match="n=5 windows cannot show each of 12 pairs"):
        draw_counts(rng, draw_supports(rng, V=7, m=4, size=3), n=5)


def test_a_setting_is_a_function_of_its_seed() -> None:
    settings = {"V": 5, "m": 6, "d": 8, "support_size": 2, "n": 60}
    one, same, other = (draw_setting(seed, **settings) for seed in (3, 3, 4))
    assert np.array_equal(one.H, same.H)
    assert np.array_equal(one.stats.counts.toarray(), same.stats.counts.toarray())
    assert not np.array_equal(one.H, other.H)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_gradient_descent_at_the_step_limit_never_climbs(scale: float) -> None:
    drawn = draw_setting(0, V=5, m=6, d=8, support_size=2, n=60)
    draw = Draw(drawn.stats, scale * drawn.H)
    run = train(
        draw.stats, "linear", embeddings=draw.H, learning_rate=step_limit(draw), steps=200, records_per_decade=50
    )
    assert np.all(np.diff(run.trajectory["loss_gap"]) < 0)
