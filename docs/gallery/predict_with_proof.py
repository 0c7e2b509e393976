"""
Predict with a certificate
==========================

The geometry of tokens and contexts in the limit of training follows from the supports alone. A certificate proves how
close the predicted logits are to those of smallest nuclear norm.
"""

import numpy as np

import tokengeom as tg
from tokengeom.figures.heatmaps import pattern_triple
from tokengeom.figures.static import save_static

stats = tg.count(context=3).limited(top_contexts=80, vocabulary=40)
prediction = tg.predict(stats)

print(prediction.summary())
found = prediction.certificate
print(f"proven: {found.bound:.6f} <= smallest nuclear norm <= {found.value:.6f} (gap {found.relative_gap:.1e})")

# %%
# Contexts with the same support are predicted to have the same direction.

first, second = np.flatnonzero(prediction.context_groups == np.bincount(prediction.context_groups).argmax())[:2]
print(f"'{stats.context_text(int(first))}' and '{stats.context_text(int(second))}' have the same support;")
print(f"predicted cosine between them: {prediction.context_cosines[first, second]:.6f}")

# %%
# From the supports to the direction of the logits: which tokens follow which contexts, the same with every column
# centred, which is the proxy, and the predicted direction. Lines are drawn between support groups.

save_static(pattern_triple(prediction, stats=stats), "prediction.png", caption=False)
