"""The ``.properties`` file, key by key, as immutable values. Pure: it reads texts, not files.

For others: ``config`` and the sections that it names, ``stream``, ``keys``, ``findings``.
``build`` is for programs, ``spark`` also for the Spark child.

Decisions, in ``docs/decisions/``:

* worker.md: A properties file yields findings, not log lines
* worker.md: A property is one field
* worker.md: What is set outside a file is part of reading it
"""
