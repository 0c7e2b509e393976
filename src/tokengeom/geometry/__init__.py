"""Where prediction and observation meet: Grams, alignment, collapse, similarity with intervals and null."""
