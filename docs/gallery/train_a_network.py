"""Train a small transformer on a text: its geometry moves towards the one predicted from the supports."""

import tokengeom as tg

stats = tg.count(context=3).limited(top_contexts=60, vocabulary=30)
prediction = tg.predict(stats)
shape = {"dim": 32, "layers": 1, "heads": 2}

for steps in (0, 300):
    run = tg.train(stats, model="transformer", steps=steps, learning_rate=1e-2, rate_schedule="cosine", **shape)
    found = tg.compare(prediction, run, permutations=50).context_agreement
    print(f"after {steps} steps: CE - H = {run.loss_gap:.3g}, agreement {found.value:.2f}, floor {found.floor:.2f}")
