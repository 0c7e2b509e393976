"""
How much text a prediction needs
================================

A synthetic language has known probabilities. With more text, the counted supports become complete, and the prediction
from the counts becomes the one from the true probabilities.
"""

import matplotlib.pyplot as plt
import numpy as np

import tokengeom as tg
from tokengeom.corpus.synthetic import markov_chain

language = markov_chain(V=8, order=1, branching=3, seed=0)
truth = tg.NextTokenStatistics.from_probabilities(language.truth.P, language.truth.pi)
norm = tg.predict(truth).nuclear_norm
print(f"truth: entropy {truth.entropy:.4f} nats, nuclear norm {norm:.4f}")

lengths, norms = (20, 50, 100, 200, 20_000), []
for length in lengths:
    stats = tg.count(language.documents(1, length, seed=0), context=1, vocabulary_size=8)
    missing = language.truth.P.nnz - stats.S.nnz
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
