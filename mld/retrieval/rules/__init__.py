"""Decisions of retrieval."""
