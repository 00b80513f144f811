"""Being one of a fleet: who leads, how leases come, what workers tell each other in the table."""
