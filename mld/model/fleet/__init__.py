"""Items of a 3.x fleet beside its leases."""
