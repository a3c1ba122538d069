"""The steps of a write that are the same in every API server."""
