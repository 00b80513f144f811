"""The options of the daemon's command line, apart from their parsing and their effect."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The command line of the daemon.

    Attributes:
        log_configuration: path for ``-l``, or None.
        log_level: of :data:`LEVELS`, or None.
        log_format: ``text``, ``json``, or None = text on a terminal.
        http: host and port to serve health on, or None.
        shown_as: what findings call the file: ``kcl-mld local`` runs a copy; None = its path.
        warnings: to be logged once logging is set up.
        replaces_1x: it is started in place of this main class of KCL 1.x, or None.
    """

    properties_file: str
    log_configuration: str | None = None
    log_level: str | None = None
    log_format: str | None = None
    http: tuple[str, int] | None = None
    shown_as: str | None = None
    warnings: tuple[str, ...] = ()
    replaces_1x: str | None = None
