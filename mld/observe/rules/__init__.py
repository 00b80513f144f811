"""Decisions of observe."""
