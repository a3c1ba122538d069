"""Custom resources as Python classes, and their schemas."""
