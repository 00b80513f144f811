"""Decisions of the acceptance run, as pure functions."""
