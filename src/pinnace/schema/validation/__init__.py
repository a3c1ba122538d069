"""Validate and explain values by a schema."""
