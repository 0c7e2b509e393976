"""What a section of the page is made from, and what it consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokengeom.figures.ordering import FeatureOrder
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections.figures import page_order
from tokengeom.page.sections.fit_checks import FitChecks, check_fit


@dataclass(frozen=True, eq=False)
class Page:
    """The contents of a page, with what several sections need computed once."""

    contents: ReportContents

    @cached_property
    def order(self) -> FeatureOrder:
        """The order of all heat-maps."""
        return page_order(self.contents)

    @cached_property
    def diagnosis(self) -> FitChecks:
        """All checks of all runs."""
        return check_fit(self.contents)


@dataclass(frozen=True)
class Section:
    """A section of the page.

    ``name``  Its anchor, and the name of its macro in ``templates/sections.html.j2``.
    ``view``  What the macro shows.
    """

    name: str
    title: str
    view: Mapping[str, Any]
