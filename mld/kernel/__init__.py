"""What every room needs: clocks, sequence numbers, tasks that run side by side, calls in threads.

For others: ``ports`` (clock, ids, signals of the system), ``model`` (sequence numbers, masking,
texts), ``rules`` (back-off, clock offset), ``concurrency``, ``pages``,
``adapters.calls``. The other ``adapters`` are for programs.

Decisions, in ``docs/decisions/``:

* aws.md: botocore runs in thread pools that never share a thread
* worker.md: The process ends by ``_exit``
"""
