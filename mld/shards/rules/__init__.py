"""Decisions of shards."""
