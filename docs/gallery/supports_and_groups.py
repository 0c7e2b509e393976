"""Supports and groups: contexts that the same tokens may follow; theory says that training makes them one direction."""

import tokengeom as tg

stats = tg.count(context=3).limited(contexts=80, vocabulary=40)
groups = stats.groups

print(f"{stats.m} contexts share {groups.count} supports.")
largest = int(groups.multiplicity.argmax())
members = groups.members(largest)
tokens = sorted(token for token, _ in stats.next_tokens(int(members[0])))
print(f"The largest group has {len(members)} contexts; after each may come only: {', '.join(tokens)}")
for j in members[:5]:
    print(f"  '{stats.context_text(int(j))}'")
