"""
Supports and groups
===================

The support of a context is the set of tokens that follow it. In theory, training gives one direction to all contexts
with the same support, so contexts are put into groups by their supports.
"""

import matplotlib.pyplot as plt
import numpy as np

import tokengeom as tg

stats = tg.count(context=3).limited(top_contexts=80, vocabulary=40)
groups = stats.groups

print(f"{stats.m} contexts have {groups.count} different supports.")
largest = int(groups.multiplicity.argmax())
members = groups.members(largest)
tokens = sorted(token for token, _ in stats.next_tokens(int(members[0])))
print(f"The largest group has {len(members)} contexts; their support is: {', '.join(tokens)}")
for j in members[:5]:
    print(f"  '{stats.context_text(int(j))}'")

# %%
# All supports. Contexts of one group are adjacent, the largest group first.

order = np.lexsort((groups.label, -groups.multiplicity[groups.label]))
fig, ax = plt.subplots(figsize=(9, 5.5), layout="constrained")
ax.imshow(stats.S.toarray()[:, order], cmap="Greys", aspect="auto", interpolation="nearest")
starts = np.flatnonzero(np.diff(groups.label[order])) + 0.5
ax.vlines(starts, -0.5, stats.V - 0.5, color="tab:orange", linewidth=0.6)
ax.set_yticks(range(stats.V), stats.vocabulary, fontsize=7)
ax.set(xlabel="contexts, with lines between groups", ylabel="next token", title="Which tokens follow which contexts")
plt.show()
