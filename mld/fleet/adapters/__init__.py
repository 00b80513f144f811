"""Adapters of fleet."""
