"""Volumes, claims and their classes."""
