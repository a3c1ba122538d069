"""Aggregated API servers written in Python."""
