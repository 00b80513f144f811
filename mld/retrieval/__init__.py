"""Records of a shard: fetched by polling or fan-out, and taken apart.

For others: ``model``, ``rules``, ``ports``, ``records_publisher``, ``byte_budget``,
``schema_registry``. The two kinds of publishers are chosen by ``kcl_mld.app``.

Decisions, in ``docs/decisions/``:

* retrieval.md: One budget of bytes for the process, reserved before a request
* retrieval.md: The base64 text of a record is not decoded
* retrieval.md: A subscription is a thread that reads when it is asked
"""
