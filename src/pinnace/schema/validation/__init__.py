"""Validate, explain, prune and default values by a schema."""
