"""A regularisation path: with a larger norm, the best decoder is closer to the predicted direction."""

import numpy as np

import tokengeom as tg
from tokengeom.corpus.synthetic import random_soft_labels
from tokengeom.theory.linear_path import norm_path

truth = random_soft_labels(V=8, m=10, k=3, seed=1).truth
stats = tg.NextTokenStatistics.from_probabilities(truth.P, truth.pi)
linear = tg.predict(stats, embeddings=np.random.default_rng(1).normal(size=(14, stats.m)))

path = norm_path(linear, [3.0, 10.0, 30.0, 100.0])
print("norm   loss above its infimum   cosine with W_mm   error of the finite part")
for point in path.points:
    print(f"{point.norm:5.0f}   {point.loss_gap:22.3e}   {point.cosine:16.6f}   {point.finite_error:24.2e}")
