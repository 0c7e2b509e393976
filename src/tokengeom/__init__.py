"""tokengeom: the geometry that next-token training gives to words and contexts, predicted and measured."""
