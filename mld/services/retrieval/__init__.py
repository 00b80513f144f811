"""Getting a shard's records, and the memory that they may take."""
