"""Schemas of records: where they come from, and what children learn of them."""
