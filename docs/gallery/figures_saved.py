"""
Save figures
============

A figure is data first. It is drawn as a picture or as an interactive page, or saved as tables of numbers.
"""

from pathlib import Path
from tempfile import mkdtemp

import tokengeom as tg
from tokengeom.figures.heatmaps import feature_heatmaps
from tokengeom.figures.interactive import save_interactive
from tokengeom.figures.static import save_static
from tokengeom_studies.common.figure_data import save_data

stats = tg.count(context=3).limited(top_contexts=20, vocabulary=12)
figure = feature_heatmaps(tg.predict(stats), stats=stats)

folder = Path(mkdtemp())
save_static(figure, folder / "heatmaps.png")
save_interactive(figure, folder / "heatmaps.html")
save_data(figure, folder / "heatmaps-data")
for path in sorted(folder.glob("heatmaps*")):
    tables = len(list(path.glob("*.parquet")))
    print(path.name, f"has {tables} tables, one per panel" if path.is_dir() else "was written")

# %%
# A caption explains each figure without further text. Names are shown where they fit.

print(figure.caption)
save_static(figure, "heatmaps.png", caption=False)
