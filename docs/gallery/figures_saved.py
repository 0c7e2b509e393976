"""Figures: heat-maps of the prediction as a picture, as an interactive page, and as tables of numbers."""

from pathlib import Path

import tokengeom as tg
from tokengeom.figures.data import save_data
from tokengeom.figures.heatmaps import feature_heatmaps
from tokengeom.figures.interactive import save_interactive
from tokengeom.figures.static import save_static

stats = tg.count(context=3).limited(top_contexts=20, vocabulary=12)
figure = feature_heatmaps(tg.predict(stats), stats=stats)

save_static(figure, "heatmaps.png")
save_interactive(figure, "heatmaps.html")
save_data(figure, "heatmaps-data")
for path in sorted(Path().glob("heatmaps*")):
    tables = len(list(path.glob("*.parquet")))
    print(path, f"has {tables} tables, one per panel" if path.is_dir() else f"has {path.stat().st_size:,} bytes")
print(figure.caption)
