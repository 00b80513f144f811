"""What the properties spark.* say."""
