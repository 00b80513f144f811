"""Adapters of signals."""
