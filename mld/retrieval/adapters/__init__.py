"""Adapters of retrieval."""
