"""
Train and compare
=================

Unconstrained features are trained three times with different seeds. What the trainings share is reproducible; agreement
with the prediction stands between what chance gives (the floor) and what is attainable, and its corrected square is the
share of the reproducible geometry that the prediction explains.
"""

import tokengeom as tg
from tokengeom.figures.heatmaps import feature_heatmaps
from tokengeom.figures.static import save_static

stats = tg.count(context=3).limited(top_contexts=60, vocabulary=30)
prediction = tg.predict(stats)
runs = [tg.train(stats, model="ufm", dim=40, learning_rate=1e-2, steps=2000, seed=seed) for seed in range(3)]
run = runs[0]
print(f"{run.status}: loss {run.loss:.4f} nats, {run.loss_gap:.2e} above the entropy {run.entropy:.4f}")

comparison = tg.compare(prediction, runs, permutations=50)
print(comparison.reasons[0])
for name in ("support_agreement", "context_agreement", "token_agreement"):
    found = comparison.at_loss[name]
    print(f"{name}: {found.value:.3f}, 95% interval {found.low:.3f} to {found.high:.3f}", end="")
    print(f", floor {found.floor:.3f}, attainable {found.attainable:.3f}, explained {found.explained:.0%}")

# %%
# The trained model, the prediction in the limit and the proxy, with contexts and tokens in the same order everywhere:
# cosines between contexts, cosines between tokens, and logits.

save_static(feature_heatmaps(prediction, {"trained": run}, stats=stats), "geometry.png", caption=False)
