"""
Train a small transformer
=========================

The geometry of a network moves towards the one that is predicted from the supports.
"""

import tokengeom as tg
from tokengeom.figures.heatmaps import evolution
from tokengeom.figures.static import save_static

stats = tg.count(context=3).limited(top_contexts=60, vocabulary=30)
prediction = tg.predict(stats)
shape = {"dim": 32, "layers": 1, "heads": 2}

runs = {}
for steps in (0, 300):
    run = tg.train(stats, model="transformer", steps=steps, learning_rate=1e-2, rate_schedule="cosine", **shape)
    found = tg.compare(prediction, run, permutations=50).context_agreement
    print(f"after {steps} steps: CE - H = {run.loss_gap:.3g}, agreement {found.value:.2f}, floor {found.floor:.2f}")
    runs[steps] = run

# %%
# Before training, after it, and as predicted in the limit: cosines between contexts and between tokens, and logits.

save_static(evolution(runs, prediction, stats=stats), "evolution.png", caption=False)
