"""Holding leases: the table, heartbeats, taking, and who leads."""
