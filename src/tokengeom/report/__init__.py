"""The page: from a text, or from results, to one self-contained document a person can read."""
