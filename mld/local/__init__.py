"""The embedded AWS: a Kinesis of our own beside moto, for laptops and tests."""
