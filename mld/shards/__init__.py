"""Leases follow the shards of a stream: the sync, the audit of hash ranges, the end of a shard.

For others: ``rules``, and all services, which ``kcl_mld.app`` wires.

Decisions, in ``docs/decisions/``:

* shards.md: "Not found" is not the end of a shard
* shards.md: Any worker that sees a hole for long enough repairs it
* shards.md: Records that any stream would serve are confirmed before children get them
* dynamodb-streams.md: Without hash ranges, leases follow the lineage
"""
