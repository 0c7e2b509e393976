"""Predict with a proof: where training sends words and contexts, and how close to the optimum that provably is."""

import numpy as np

import tokengeom as tg

stats = tg.count(context=3).limited(contexts=80, vocabulary=40)
prediction = tg.predict(stats)

print(prediction.summary())
proof = prediction.certificate
print(f"proven: {proof.bound:.6f} <= smallest nuclear norm <= {proof.value:.6f} (gap {proof.relative_gap:.1e})")

# Contexts with one support are predicted to have one direction.
first, second = np.flatnonzero(prediction.context_groups == np.bincount(prediction.context_groups).argmax())[:2]
print(f"'{stats.context_text(int(first))}' and '{stats.context_text(int(second))}' may be followed by the same tokens;")
print(f"predicted cosine between them: {prediction.context_cosines[first, second]:.6f}")
