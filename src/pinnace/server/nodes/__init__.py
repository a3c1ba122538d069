"""The ways from the server to nodes and their pods."""
