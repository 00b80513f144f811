"""Values of leases."""
