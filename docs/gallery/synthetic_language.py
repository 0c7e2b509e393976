"""
How much text a prediction needs
================================

A synthetic language has known probabilities. With more text, the counted supports become complete, and the prediction
from the counts becomes the one from the true probabilities.
"""

import matplotlib.pyplot as plt
import numpy as np

import tokengeom as tg

rng, V = np.random.default_rng(0), 8
P = np.zeros((V, V))  # a Markov chain: 3 tokens may follow each token
for j in range(V):
    P[[(j + 1) % V, (j + 2) % V, (j + 5) % V], j] = rng.dirichlet(np.ones(3))
text = [0]
for _ in range(20_000):
    text.append(int(rng.choice(V, p=P[:, text[-1]])))
pi = np.linalg.matrix_power(P, 1000)[:, 0]  # how often each token occurs in the long run
truth = tg.NextTokenStatistics.from_probabilities(P, pi)
norm = tg.predict(truth).nuclear_norm
print(f"truth: entropy {truth.entropy:.4f} nats, nuclear norm {norm:.4f}")

lengths, norms = (20, 50, 100, 200, 20_000), []
for length in lengths:
    stats = tg.count([np.array(text[:length])], context=1, vocabulary_size=V)
    missing = np.count_nonzero(P) - stats.S.nnz
    norms.append(tg.predict(stats).nuclear_norm)
    print(f"{length:6,} tokens: {missing:2} next tokens not seen, entropy {stats.entropy:.4f}, norm {norms[-1]:.4f}")
print("With every next token seen, the predicted norm is the true one:", bool(np.isclose(norms[-1], norm, rtol=1e-4)))

# %%
# The predicted nuclear norm by the length of the text.

fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
ax.semilogx(lengths, norms, "o-", label="from counts")
ax.axhline(norm, linestyle=":", color="grey", label="from the true probabilities")
ax.set(xlabel="length of the text, tokens", ylabel="predicted nuclear norm")
ax.legend()
plt.show()
