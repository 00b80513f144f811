"""Version 3: a lost lease and an ended shard are different calls."""
