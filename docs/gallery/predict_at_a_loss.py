"""Predict at the loss that a model has reached, instead of in the limit of training."""

import tokengeom as tg

stats = tg.count(context=3).limited(top_contexts=80, vocabulary=40)
prediction = tg.predict(stats)
run = tg.train(stats, "ufm", dim=40, learning_rate=1e-2, steps=300)

at_loss = prediction.at(run.loss_gap)
print(at_loss.summary())

draws = {"resamples": 0, "permutations": 0}
here = tg.compare(at_loss, run, **draws)["at_loss_context_similarity"].value
limit = tg.compare(prediction, run, **draws)["context_similarity"].value
print(f"similarity of contexts at the loss reached {here:.3f}, in the limit {limit:.3f}")

# A smaller loss needs logits of larger nuclear norm.
for point in prediction.path([1.0, 0.1, 0.01, 0.001]):
    print(f"loss gap {point.loss_gap:.2g}: nuclear norm {point.nuclear_norm:.1f}, rank {point.rank}")
