"""Which streams a worker reads, what belongs to each of them, and how they come and go."""
