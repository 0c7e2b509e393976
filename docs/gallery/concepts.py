"""Concepts: the leading contrasts between words that the supports alone contain, and the order they are learned in."""

import tokengeom as tg
from tokengeom.theory.concepts import Concepts

stats = tg.count(context=3).limited(contexts=80, vocabulary=40)
prediction = tg.predict(stats)
concepts = Concepts.of(prediction.L_mm, count=4)

for k, half_time in enumerate(concepts.half_times()):
    concept = concepts.concept(k, typical=4)
    one, other = concept.words(stats.vocabulary)
    print(f"concept {k + 1}, importance {concept.importance:.2f}, half learned at time {half_time:.2f}:")
    print(f"   {', '.join(one)}   against   {', '.join(other)}")
