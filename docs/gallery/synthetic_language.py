"""A synthetic language with known probabilities: given more text, counted supports and prediction become exact."""

import numpy as np

import tokengeom as tg
from tokengeom.corpus.synthetic import markov_chain

language = markov_chain(V=8, order=1, branching=3, seed=0)
truth = tg.NextTokenStatistics.from_probabilities(language.truth.P, language.truth.pi)
norm = tg.predict(truth).nuclear_norm
print(f"truth: entropy {truth.entropy:.4f} nats, nuclear norm {norm:.4f}")

for length in (20, 200, 20_000):
    stats = tg.count(language.documents(1, length, seed=0), context=1, vocabulary_size=8)
    missing = language.truth.P.nnz - stats.S.nnz
    found = tg.predict(stats).nuclear_norm
    print(f"{length:6,} tokens: {missing:2} next tokens not seen yet, entropy {stats.entropy:.4f}, norm {found:.4f}")
print("With every next token seen, the predicted norm is the true one:", bool(np.isclose(found, norm, rtol=1e-4)))
