"""Decisions about answers of AWS."""
