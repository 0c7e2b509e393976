"""The page: from a text, or from results, to one self-contained document a person can read.

The room has the name of its verb: ``tokengeom.report(...)`` is `tokengeom.report.make.report`, whether or not a module
of this room was imported before. Python puts an imported room over a verb of the same name, so the room itself
answers to a call.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableRoom(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        from tokengeom.report.make import report

        return report(*args, **options)


sys.modules[__name__].__class__ = _CallableRoom
