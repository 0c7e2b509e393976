"""The kernel of an MLP of infinite width, compared with gradients of wide ones by autograd, and with integrals."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from tokengeom.models.networks.base import NetworkShape, architecture_named
from tokengeom.statistics.mlp_kernel import _through_gelu, kernel_of_overlaps, subset_weights

LENGTH, SHARED = 12, [12, 9, 5, 0]
CONTEXTS = torch.tensor([[p if p < shared else 12 + row for p in range(LENGTH)] for row, shared in enumerate(SHARED)])
"""Contexts that have these numbers of tokens in common with the first; long ones, where the input is widest."""


def mean_kernel(dim: int, layers: int, starts: int, *, biases: bool) -> np.ndarray[Any, Any]:
    """Inner products of gradients of a random direction of h, normalised, mean over random starts: of each context with
    the first one.
    """
    total = np.zeros(4)
    for start in range(starts):
        torch.manual_seed(start)
        body = architecture_named("mlp").body(NetworkShape(16, LENGTH, dim, layers=layers))
        for part in body.modules():
            if isinstance(part, torch.nn.Linear) and part.bias is not None and not biases:
                torch.nn.init.zeros_(part.bias).requires_grad_(False)
        parameters, v = [p for p in body.parameters() if p.requires_grad], torch.randn(dim) / dim**0.5
        rows = [torch.autograd.grad((body(CONTEXTS[[i]])[0, -1] * v).sum(), parameters) for i in range(4)]
        G = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows]).double().numpy()
        total += (G @ G[0]) / (np.linalg.norm(G, axis=1) * np.linalg.norm(G[0])) / starts
    return total


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_mean_over_random_starts_is_the_kernel(layers: int) -> None:
    """What biases contribute vanishes in the limit; without them a width of 64 is near to it."""
    expected = kernel_of_overlaps(LENGTH, layers)[SHARED]
    assert mean_kernel(64, layers, 60, biases=False) == pytest.approx(expected, abs=0.02)


def test_with_biases_the_distance_falls_as_networks_grow_wide() -> None:
    expected = kernel_of_overlaps(LENGTH, 3)[SHARED]
    narrow, wide, wider = (np.abs(mean_kernel(d, 3, 20, biases=True) - expected).max() for d in (8, 32, 128))
    assert wide < 0.7 * narrow
    assert wider < 0.5 * wide


def test_expectations_of_gelu_are_those_of_draws_and_of_torch() -> None:
    covariances = np.array([0.0, 0.1, 0.3, 0.4])
    drawn = np.random.default_rng(0).standard_normal((2, 400_000))
    value, slope = _through_gelu(covariances)
    for k, covariance in enumerate(covariances):
        ratio = covariance / 0.4
        u = math.sqrt(0.4) * torch.tensor(drawn[0])
        v = math.sqrt(0.4) * torch.tensor(ratio * drawn[0] + math.sqrt(1 - ratio**2) * drawn[1])
        u.requires_grad_(), v.requires_grad_()
        both = [torch.nn.functional.gelu(x) for x in (u, v)]
        slopes = [torch.autograd.grad(y.sum(), x)[0] for y, x in zip(both, (u, v), strict=True)]
        assert value[k] == pytest.approx(float((both[0] * both[1]).detach().mean()), abs=2e-3)
        assert slope[k] == pytest.approx(float((slopes[0] * slopes[1]).mean()), abs=2e-3)


@pytest.mark.parametrize("length", [1, 2, 4, 8])
def test_weights_add_up_to_the_kernel_which_rises_with_every_place_in_common(length: int) -> None:
    K, weights = kernel_of_overlaps(length, 2), subset_weights(length, 2)
    assert all(before < after for before, after in pairwise(K))
    assert K[-1] == 1.0
    for n in range(length + 1):
        assert sum(math.comb(n, k) * weights[k] ** 2 for k in range(n + 1)) == pytest.approx(K[n], abs=1e-8)
