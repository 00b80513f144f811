"""Decisions of fleet."""
