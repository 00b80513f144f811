"""Records, from the bytes of an answer on."""
