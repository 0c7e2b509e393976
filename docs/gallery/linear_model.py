"""The linear model: fixed embeddings with enough dimensions separate the data; with too few they cannot."""

import numpy as np

import tokengeom as tg
from tokengeom.corpus.synthetic import random_soft_labels

truth = random_soft_labels(V=10, m=12, k=3, seed=0).truth
stats = tg.NextTokenStatistics.from_probabilities(truth.P, truth.pi)
rng = np.random.default_rng(0)

for d in (15, 2):
    linear = tg.predict(stats, embeddings=rng.normal(size=(d, stats.m)))
    print(f"--- {d} dimensions for {stats.m} contexts")
    print(f"compatible: {bool(linear.compatible)}; separable: {bool(linear.separable)}; margin {linear.margin:.4g}")
    print(linear.separable.sentence)
    print(f"predicted limit of the loss: {linear.loss_floor:.4f} nats; entropy: {linear.entropy:.4f} nats")
