"""Values of kernel."""
