"""
Rival explanations
==================

Neural collapse, probabilities, mutual information, supports and others explain the geometry of a model too. All are
compared with the same run, on the same pairs of contexts and of tokens.
"""

import tokengeom as tg
from tokengeom.figures.comparisons import rival_bars
from tokengeom.figures.static import save_static

stats = tg.count(context=3).limited(top_contexts=60, vocabulary=30)
run = tg.train(stats, model="ufm", dim=40, learning_rate=1e-2, steps=3000)

table = tg.rivals(stats, run, permutations=50)
for row in table.of("contexts"):
    print(f"{row.rival:<20} {row.agreement.value:.3f}  {row.meaning} (uses {row.uses})")

# %%
# Agreement with its 95% interval.

save_static(rival_bars(table), "rivals.png")
