"""
Count a text
============

Which tokens follow which pairs of tokens, how often, and the lowest loss that any model can reach on these windows.
"""

import matplotlib.pyplot as plt

import tokengeom as tg

text = """
the cat sat on the mat . the dog sat on the rug . the cat saw the dog .

the dog saw the cat . the cat ran . the dog ran to the mat .
"""
stats = tg.count([text], context=2, tokenizer="word")

print(stats)
for j in stats.most_frequent(4):
    followers = ", ".join(f"{token} {p:.0%}" for token, p in stats.next_tokens(int(j)))
    print(f"after '{stats.context_text(int(j))}': {followers}")
print(f"No model's loss on these {stats.n} windows is below {stats.entropy:.3f} nats.")

# %%
# The same as a matrix: one column per context, one row per next token. The tokens with a positive probability are the
# support of the context.

fig, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
picture = ax.imshow(stats.P.toarray(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
ax.set_xticks(range(stats.m), [stats.context_text(j) for j in range(stats.m)], rotation=60, ha="right")
ax.set_yticks(range(stats.V), stats.vocabulary)
ax.set(xlabel="context", ylabel="next token")
fig.colorbar(picture, label="probability")
plt.show()
