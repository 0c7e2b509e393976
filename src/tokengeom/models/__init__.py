"""Models of the next token: contexts in; W, H and logits out."""

from tokengeom.models.base import AbstractFactoredModel, AbstractModel, Readout
from tokengeom.models.factored import UFM, Linear

__all__ = ["UFM", "AbstractFactoredModel", "AbstractModel", "Linear", "Readout"]
