"""
Predict at the loss that was reached
====================================

No training reaches its limit. Of all logits with the loss that a model has reached, the prediction at that loss is the
one of smallest norm.
"""

import matplotlib.pyplot as plt

import tokengeom as tg

stats = tg.count(context=3).limited(top_contexts=80, vocabulary=40)
prediction = tg.predict(stats)
run = tg.train(stats, "ufm", dim=40, learning_rate=1e-2, steps=300)

at_loss = [prediction.at(run.loss_gap, norm=norm) for norm in ("nuclear", "gamma2")]
print(at_loss[0].summary())

# %%
# The run was trained with AdamW, for which the comparison uses the gamma_2 norm.

found = tg.compare(prediction, run, at=at_loss, permutations=50)
here, limit = found.at_loss["context_agreement"].value, found.in_limit["context_agreement"].value
print(f"agreement of contexts at the loss reached ({found.norm}) {here:.3f}, in the limit {limit:.3f}")

# %%
# A smaller loss needs logits of larger norm, and more directions.

path = prediction.path([1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001])
for point in path:
    print(f"loss gap {point.loss_gap:.2g}: nuclear norm {point.nuclear_norm:.1f}, rank {point.rank}")

gaps = [point.loss_gap for point in path]
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
left.semilogx(gaps, [point.nuclear_norm for point in path], "o-")
left.set(xlabel="loss gap, nats", ylabel="nuclear norm of the logits")
right.semilogx(gaps, [point.rank for point in path], "o-")
right.set(xlabel="loss gap, nats", ylabel="rank of the logits")
right.yaxis.get_major_locator().set_params(integer=True)
for axes in (left, right):
    axes.invert_xaxis()
plt.show()
