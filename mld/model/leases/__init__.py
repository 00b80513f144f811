"""Leases and their rows."""
