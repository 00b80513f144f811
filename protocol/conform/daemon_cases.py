"""All cases of the daemon kit, the quick ones first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.conform import (
    checkpoint_cases,
    cli_cases,
    config_cases,
    credential_cases,
    life_cases,
    refusal_cases,
    shutdown_cases,
    syntax_cases,
    wire_cases,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protocol.conform.daemon import DaemonKit
    from protocol.conform.report import Finding

ALL: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    *cli_cases.CASES,
    *refusal_cases.CASES,
    *syntax_cases.CASES,
    *config_cases.CASES,
    *credential_cases.CASES,
    *wire_cases.CASES,
    *life_cases.CASES,
    *shutdown_cases.CASES,
    *checkpoint_cases.CASES,
)
