"""Streams and their shards."""
