"""Decisions of children."""
