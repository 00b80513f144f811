"""Who leads a fleet, who lives in it, and who gets which lease."""
