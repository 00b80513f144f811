"""Decisions of ops."""
