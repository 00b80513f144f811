"""The Spark server: Java, settings and files, its process, and sessions on it."""
