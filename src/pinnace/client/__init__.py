"""Speaks the API to any server, over HTTP or in process."""
