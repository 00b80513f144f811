"""What is to be seen of a worker: the catalogue of metrics, reasons not to be ready, conditions, logs.

For others: ``model`` (metrics, reasons), ``ports``, ``conditions``, ``log_facts``, ``runtime``,
``rules``. ``adapters`` are for programs.

Decisions, in ``docs/decisions/``:

* worker.md: Metrics are rows of one catalogue, and services know no sink
* worker.md: A stalled reader of the log never stops the worker
* worker.md: Log lines are readable on a terminal and searchable in files
"""
