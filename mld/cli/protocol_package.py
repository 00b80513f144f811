"""Whether the package ``protocol`` that will be imported is ours: its name is one that others use."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import mld
from mld.errors import ConfigError

_NAME = "protocol"


def check_protocol_package() -> None:
    """Make sure that the package ``protocol`` is ours; nothing is imported for that.

    A module of the user's may fail when it is imported, or do something.

    Raises:
        ConfigError: another file shadows it; names that file.
    """
    ours = Path(mld.__file__).resolve().parent.parent / _NAME
    spec = find_spec(_NAME)
    folders = [] if spec is None else [*(spec.submodule_search_locations or ())]
    found = folders if spec is None or spec.origin is None else spec.origin
    if not isinstance(found, str) or Path(found).resolve().parent != ours:
        raise ConfigError(
            f"the module `{_NAME}` was found at {found}, not at {ours}; "
            "take that file off PYTHONPATH or rename it"
        )
