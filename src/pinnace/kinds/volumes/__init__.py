"""Persistent volumes, claims and volume sources."""
