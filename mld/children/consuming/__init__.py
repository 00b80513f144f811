"""Consuming."""
