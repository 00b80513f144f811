"""Frozen data and the grammars that parse it."""
