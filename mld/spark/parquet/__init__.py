"""The parquet chain: names and markers, the walk along it, its disk side; reading and compaction."""
