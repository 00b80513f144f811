"""Adapters of children."""
