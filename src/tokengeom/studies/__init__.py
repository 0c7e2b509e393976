"""Named experiments: a recipe as data, a run, and what it must show."""
