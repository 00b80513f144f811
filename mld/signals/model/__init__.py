"""Values of signals."""
