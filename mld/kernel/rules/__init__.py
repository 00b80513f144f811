"""Decisions of kernel."""
