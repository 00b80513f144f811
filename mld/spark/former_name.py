"""Programs that were written before 1.0 and import ``mld.spark``."""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_FORMER = "mld.spark"
_PRESENT = "kcl_mld.spark"


class FormerName(MetaPathFinder, Loader):
    """Finds ``mld.spark`` where nothing else of that name is; put it last into ``sys.meta_path``."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """An empty package ``mld``, and ours as ``mld.spark``."""
        if fullname not in {_FORMER, _FORMER.partition(".")[0]}:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Replace the new module by ours."""
        if module.__name__ == _FORMER:
            sys.modules[_FORMER] = importlib.import_module(_PRESENT)
