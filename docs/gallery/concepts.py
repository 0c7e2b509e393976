"""
Concepts and the order of learning
==================================

Singular vectors of the predicted logits are contrasts between groups of tokens. Those with larger singular values are
learned earlier :cite:p:`zhao2025`.
"""

import tokengeom as tg
from tokengeom.figures.static import save_static
from tokengeom.figures.training_curves import concepts as draw_concepts
from tokengeom.theory.concepts import Concepts

stats = tg.count(context=3).limited(top_contexts=80, vocabulary=40)
prediction = tg.predict(stats)
concepts = Concepts.of(prediction.L_mm, count=4)

for k, half_time in enumerate(concepts.half_times()):
    concept = concepts.concept(k, typical=4)
    one, other = concept.token_texts(stats.vocabulary)
    print(f"concept {k + 1}, importance {concept.importance:.2f}, half learned at time {half_time:.2f}:")
    print(f"   {', '.join(one)}   versus   {', '.join(other)}")

# %%
# Typical tokens and contexts of each concept, and when it is learned.

save_static(draw_concepts(concepts, stats, count=4), "concepts.png", caption=False)
