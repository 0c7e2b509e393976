"""Blocks of columns: where they are kept, and that norms and certificates do not depend on how a matrix is cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csc_array

from feature_cases import random_pattern, random_probabilities
from tokengeom.core.errors import ProblemError
from tokengeom.problems.backend import Backend
from tokengeom.problems.columns import Columns, Computed, Layout, SparseColumns, mapped, per_column
from tokengeom.problems.gamma2 import Gamma2Logits, MaxNormFactors, WeightedDual
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.problems.supports import reduce_support

BACKENDS = {
    "numpy": replace(Backend.on(), largest_block=40),
    "torch": replace(Backend.on("cpu"), largest_block=40),
    "host": replace(Backend.on("cpu"), largest_block=40, device_memory=1),
}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param]


def test_a_matrix_is_cut_into_blocks_of_nearly_equal_width_that_hold_all_columns() -> None:
    layout = Layout.of(replace(Backend.on(), largest_block=40), 6, 50)
    assert len(layout) == 8
    assert [column for part in layout.slices for column in range(50)[part]] == list(range(50))
    assert {part.stop - part.start for part in layout.slices} == {6, 7}
    assert len(Layout.of(Backend.on(), 6, 50)) == 1
    assert len(Layout.of(replace(Backend.on(), largest_block=1), 6, 3)) == 3, "a column is never cut"
    assert len(Layout.of(Backend.on(), 2_000, 4_000)) > 1
    assert len(Layout.of(Backend.on(), 4_000, 2_000)) == 1, "the Gram matrix of columns is the smaller one"


def test_blocks_are_kept_by_the_host_where_the_device_is_too_small() -> None:
    enough = replace(Backend.on("cpu"), largest_block=40, device_memory=2**20)
    assert not Layout.of(enough, 6, 50).on_host
    assert Layout.of(BACKENDS["host"], 6, 50).on_host


def test_blocks_that_are_kept_can_be_replaced_copied_and_taken(backend: Backend) -> None:
    x = np.random.default_rng(0).standard_normal((6, 50))
    layout = Layout.of(backend, 6, 50)
    kept = layout.kept(layout.split(x))
    copied = kept.copy()
    kept[1] = 2.0 * kept[1]
    part = layout.slices[1]
    assert np.array_equal(backend.whole(copied), x)
    assert np.array_equal(backend.whole(kept)[:, part], 2.0 * x[:, part])
    assert np.array_equal(backend.to_numpy(copied.take(0)), x[:, layout.slices[0]])
    assert 0 not in copied
    single = Columns(layout, single=True)
    single[0] = layout.split(x)[0]
    rounded = backend.to_numpy(single[0])
    assert rounded.dtype == backend.to_numpy(single.copy()[0]).dtype == np.float64
    assert np.array_equal(rounded, x[:, layout.slices[0]].astype(np.float32))
    doubled = mapped(lambda block: 2.0 * block, layout.split(x))
    assert np.array_equal(backend.whole(doubled), 2.0 * x)
    assert backend.to_numpy(per_column(lambda block: block[0], doubled)) == pytest.approx(2.0 * x[0])


def test_one_block_is_computed_once_and_several_whenever_they_are_used() -> None:
    calls: list[int] = []

    def counted(k: int) -> float:
        calls.append(k)
        return 1.0

    for layout in (Layout.of(Backend.on(), 6, 50), Layout.of(BACKENDS["numpy"], 6, 50)):
        blocks = Computed(layout, counted)
        assert [blocks[0], blocks[0]] == [1.0, 1.0]
    assert calls == [0, 0, 0]


def test_a_sparse_matrix_gives_its_dense_blocks(backend: Backend) -> None:
    P = random_probabilities(6, 50, 0)
    layout = Layout.of(backend, 6, 50)
    sparse = SparseColumns(layout, csc_array(P))
    assert sparse.shape == (6, 50)
    assert np.array_equal(backend.whole(Computed(layout, lambda k: sparse[k])), P)


def test_norms_do_not_depend_on_the_blocks(backend: Backend) -> None:
    x = np.random.default_rng(1).standard_normal((6, 50))
    blocks, s = Layout.of(backend, 6, 50).split(x), np.linalg.svd(x, compute_uv=False)
    assert backend.norm(blocks) == pytest.approx(np.linalg.norm(x), rel=1e-14)
    assert np.allclose(backend.to_numpy(backend.gram(blocks)), x @ x.T)
    assert np.allclose(backend.to_numpy(backend.fast_singular_values(blocks))[::-1], s)
    assert s[0] <= backend.proven_spectral_norm(blocks) <= s[0] * (1 + 1e-12)
    assert s.sum() <= backend.proven_nuclear_norm(blocks) <= s.sum() * (1 + 1e-12)
    root, values = backend.polar_root(blocks)
    assert np.allclose(backend.to_numpy(values)[::-1], s)
    assert np.allclose(backend.to_numpy(root) @ x @ x.T @ backend.to_numpy(root), np.eye(6))
    assert backend.all_finite(blocks)
    assert not backend.all_finite(mapped(lambda block: block * np.inf, blocks))


def test_certificates_in_blocks_are_those_of_whole_matrices(backend: Backend) -> None:
    rng = np.random.default_rng(2)
    reduction = reduce_support(random_pattern(6, 50, 3, density=0.4))
    whole, blocked = NuclearSVM(reduction), NuclearSVM(reduction, backend)
    assert len(blocked.layout) > 2
    L, G = rng.standard_normal((2, *whole.shape))
    for dual in (G, None):
        assert_same(blocked.certify(L, dual), whole.certify(L, dual))
    assert blocked.inner(G) == pytest.approx(float((whole.B * G).sum()), rel=1e-12)
    P, pi = random_probabilities(6, 50, 4), rng.dirichlet(np.full(50, 5.0))
    one = RegularisedLogits.from_probabilities(P, pi, 1e-2, n=rng.integers(1, 4, 50))
    several = RegularisedLogits.from_probabilities(P, pi, 1e-2, n=one.n, backend=backend)
    L, change = rng.standard_normal((6, 50)), one.dual_change(rng.standard_normal((6, 50)))
    assert_same(several.certify(L, change), one.certify(L, change))
    assert several.loss_gap(L) == pytest.approx(one.loss_gap(L), rel=1e-13)
    assert several.zero_gap == pytest.approx(one.zero_gap, rel=1e-13)
    assert several.largest_lam == pytest.approx(one.largest_lam, rel=1e-12)
    assert np.array_equal(backend.whole(several.blocks_of_P()), P)
    factors = MaxNormFactors(rng.standard_normal((6, 3)), rng.standard_normal((3, 50)))
    dual = WeightedDual(change, rng.uniform(0.5, 1.0, 6), rng.uniform(0.5, 1.0, 50))
    assert_same(Gamma2Logits(several).certify(factors, dual), Gamma2Logits(one).certify(factors, dual))


def assert_same(found: object, wanted: object) -> None:
    for name in ("primal_residual", "dual_residual", "value", "bound"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-11, abs=1e-13)


def test_the_rounding_allowance_of_a_certificate_in_blocks_is_not_smaller(backend: Backend) -> None:
    """The bound of the entropy in blocks may not prove more than that of the whole matrix does, up to its rounding."""
    rng = np.random.default_rng(5)
    P, pi = random_probabilities(6, 50, 6), rng.dirichlet(np.full(50, 5.0))
    one = RegularisedLogits.from_probabilities(P, pi, 1e-2)
    several = RegularisedLogits.from_probabilities(P, pi, 1e-2, backend=backend)
    change = one.dual_change(rng.standard_normal((6, 50)))
    (gain, rounding), (wanted, _) = several.entropy_gain(change), one.entropy_gain(change)
    assert abs(gain - wanted) <= rounding
    assert 0.0 < rounding < 1e-11


def test_sparse_probabilities_that_are_not_distributions_are_refused() -> None:
    backend = BACKENDS["numpy"]
    P = random_probabilities(6, 50, 0)
    P[:, 3] = 0.0
    with pytest.raises(ProblemError, match="Each column of P must be a distribution"):
        RegularisedLogits.from_probabilities(P, np.full(50, 0.02), 1.0, backend=backend)
