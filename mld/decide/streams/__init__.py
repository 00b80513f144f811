"""Which streams a worker reads."""
