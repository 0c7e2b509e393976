"""Train a model and compare: how well its geometry agrees with the prediction, with an interval and a chance level."""

import tokengeom as tg

stats = tg.count(context=3).limited(top_contexts=60, vocabulary=30)
prediction = tg.predict(stats)
run = tg.train(stats, model="ufm", dim=40, learning_rate=1e-2, steps=2000)
print(f"{run.status}: loss {run.loss:.4f} nats, {run.loss_gap:.2e} above the entropy {run.entropy:.4f}")

comparison = tg.compare(prediction, run, resamples=50, permutations=50)
for name in ("context_similarity", "token_similarity"):
    found = comparison[name]
    print(f"{name}: {found.value:.3f}, 95% interval {found.low:.3f} to {found.high:.3f}, chance {found.null:.3f}")
