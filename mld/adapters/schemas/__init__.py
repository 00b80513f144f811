"""Schemas on this machine: files of their definitions, decoders of what they describe."""
