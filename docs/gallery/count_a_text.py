"""Count a text: which tokens follow which pairs of tokens, and the lowest loss that any model can reach."""

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
