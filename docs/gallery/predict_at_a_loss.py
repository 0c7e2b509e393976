"""Predict at the loss that a model has reached, instead of in the limit of training."""

import tokengeom as tg

stats = tg.count(context=3).limited(top_contexts=80, vocabulary=40)
prediction = tg.predict(stats)
run = tg.train(stats, "ufm", dim=40, learning_rate=1e-2, steps=300)

at_loss = [prediction.at(run.loss_gap, norm=norm) for norm in ("nuclear", "gamma2")]
print(at_loss[0].summary())

# The run was trained with AdamW, with which the gamma_2 norm goes.
found = tg.compare(prediction, run, at=at_loss, permutations=50)
here, limit = found.at_loss["context_agreement"].value, found.in_limit["context_agreement"].value
print(f"agreement of contexts at the loss reached ({found.norm}) {here:.3f}, in the limit {limit:.3f}")

# A smaller loss needs logits of larger nuclear norm.
for point in prediction.path([1.0, 0.1, 0.01, 0.001]):
    print(f"loss gap {point.loss_gap:.2g}: nuclear norm {point.nuclear_norm:.1f}, rank {point.rank}")
