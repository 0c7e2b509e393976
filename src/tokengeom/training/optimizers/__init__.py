"""Optimizers, one file each: a new file with one subclass of `AbstractOptimizer` is an optimizer of the file's name."""
