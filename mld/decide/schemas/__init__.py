"""Schemas of records."""
