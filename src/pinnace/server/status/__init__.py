"""Statuses that the server process writes itself."""
