"""Turns one HTTP request into one stored object and its watchers' events."""
