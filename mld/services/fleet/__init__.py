"""Being one of a fleet: who leads, how leases are distributed, what workers report in the table."""
