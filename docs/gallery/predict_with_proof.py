"""Predict with a certificate: the geometry of tokens and contexts, with proven bounds on the optimum."""

import numpy as np

import tokengeom as tg

stats = tg.count(context=3).limited(top_contexts=80, vocabulary=40)
prediction = tg.predict(stats)

print(prediction.summary())
found = prediction.certificate
print(f"proven: {found.bound:.6f} <= smallest nuclear norm <= {found.value:.6f} (gap {found.relative_gap:.1e})")

# Contexts with the same support are predicted to have the same direction.
first, second = np.flatnonzero(prediction.context_groups == np.bincount(prediction.context_groups).argmax())[:2]
print(f"'{stats.context_text(int(first))}' and '{stats.context_text(int(second))}' have the same support;")
print(f"predicted cosine between them: {prediction.context_cosines[first, second]:.6f}")
