"""Values of children."""
