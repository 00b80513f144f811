"""Batches of many shards through few Spark jobs: attempts, times, verdicts, commits."""
