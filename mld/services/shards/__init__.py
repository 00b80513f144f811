"""Which leases there must be: listing shards, first sync, audit, shard end, cleanup."""
