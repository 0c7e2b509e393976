from __future__ import annotations

import numpy as np
import pytest

from feature_cases import from_counts, random_counts
from figure_cases import line_panel
from tokengeom import predict
from tokengeom.extending import ProblemError
from tokengeom.extending import path as draw_path
from tokengeom_studies.common.logit_path import LogitPath, regularisation_path

STATS = from_counts(random_counts(30, 16, 3, seed=0))
PREDICTION = predict(STATS, tolerance=1e-9)


@pytest.fixture(scope="module")
def path() -> LogitPath:
    return regularisation_path(STATS, PREDICTION.L_mm, np.logspace(-1, -12, 23))


def test_every_point_is_proven(path: LogitPath) -> None:
    assert path.column("lam")[0] == pytest.approx(1e-1)
    assert path.column("lam")[-1] == pytest.approx(1e-12)
    assert (path.relative_gaps <= 1e-6).all()
    for point in path.points:
        assert point.certificate.bound <= point.certificate.value * (1 + 1e-12)


def test_the_loss_falls_to_its_floor_at_the_rate_of_lambda(path: LogitPath) -> None:
    assert (np.diff(path.column("loss_gap")) <= 0).all()
    assert 0 < path.points[-1].loss_gap < 1e-9
    assert path.loss_rate == pytest.approx(1.0, abs=0.01)


def test_the_loss_gap_over_lambda_tends_to_the_nuclear_norm_of_the_direction(path: LogitPath) -> None:
    last = path.points[-1]
    assert last.loss_gap / last.lam == pytest.approx(PREDICTION.nuclear_norm, rel=0.01)


def test_the_finite_part_is_approached_at_the_rate_of_lambda(path: LogitPath) -> None:
    assert path.points[-1].finite_distance < 1e-9
    assert path.finite_rate == pytest.approx(1.0, abs=0.05)


def test_the_direction_is_approached_like_one_over_the_squared_logarithm(path: LogitPath) -> None:
    cosine = path.column("direction_cosine")[1:]
    assert (np.diff(cosine[np.isfinite(cosine)]) > 0).all()
    assert cosine[-1] > 0.995
    assert -2.4 < path.direction_rate < -1.6
    growth = np.diff(path.column("growth")[-10:]) / np.diff(-np.log(path.column("lam")[-10:]))
    assert growth == pytest.approx(1.0, abs=0.1)


def test_under_strong_regularisation_the_logits_are_zero() -> None:
    path = regularisation_path(STATS, PREDICTION.L_mm, [10.0])
    assert path.points[0].nuclear_norm <= 1e-9
    assert np.isnan(path.points[0].direction_cosine) or path.points[0].nuclear_norm == 0.0


def test_full_supports_have_a_finite_limit() -> None:
    stats = from_counts(np.random.default_rng(0).integers(1, 9, (5, 7)))
    path = regularisation_path(stats, np.zeros((5, 7)), np.logspace(-2, -9, 8))
    assert path.points[-1].finite_distance < 1e-4
    assert np.isnan(path.points[-1].direction_cosine)
    assert np.isnan(path.direction_rate)


def test_rows_are_plain_numbers(path: LogitPath) -> None:
    rows = path.to_rows()
    assert len(rows) == 23
    assert all(isinstance(value, float) for value in rows[0].values())


@pytest.mark.parametrize("lambdas", [[], [0.0], [-1.0, 0.1], [np.nan]])
def test_strengths_that_cannot_be_used_are_refused(lambdas: list[float]) -> None:
    with pytest.raises(ProblemError, match="> 0"):
        regularisation_path(STATS, PREDICTION.L_mm, lambdas)


def test_a_direction_of_another_shape_is_refused() -> None:
    with pytest.raises(ProblemError, match="merged logits"):
        regularisation_path(STATS, np.zeros((2, 2)), [0.1])


def test_the_figure_has_one_point_per_strength(path: LogitPath) -> None:
    figure = draw_path(path.columns())
    assert [panel.title for panel in figure.panels][:2] == ["Loss gap", "Finite part"]
    assert line_panel(figure, "Loss gap").curves[0].x.size == 23
    assert "nan" not in figure.caption
