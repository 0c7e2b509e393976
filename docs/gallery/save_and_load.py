"""
Save and load
=============

Every result has ``save``, and ``tg.load`` returns it as the type that was saved.
"""

from pathlib import Path
from tempfile import mkdtemp

import tokengeom as tg

stats = tg.count(context=3).limited(top_contexts=40, vocabulary=25)
prediction = tg.predict(stats)
run = tg.train(stats, model="ufm", dim=30, learning_rate=1e-2, steps=300)
comparison = tg.compare(prediction, run, permutations=20)

folder = Path(mkdtemp())
for name, result in {"stats": stats, "prediction": prediction, "run": run, "comparison": comparison}.items():
    result.save(folder / name)
    print(f"{name}: {tg.load(folder / name)}")

loaded = {name: tg.load(folder / name) for name in ("prediction", "run", "stats")}
again = tg.compare(loaded["prediction"], loaded["run"], stats=loaded["stats"], permutations=20)
print("the loaded results give the same comparison:", again.summary() == comparison.summary())
