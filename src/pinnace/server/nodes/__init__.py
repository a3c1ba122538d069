"""The ways from the server to nodes and their pods, and the HTTPS port of a node."""
