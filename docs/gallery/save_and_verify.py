"""Verify a saved result: its certificate is recomputed without solving again, and a changed file is detected."""

from pathlib import Path

import tokengeom as tg

stats = tg.count(context=3).limited(top_contexts=40, vocabulary=25)
tg.predict(stats).save("prediction")

for sentence in tg.verify("prediction").checked:
    print("passed:", sentence)

arrays = Path("prediction/features.safetensors")
content = bytearray(arrays.read_bytes())
content[-1] ^= 1
arrays.write_bytes(content)
print("After one bit was changed:")
for sentence in tg.verify("prediction").failed:
    print("failed:", sentence)
try:
    tg.load("prediction")
except tg.TokengeomError as error:
    print(error)
