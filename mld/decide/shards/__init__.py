"""Which leases the shards of a stream need."""
