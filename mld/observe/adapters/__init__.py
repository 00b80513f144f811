"""Adapters of observe."""
