"""A Delta table that Spark writes files for and this process commits, with the marks of shards."""
