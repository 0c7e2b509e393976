"""
Verify a saved result
=====================

The certificate of a saved prediction is computed again without solving, and a changed file is detected.
"""

from pathlib import Path
from tempfile import mkdtemp

import tokengeom as tg

folder = Path(mkdtemp()) / "prediction"
stats = tg.count(context=3).limited(top_contexts=40, vocabulary=25)
tg.predict(stats).save(folder)

for sentence in tg.verify(folder).checked:
    print("passed:", sentence)

# %%
# One bit of a file is changed.

arrays = folder / "features.safetensors"
content = bytearray(arrays.read_bytes())
content[-1] ^= 1
arrays.write_bytes(content)
for sentence in tg.verify(folder).failed:
    print("failed:", sentence)
try:
    tg.load(folder)
except tg.TokengeomError as error:
    print(str(error).replace(str(folder), "prediction"))
