"""Models of the next token: contexts in; W, H and logits out."""

from tokengeom.models.base import AbstractFactoredModel, AbstractModel, Readout
from tokengeom.models.linear import Linear
from tokengeom.models.ufm import UFM

__all__ = ["UFM", "AbstractFactoredModel", "AbstractModel", "Linear", "Readout"]
