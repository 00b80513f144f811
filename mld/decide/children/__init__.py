"""A shard's child: its life, its environment, its checkpoints."""
