"""The linear model with its conditions: in too few dimensions the data cannot be separated, and the answer says so."""

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
    print(f"the loss tends to {linear.loss_floor:.4f} nats; the entropy is {linear.entropy:.4f}")
