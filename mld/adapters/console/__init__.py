"""The console: a page for people, and what it shows as JSON."""
