"""Values of retrieval."""
