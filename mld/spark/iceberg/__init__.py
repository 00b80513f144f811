"""An Iceberg table that this process commits by pyiceberg, with the marks of shards."""
