"""
Fixed embeddings: the linear model
==================================

Where the embeddings of contexts are given and only the decoder is trained, the limit of training depends on two
conditions: compatibility and separability :cite:p:`thrampoulidis2024`. With enough dimensions both hold.
"""

import numpy as np

import tokengeom as tg
from tokengeom.figures.heatmaps import linear_plane
from tokengeom.figures.static import save_static

rng = np.random.default_rng(0)
P = np.zeros((10, 12))  # 3 of 10 tokens may follow each of 12 contexts
for j in range(12):
    P[rng.choice(10, 3, replace=False), j] = rng.dirichlet(np.ones(3))
stats = tg.NextTokenStatistics.from_probabilities(P)

for d in (15, 2):
    linear = tg.predict(stats, embeddings=rng.normal(size=(d, stats.m)))
    print(f"--- {d} dimensions for {stats.m} contexts")
    print(f"compatible: {bool(linear.compatible)}; separable: {bool(linear.separable)}; margin {linear.margin:.4g}")
    print(linear.separable.sentence)
    print(f"predicted limit of the loss: {linear.loss_floor:.4f} nats; entropy: {linear.entropy:.4f} nats")

# %%
# In the plane: three contexts (points) and the rows of the predicted decoder (stars). Rows of the direction separate
# the support of each context from the other tokens; the finite part gives the probabilities within a support.

P = np.array([[0.6, 0, 0], [0.4, 0, 0], [0, 1, 0], [0, 0, 1]])
plane = tg.predict(
    tg.NextTokenStatistics.from_probabilities(P, np.full(3, 1 / 3)),
    embeddings=np.array([[0.0, -0.9, 0.9], [1.0, -0.5, -0.5]]),
)
save_static(linear_plane(plane), "plane.png", caption=False)
