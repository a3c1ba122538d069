"""Audit policy, events and their backends."""
