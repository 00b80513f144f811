"""Which streams a worker reads: names, identity, whether a stream exists.

For others: ``model``, ``rules``, ``stream_names``, ``existence_watch``, ``stream_metrics``.

Decisions, in ``docs/decisions/``:

* shards.md: A lease finds its stream; the lease table knows no streams
* shards.md: A list of streams counts only if it was read completely
* shards.md: One lease that does not fit does not prove a new stream
"""
