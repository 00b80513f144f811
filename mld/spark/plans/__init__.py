"""The user's function once per batch, and its plans made one."""
