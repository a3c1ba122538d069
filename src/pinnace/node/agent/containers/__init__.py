"""Containers: configuration, environment, files, start, logs and last messages."""
