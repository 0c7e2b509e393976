"""Models of the next token: linear, unconstrained features, networks, and checkpoints of language models."""

from tokengeom.models.factored import UFM, AbstractFactoredModel, Linear

__all__ = ["UFM", "AbstractFactoredModel", "Linear"]
