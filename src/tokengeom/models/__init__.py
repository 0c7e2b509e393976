"""Models of the next token: contexts in; W, H and logits out."""

from tokengeom.factors import Factors
from tokengeom.models.base import AbstractFactoredModel, AbstractModel
from tokengeom.models.factored import UFM, Linear

__all__ = ["UFM", "AbstractFactoredModel", "AbstractModel", "Factors", "Linear"]
