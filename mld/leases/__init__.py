"""Leases: the table, how workers get, renew and release them, and requests to lease holders."""
