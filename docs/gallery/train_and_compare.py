"""
Train and compare
=================

Unconstrained features are trained twice. The agreement of the first training with the prediction stands on a scale from
what chance gives (the floor) to what the second training gives (the ceiling).
"""

import tokengeom as tg
from tokengeom.figures.heatmaps import feature_heatmaps
from tokengeom.figures.static import save_static

stats = tg.count(context=3).limited(top_contexts=60, vocabulary=30)
prediction = tg.predict(stats)
run, again = (tg.train(stats, model="ufm", dim=40, learning_rate=1e-2, steps=2000, seed=seed) for seed in (0, 1))
print(f"{run.status}: loss {run.loss:.4f} nats, {run.loss_gap:.2e} above the entropy {run.entropy:.4f}")

comparison = tg.compare(prediction, [run, again], permutations=50)
print(comparison.reasons[0])
for name, found in comparison.at_loss.items():
    print(f"{name}: {found.value:.3f}, 95% interval {found.low:.3f} to {found.high:.3f}", end="")
    print(f", floor {found.floor:.3f}, second training {found.ceiling:.3f}")

# %%
# The trained model, the prediction in the limit and the proxy, with contexts and tokens in the same order everywhere:
# cosines between contexts, cosines between tokens, and logits.

save_static(feature_heatmaps(prediction, {"trained": run}, stats=stats), "geometry.png", caption=False)
