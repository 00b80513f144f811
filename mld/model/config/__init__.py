"""What a .properties file says."""
