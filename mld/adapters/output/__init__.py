"""What the daemon says: logs, where they go, and the state that it shows when asked."""
