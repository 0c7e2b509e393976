"""
Agreement over training
=======================

Probes measure a model at every record during training: its loss, its norms, and its agreement with the prediction at
the loss of that step and in the limit.
"""

import tokengeom as tg
from tokengeom.comparison.monitor import feature_probes
from tokengeom.figures.static import save_static
from tokengeom.figures.training_curves import feature_training

stats = tg.count(context=3).limited(top_contexts=60, vocabulary=30)
prediction = tg.predict(stats)
run = tg.train(stats, "ufm", dim=40, learning_rate=1e-2, steps=1000, probes=feature_probes(prediction))

print("step   loss gap   agreement of contexts: at the loss, in the limit")
for row in range(0, len(run.trajectory), 5):
    step, gap = int(run.trajectory.steps[row]), run.trajectory["loss_gap"][row]
    at_loss, limit = (run.trajectory[name][row] for name in ("context_agreement", "limit_context_agreement"))
    print(f"{step:4}   {gap:8.2g}   {at_loss:6.3f} {limit:6.3f}")

# %%
# Every measurement by step. Dashed curves of agreement are those with the limit, dotted curves those with the proxy.

save_static(feature_training({"ufm": run}), "training.png", caption=False)
