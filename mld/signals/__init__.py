"""What is to be seen of a worker: the catalogue of metrics, conditions (why it is not ready), logs.

For others: ``model`` (metrics, conditions), ``ports``, ``failing_condition``, ``log_facts``,
``runtime``, ``rules``. ``adapters`` are for programs.

Decisions, in ``docs/decisions/``:

* worker.md: Metrics are rows of one catalogue, and services know no sink
* worker.md: A stalled reader of the log never stops the worker
* worker.md: Log lines are readable on a terminal and searchable in files
"""
