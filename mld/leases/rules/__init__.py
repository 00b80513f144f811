"""Decisions of leases."""
