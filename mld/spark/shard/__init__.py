"""One shard's conversation with the daemon: where it begins, what is cut, stored and answered."""
