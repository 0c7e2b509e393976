"""
Neighbours of a token, and the reasons
======================================

What lies near a token or a context, which supports they share, and what pulls a context to where it lies.
"""

import tokengeom as tg
from tokengeom.figures.heatmaps import labelled_tokens
from tokengeom.figures.static import save_static

stats = tg.count(context=3).limited(top_contexts=80, vocabulary=40)
prediction = tg.predict(stats)

for row in prediction.neighbours("river", k=4).rows:
    print(f"{row.name:<8} cosine {row.cosine:.3f}, follows {row.size} contexts, {row.shared} of them with 'river'")

# %%
# An explanation of a context: what follows it, which contexts share its support, its logits and its neighbours.

context = stats.context_text(int(stats.most_frequent(1)[0]))
print(prediction.explain(context, k=3).summary())

# %%
# Cosines between the tokens that follow the most contexts.

save_static(labelled_tokens(prediction, stats, most=25), "tokens.png")
