"""
The limit of training, without training
=======================================

The best decoder within a norm bound converges to the predicted direction as the bound grows
:cite:p:`thrampoulidis2024`. Each point of this regularisation path is solved for, which shows the limit at norms that
no training reaches.
"""

import numpy as np

import tokengeom as tg
from tokengeom.figures.static import save_static
from tokengeom.figures.training_curves import path as draw_path
from tokengeom.theory.linear_path import norm_path

rng = np.random.default_rng(1)
P = np.zeros((8, 10))  # 3 of 8 tokens may follow each of 10 contexts
for j in range(10):
    P[rng.choice(8, 3, replace=False), j] = rng.dirichlet(np.ones(3))
stats = tg.NextTokenStatistics.from_probabilities(P)
linear = tg.predict(stats, embeddings=rng.normal(size=(14, stats.m)))

path = norm_path(linear, [3.0, 10.0, 30.0, 100.0, 300.0, 1000.0])
print("norm   loss above its infimum   cosine with W_mm   error of the finite part")
for point in path.points:
    print(f"{point.norm:5.0f}   {point.loss_gap:22.3e}   {point.cosine:16.6f}   {point.finite_error:24.2e}")

# %%
# The same numbers as curves.

save_static(draw_path(path), "path.png")
