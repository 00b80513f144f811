"""One held lease: its records to its child, its checkpoints to the table, its end."""
