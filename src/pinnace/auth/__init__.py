"""Authenticates users and authorizes their requests."""
