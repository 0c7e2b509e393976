"""Supports and groups: contexts that the same tokens may follow. In theory, training gives them one direction."""

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
