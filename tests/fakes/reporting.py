"""A worker's reports of its metrics, without what few tests need."""

from __future__ import annotations

from typing import Any

from kcl_mld.fleet.worker_metrics import WorkerMetricsReporter
from kcl_mld.kernel.concurrency import Wakeup
from kcl_mld.signals.model.conditions import Conditions


def reporter_with(items: Any, config: Any, worker: str, runtime: Any, **given: Any) -> Any:
    """A reporter; what is not given is absent, unknown, or hears nothing."""
    absent: dict[str, Any] = {
        "find_load": None,
        "others": None,
        "conditions": Conditions(),
        "on_first": lambda: None,
        "failover_s": None,
        "lapses": Wakeup(),
        "find_most": lambda: None,
        "find_worst_lag": lambda: None,
        "process": None,
        "twins": None,
    }
    return WorkerMetricsReporter(items, config, worker, runtime, **(absent | given))
