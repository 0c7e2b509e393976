"""Save and verify: a saved prediction is proven again without solving, and a changed file is found out."""

from pathlib import Path

import tokengeom as tg

stats = tg.count(context=3).limited(contexts=40, vocabulary=25)
tg.predict(stats).save("prediction")

for sentence in tg.verify("prediction").checked:
    print("yes", sentence)

arrays = Path("prediction/features.safetensors")
content = bytearray(arrays.read_bytes())
content[-1] ^= 1
arrays.write_bytes(content)
print("After one bit was changed:")
for sentence in tg.verify("prediction").failed:
    print("no ", sentence)
