"""One Spark host per worker: how stubs find it, hand over their pipes, and learn how to end."""
