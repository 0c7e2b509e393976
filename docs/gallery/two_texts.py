"""
Compare two texts
=================

Which tokens and contexts training would put elsewhere, if it used another text. Here the second text is the first one
with one change: in it, birds never fly.
"""

from itertools import islice

import matplotlib.pyplot as plt

import tokengeom as tg
from tokengeom.corpus.stories import stories

first = """
the bird can fly . the bird can sing . the bird can hop . the fish can swim . the fish can hide .

a dog can run . a dog can bark . a dog can swim . a cat can run . a cat can hide . a cat can sing .
"""
second = first.replace("the bird can fly .", "the bird can swim .")
one, other = (tg.count([text], context=2, tokenizer="word") for text in (first, second))
found = tg.compare_texts(one, other, permutations=50)
print(found.summary().splitlines()[0])

# %%
# How far each shared context moved, and which tokens follow it in one of the texts alone.

for moved in found.contexts.listed[:3]:
    only = ", ".join(follower.name for follower in moved.only_second) or "none"
    print(f"{moved.name:<10} moved by {moved.moved:.2f}; next tokens in the second text alone: {only}")

frame = found.to_frame("contexts")
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.barh(frame.index[::-1], frame["moved"].iloc[::-1])
ax.set(xlabel="how far the context moved", ylabel="context")
plt.show()

# %%
# Longer texts are also split into random halves, which differ by chance alone. Corrected for that, the agreement of two
# samples of one text is about 1. Here stories are compared with others, and with these after *to* and *and* swapped.

swapped = {"to": "and", "and": "to"}
sample, another = (list(islice(stories(seed), 200)) for seed in (0, 1))
changed = [" ".join(swapped.get(word, word) for word in story.split()) for story in another]
texts = [tg.count(text, context=2, tokenizer="word", top_contexts=80) for text in (sample, another, changed)]
for text in texts[1:]:
    found = tg.compare_texts(texts[0], text, permutations=0)
    known, most = found.agreements["context_agreement"], [item.name for item in found.tokens.listed[:2]]
    print(f"contexts agree {known.value:.2f}, corrected {known.corrected:.2f}; tokens that moved most: {most}")
