"""Which streams a worker reads: names, identity, existence, and former streams."""
