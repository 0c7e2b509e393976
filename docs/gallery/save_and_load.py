"""Save and load: every result has `save`, and `tg.load` returns it as the type that was saved."""

import tokengeom as tg

stats = tg.count(context=3).limited(top_contexts=40, vocabulary=25)
prediction = tg.predict(stats)
run = tg.train(stats, model="ufm", dim=30, learning_rate=1e-2, steps=300)
comparison = tg.compare(prediction, run, permutations=20)

for name, result in {"stats": stats, "prediction": prediction, "run": run, "comparison": comparison}.items():
    result.save(f"results/{name}")
    print(f"{name}: {tg.load(f'results/{name}')}")

again = tg.compare(tg.load("results/prediction"), tg.load("results/run"), permutations=20)
print("the loaded results give the same comparison:", again.summary() == comparison.summary())
