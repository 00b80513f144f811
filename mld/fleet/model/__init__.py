"""Values of fleet."""
