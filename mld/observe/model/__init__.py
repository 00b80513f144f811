"""Values of observe."""
