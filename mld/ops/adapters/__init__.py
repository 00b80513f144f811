"""Adapters of ops."""
