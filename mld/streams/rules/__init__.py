"""Decisions of streams."""
