"""Children: how they are started, and what they do now."""
