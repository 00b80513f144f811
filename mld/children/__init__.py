"""Shard consumers and their child processes: exchange, checkpoints, processes, containment."""
