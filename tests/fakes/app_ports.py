"""The outside world of a worker, without what few tests need."""

from __future__ import annotations

from typing import Any

from kcl_mld.app.ports import Ports


def ports_with(**given: Any) -> Ports:
    """Ports of a worker; those that are not given do nothing, know nothing, or are absent."""
    absent: dict[str, Any] = {
        "schemas": None,
        "letters": None,
        "release_memory": lambda: None,
        "read_entries": None,
        "service_time": lambda: None,
        "dropped_messages": lambda: 0,
        "find_load": None,
        "resident_bytes": lambda _pid: None,
        "limits": None,
        "metric_sender": None,
        "patient_dynamodb": None,
    }
    return Ports(**(absent | given))
