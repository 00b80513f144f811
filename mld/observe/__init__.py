"""A fleet and a worker as they are seen: snapshots, verdicts, probes, the console, exporters.

For others: ``fleet_reader``, ``stream_reader``, ``model``, ``rules``. ``adapters`` are for
programs.

Decisions, in ``docs/decisions/``:

* fleet.md: A verdict comes from looks alone, and needs no memory
* worker.md: Ready means that the worker does its job
"""
