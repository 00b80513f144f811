"""Where the number of a batch is kept before it is written."""
