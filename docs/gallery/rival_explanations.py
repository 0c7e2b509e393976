"""Rival explanations: neural collapse, probabilities, mutual information, supports, the prediction; which fits best."""

import tokengeom as tg

stats = tg.count(context=3).limited(top_contexts=60, vocabulary=30)
run = tg.train(stats, model="ufm", dim=40, learning_rate=1e-2, steps=3000)

table = tg.rivals(stats, run, held_out=0, permutations=50)
for row in table.of("contexts"):
    print(f"{row.rival:<20} {row.agreement.value:.3f}  {row.meaning} (uses {row.uses})")
