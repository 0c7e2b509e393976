"""Train a small transformer on a text: a network that reads tokens ends near the geometry that supports predict."""

import tokengeom as tg

stats = tg.count(context=3).limited(contexts=60, vocabulary=30)
prediction = tg.predict(stats)
shape = {"model": "transformer", "dim": 32, "layers": 1, "heads": 2, "learning_rate": 1e-2, "rate_schedule": "cosine"}

for steps in (0, 300):
    run = tg.train(stats, steps=steps, weight_decay=1e-6, **shape)
    found = tg.compare(prediction, run, resamples=50, permutations=50).context_similarity
    print(f"after {steps} steps: CE - H = {run.loss_gap:.3g}, similarity {found.value:.2f}, chance {found.null:.2f}")
