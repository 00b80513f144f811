"""Records on their way into Spark: Arrow, hand-over, decoding, bad records."""
