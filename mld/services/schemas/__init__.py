"""Schemas of records: where they come from, and what is told of them."""
