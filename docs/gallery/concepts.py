"""Concepts: the leading contrasts between tokens in the predicted geometry, and the order in which they are learned."""

import tokengeom as tg
from tokengeom.theory.concepts import Concepts

stats = tg.count(context=3).limited(top_contexts=80, vocabulary=40)
prediction = tg.predict(stats)
concepts = Concepts.of(prediction.L_mm, count=4)

for k, half_time in enumerate(concepts.half_times()):
    concept = concepts.concept(k, typical=4)
    one, other = concept.token_texts(stats.vocabulary)
    print(f"concept {k + 1}, importance {concept.importance:.2f}, half learned at time {half_time:.2f}:")
    print(f"   {', '.join(one)}   versus   {', '.join(other)}")
