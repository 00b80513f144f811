"""Values of streams."""
