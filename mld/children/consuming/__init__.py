"""One shard's consumer: batches, checkpoints, containment, and the end of a hold."""
