"""Mutating and validating admission webhooks."""
