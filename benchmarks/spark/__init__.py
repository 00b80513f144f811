"""What the PySpark child costs, beside Structured Streaming over files in the same run."""
