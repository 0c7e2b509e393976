"""What a section is: a place in the table of contents, a template, and what the template shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokengeom.figures.feature_order import FeatureOrder
from tokengeom.report.contents import Contents
from tokengeom.report.diagnosis import Diagnosis, diagnose
from tokengeom.report.geometry_figures import shown_order


@dataclass(frozen=True, eq=False)
class Reading:
    """The contents with what several sections need of them, computed once."""

    contents: Contents

    @cached_property
    def order(self) -> FeatureOrder:
        """One order for every heat-map."""
        return shown_order(self.contents)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """Every sign of every run."""
        return diagnose(self.contents)


@dataclass(frozen=True)
class Section:
    """``name`` is the section's anchor and the name of its template, ``view`` what the template shows."""

    name: str
    title: str
    view: Mapping[str, Any]
