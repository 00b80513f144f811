"""The shards of a stream: sync of leases, audit, shard end, lease cleanup."""
