"""Adapters of kernel."""
