"""Decisions of signals."""
